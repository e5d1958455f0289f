#include "core/kernels/select/bilinear_guard.h"

#include "absl/strings/str_cat.h"
#include "core/kernels/onednn/onednn_version.h"
#include "core/kernels/select/kernel_verdicts.h"

namespace mslua {
namespace {

bool trust_all = false;

bool IsBF16(const Bilinear& b, BilinearOp op) { return b.type == DType::kBF16 && b.op == op; }

// Whether the window at result `p` along axis `a` has a place `i` over a pixel of the image.
bool Meets(const Convolution& c, int a, int64_t p, int64_t i) {
  const int64_t at = c.window.Start(a, p) + i * c.window.dilation[a];
  return at >= 0 && at < (a == 0 ? c.x.h : c.x.w);
}
int64_t Results(const Convolution& c, int a) { return a == 0 ? c.y.h : c.y.w; }

// Whether some row or column of the window meets padding alone wherever the window is.
bool PartOfWindowMeetsPaddingAlone(const Convolution& c) {
  for (int a = 0; a < 2; ++a) {
    for (int64_t i = 0; i < c.window.size[a]; ++i) {
      bool meets = false;
      for (int64_t p = 0; p < Results(c, a) && !meets; ++p) meets = Meets(c, a, p, i);
      if (!meets) return true;
    }
  }
  return false;
}

// Whether some row or column of the result is made of padding alone.
bool PartOfResultMeetsPaddingAlone(const Convolution& c) {
  for (int a = 0; a < 2; ++a) {
    for (int64_t p = 0; p < Results(c, a); ++p) {
      bool meets = false;
      for (int64_t i = 0; i < c.window.size[a] && !meets; ++i) meets = Meets(c, a, p, i);
      if (!meets) return true;
    }
  }
  return false;
}

bool Dilated(const Convolution& c) {
  const Window& w = c.window;
  return w.dilation[0] > 1 || w.dilation[1] > 1;
}

constexpr KnownBad kKnownBad[] = {
    {"product with k = 63",
     "oneDNN 2.6.3 on tiles: the kernel for the last 31 of k is made without a tile for them, and executes a tile "
     "instruction that the processor refuses (SIGILL), or multiplies another tile",
     Way::kOneDnn, [](const Bilinear& b) { return IsBF16(b, BilinearOp::kProduct) && b.product.k == 63; }},
    {"gradient of weights with places that meet padding alone",
     "oneDNN 2.6.3 does not write the gradient of a window's row or column that meets no pixel of any image, as with "
     "images narrower than the horizontal stride",
     Way::kOneDnn,
     [](const Bilinear& b) {
       return IsBF16(b, BilinearOp::kGradWeight) && PartOfWindowMeetsPaddingAlone(b.convolution);
     }},
    {"gradient of weights of a dilated window",
     "oneDNN 2.6.3 on tiles leaves gradients unwritten or sums the wrong rows, as with each channel by itself, "
     "vertical dilation 2 and padding 2",
     Way::kOneDnn, [](const Bilinear& b) { return IsBF16(b, BilinearOp::kGradWeight) && Dilated(b.convolution); }},
    {"convolution in groups with results of padding alone",
     "oneDNN 2.6.3 on tiles has no kernel for rows of padding alone where channels of a group fill no tile, and calls "
     "it all the same (SIGSEGV)",
     Way::kOneDnn,
     [](const Bilinear& b) {
       return IsBF16(b, BilinearOp::kConvolution) && b.convolution.group > 1 &&
              PartOfResultMeetsPaddingAlone(b.convolution);
     }},
};

}  // namespace

absl::Span<const KnownBad> KnownBadSizes() { return kKnownBad; }

const KnownBad* FindKnownBad(const Bilinear& b, Way way) {
  for (const KnownBad& row : kKnownBad) {
    if (row.way == way && row.applies(b)) return &row;
  }
  return nullptr;
}

StatusOr<std::unique_ptr<Kernel>> MakeGuarded(const Bilinear& b, absl::Span<const Way> ways) {
  for (const Way way : ways) {
    if (trust_all) return MakeUnguarded(b, way);
    if (FindKnownBad(b, way) != nullptr) continue;
    const bool checked = b.type == DType::kBF16 || way == Way::kTiles;
    if (!checked || PassesCheck(b, way)) return MakeUnguarded(b, way);
  }
  return absl::InternalError(absl::StrCat("no kernel computes ", ToString(b),
                                          " correctly on this processor with oneDNN ", onednn::Version(),
                                          "; fix: use float32, or set ONEDNN_MAX_CPU_ISA=AVX2 in the environment"));
}

void TrustAllKernels() { trust_all = true; }

}  // namespace mslua
