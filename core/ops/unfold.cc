#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/window.h"
#include "core/ops/declare/device_images.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// Images, their patches [n, p, q, c * kh * kw], and how the window lies.
struct Unfolding {
  Image x;
  Window window;
  int64_t p = 0, q = 0;

  int64_t taps() const { return window.size[0] * window.size[1]; }
  int64_t columns() const { return x.c * taps(); }
  Shape patches() const { return {x.n, p, q, columns()}; }
};

StatusOr<Unfolding> Resolve(const Attrs& attrs, const Image& x) {
  Unfolding u;
  u.x = x;
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "kernel_size"));
  ASSIGN_OR_RETURN(u.window, ResolveWindow(attrs, size, x.h, x.w));
  const auto out = OutputSize(u.window, x.h, x.w);
  u.p = out[0];
  u.q = out[1];
  if (HasTooManyElements({x.c, size[0], size[1]}))
    return absl::InvalidArgumentError(absl::StrCat("a window of ", size[0], " x ", size[1], " is too large"));
  return u;
}

StatusOr<Unfolding> OfImages(const Attrs& attrs, const TensorType& x) {
  if (x.rank() != 4) return absl::InvalidArgumentError("the images need 4 dimensions");
  return Resolve(attrs, Image::Of(x, ChannelsLast(attrs)));
}

// The unfolding whose patches `d` has the type of.
StatusOr<Unfolding> OfPatches(const Attrs& attrs, const TensorType& d) {
  ASSIGN_OR_RETURN(const auto input, Pair(attrs, "input_size"));
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "kernel_size"));
  const int64_t taps = size[0] * size[1];
  if (d.rank() != 4 || d.shape[3] % taps != 0)
    return absl::InvalidArgumentError(absl::StrCat("expected patches [n, p, q, c * ", taps, "]"));
  ASSIGN_OR_RETURN(const Unfolding u,
                   Resolve(attrs, {d.shape[0], d.shape[3] / taps, input[0], input[1], ChannelsLast(attrs)}));
  if (u.patches() != d.shape) return absl::InvalidArgumentError(absl::StrCat("expected ", ToString(u.patches())));
  return u;
}

// Patches of windows [begin, end) of all images, one after another.
template <class T>
void UnfoldRows(const Unfolding& u, const T* x, int64_t begin, int64_t end, T* y) {
  const auto at = u.x.strides();
  const int64_t taps = u.taps();
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = r / (u.p * u.q), p = r / u.q % u.p, q = r % u.q;
    T* to = y + r * u.columns();
    std::fill_n(to, u.columns(), T{});
    ForEachTap(u.window, u.x.h, u.x.w, p, q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
      const int64_t tap = i * u.window.size[1] + j;
      const T* from = x + n * at[0] + row * at[2] + column * at[3];
      if (taps == 1 && at[1] == 1)
        std::copy_n(from, u.x.c, to);
      else
        for (int64_t c = 0; c < u.x.c; ++c) to[c * taps + tap] = from[c * at[1]];
    });
  }
}

// The sums of image n's patches: C is what they are added up in, strides of `sums` are those of the image.
template <class T, class C>
void FoldImage(const Unfolding& u, const T* d, int64_t n, C* sums) {
  const auto at = u.x.strides();
  const int64_t taps = u.taps();
  std::fill_n(sums, u.x.pixels() * u.x.c, C{});
  for (int64_t r = 0; r < u.p * u.q; ++r) {
    const T* from = d + (n * u.p * u.q + r) * u.columns();
    ForEachTap(u.window, u.x.h, u.x.w, r / u.q, r % u.q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
      const int64_t tap = i * u.window.size[1] + j;
      C* to = sums + row * at[2] + column * at[3];
      for (int64_t c = 0; c < u.x.c; ++c) to[c * at[1]] += static_cast<C>(from[c * taps + tap]);
    });
  }
}

// The same for patches of one pixel with all its channels in a row: nothing is added up.
template <class T>
void PlaceImage(const Unfolding& u, const T* d, int64_t n, T* x) {
  const auto at = u.x.strides();
  std::fill_n(x, u.x.pixels() * u.x.c, T{});
  for (int64_t r = 0; r < u.p * u.q; ++r) {
    const T* from = d + (n * u.p * u.q + r) * u.columns();
    ForEachTap(u.window, u.x.h, u.x.w, r / u.q, r % u.q, [&](int64_t row, int64_t column, int64_t, int64_t) {
      std::copy_n(from, u.x.c, x + row * at[2] + column * at[3]);
    });
  }
}

template <class T>
void Fold(const Unfolding& u, const T* d, T* x, ComputeType<T>* sums) {
  const int64_t image = u.x.pixels() * u.x.c;
  for (int64_t n = 0; n < u.x.n; ++n) {
    FoldImage(u, d, n, sums);
    for (int64_t i = 0; i < image; ++i) x[n * image + i] = static_cast<T>(sums[i]);
  }
}

class UnfoldKernel : public Kernel {
 public:
  UnfoldKernel(const Unfolding& u, DType t) : u_(u), dtype_(t) {}
  Status Run(const Buffers& b) override {
    ParallelFor(u_.x.n * u_.p * u_.q, kGrain / u_.columns() + 1, [&](int64_t begin, int64_t end) {
      if (SizeOf(dtype_) == 4)
        UnfoldRows(u_, static_cast<const uint32_t*>(b.inputs[0]), begin, end, static_cast<uint32_t*>(b.outputs[0]));
      else
        UnfoldRows(u_, static_cast<const uint16_t*>(b.inputs[0]), begin, end, static_cast<uint16_t*>(b.outputs[0]));
    });
    return absl::OkStatus();
  }

 private:
  const Unfolding u_;
  const DType dtype_;
};

class FoldKernel : public Kernel {
 public:
  FoldKernel(const Unfolding& u, DType t)
      : u_(u),
        dtype_(t),
        slots_(std::min<int64_t>(ComputeThreads(), u.x.n)),
        image_(u.x.pixels() * u.x.c),
        single_(u.taps() == 1 && u.x.strides()[1] == 1) {}
  int64_t scratch_bytes() const override {
    return single_ || dtype_ == DType::kF32 ? 0 : slots_ * image_ * static_cast<int64_t>(sizeof(float));
  }
  Status Run(const Buffers& b) override {
    ParallelFor(slots_, u_.x.n * u_.p * u_.q * u_.columns() < kGrain ? slots_ : 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = u_.x.n * begin / slots_; n < u_.x.n * end / slots_; ++n) {
        if (single_ && SizeOf(dtype_) == 4)
          Place<uint32_t>(b, n);
        else if (single_)
          Place<uint16_t>(b, n);
        else if (dtype_ == DType::kF32)
          FoldImage(u_, static_cast<const float*>(b.inputs[0]), n, static_cast<float*>(b.outputs[0]) + n * image_);
        else
          FoldTo16(b, n, static_cast<float*>(b.scratch) + begin * image_);
      }
    });
    return absl::OkStatus();
  }

 private:
  template <class T>
  void Place(const Buffers& b, int64_t n) const {
    PlaceImage(u_, static_cast<const T*>(b.inputs[0]), n, static_cast<T*>(b.outputs[0]) + n * image_);
  }
  void FoldTo16(const Buffers& b, int64_t n, float* sums) const {
    FoldImage(u_, static_cast<const BF16*>(b.inputs[0]), n, sums);
    BF16* to = static_cast<BF16*>(b.outputs[0]) + n * image_;
    for (int64_t i = 0; i < image_; ++i) to[i] = static_cast<BF16>(sums[i]);
  }

  const Unfolding u_;
  const DType dtype_;
  const int64_t slots_, image_;
  const bool single_;  // patches of one pixel
};

bool IsFast(const OpSpec& s) {
  return (s.inputs[0].dtype == DType::kF32 || s.inputs[0].dtype == DType::kBF16) && s.inputs[0].elements() > 0 &&
         s.outputs[0].elements() > 0;
}

std::string UnfoldingText(const Unfolding& u) {
  return absl::StrCat(WindowText(u.window, u.x), ImageStrides("x", u.x), Constant("rows", u.p),
                      Constant("columns", u.q), Constant("channels", u.x.c));
}

DeviceProgram UnfoldOnDevice(const Unfolding& u) {
  return OneStep(EachElement(NumElements(u.patches()), absl::StrCat(UnfoldingText(u), R"cuda(
  const i64 b = i % size_w, a = i / size_w % size_h, c = i / (size_w * size_h) % channels;
  const i64 r = i / (size_w * size_h * channels), q = r % columns, p = r / columns % rows, n = r / (columns * rows);
  const i64 h = p * stride_h - before_h + a * dilation_h, w = q * stride_w - before_w + b * dilation_w;
  if (h >= 0 && h < height && w >= 0 && w < width)
    y0[i] = x0[n * x_n + c * x_c + h * x_h + w * x_w];
  else
    Set(y0[i], 0);
)cuda")));
}

DeviceProgram FoldOnDevice(const Unfolding& u, DType t) {
  return OneStep(EachElement(u.x.elements(), absl::StrCat("  typedef ", DeviceComputeType(t), " C;\n", UnfoldingText(u),
                                                          ImagePlace(u.x), R"cuda(
  C sum = 0;
  for (i64 a = 0; a < size_h; ++a) {
    const i64 r = h + before_h - a * dilation_h, p = r / stride_h;
    if (r < 0 || r % stride_h != 0 || p >= rows) continue;
    for (i64 b = 0; b < size_w; ++b) {
      const i64 s = w + before_w - b * dilation_w, q = s / stride_w;
      if (s < 0 || s % stride_w != 0 || q >= columns) continue;
      sum += (C)Get(x0[((n * rows + p) * columns + q) * channels * size_h * size_w + (c * size_h + a) * size_w + b]);
    }
  }
  Set(y0[i], sum);
)cuda")));
}

void Declare(OpDef& op) {
  DeclareWindow(op, true);
  op.Required("kernel_size", AttrKind::kInts, "one number or (height, width)");
}

std::string ImageDims(const Attrs& attrs) { return ChannelsLast(attrs) ? "n !h !w c" : "n c !h !w"; }

OpDef UnfoldOp() {
  OpDef op("unfold");
  op.Doc(
      "The patch of images x [n, c, h, w] (with data_format 'NHWC' [n, h, w, c]) under the window at each place, zeros "
      "outside of the image: [n, p, q, c * kh * kw]. A convolution is the product of its patches with its weight.");
  op.Input("x");
  Declare(op);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Unfolding u, OfImages(a, in[0]));
    return std::vector<TensorType>{{in[0].dtype, u.patches()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) { return ImageDims(a) + " -> n !p !q (c !k)"; });
  op.Grad([](GradContext& c) {
    const Image x = Image::Of(c.g.TypeOf(c.x(0)), ChannelsLast(c.attrs));
    Attrs attrs = c.attrs;
    attrs.Set("input_size", std::vector<int64_t>{x.h, x.w});
    return std::vector<Value>{c.g.Op("fold", {c.dy[0]}, attrs)};
  });
  op.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const Unfolding u, OfImages(call.attrs, call.inputs[0].type));
    DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      UnfoldRows(u, call.inputs[0].as<T>(), 0, u.x.n * u.p * u.q, call.outputs[0].as<T>());
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const Unfolding u, OfImages(s.attrs, s.inputs[0]));
    return UnfoldOnDevice(u);
  });
  op.Fast({"copy", IsFast, [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
             ASSIGN_OR_RETURN(const Unfolding u, OfImages(s.attrs, s.inputs[0]));
             return std::make_unique<UnfoldKernel>(u, s.inputs[0].dtype);
           }});
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {2, 3, 5, 4}}},
                {{"kernel_size", Ints{3, 2}}, {"stride", Ints{2, 1}}, {"pad_mode", "pad"}, {"padding", Ints{1}}}});
  op.AddSample({{{DType::kF32, {3, 5, 4, 6}}},
                {{"kernel_size", Ints{3}}, {"pad_mode", "same"}, {"dilation", Ints{2}}, {"data_format", "NHWC"}}});
  op.AddSample(
      {{{DType::kF32, {2, 5, 4, 3}}}, {{"kernel_size", Ints{1}}, {"stride", Ints{2}}, {"data_format", "NHWC"}}});
  return op;
}

OpDef FoldOp() {
  OpDef op("fold");
  op.Doc("The gradient of unfold's images: every patch of d [n, p, q, c * kh * kw] is added where it came from.");
  op.Input("d").Outputs({"x"});
  Declare(op);
  op.Required("input_size", AttrKind::kInts, "(height, width) of the result");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Unfolding u, OfPatches(a, in[0]));
    return std::vector<TensorType>{{in[0].dtype, u.x.shape()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) { return "n !p !q (c !k) -> " + ImageDims(a); });
  op.Grad([](GradContext& c) {
    Attrs attrs;
    for (const char* name : {"stride", "pad_mode", "padding", "dilation", "data_format", "kernel_size"})
      attrs.Set(name, *c.attrs.Find(name));
    return std::vector<Value>{c.g.Op("unfold", {c.dy[0]}, attrs)};
  });
  op.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const Unfolding u, OfPatches(call.attrs, call.inputs[0].type));
    DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<ComputeType<T>> sums(u.x.pixels() * u.x.c);
      Fold(u, call.inputs[0].as<T>(), call.outputs[0].as<T>(), sums.data());
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const Unfolding u, OfPatches(s.attrs, s.inputs[0]));
    return FoldOnDevice(u, s.inputs[0].dtype);
  });
  op.Fast({"copy", IsFast, [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
             ASSIGN_OR_RETURN(const Unfolding u, OfPatches(s.attrs, s.inputs[0]));
             return std::make_unique<FoldKernel>(u, s.inputs[0].dtype);
           }});
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {2, 3, 5, 3 * 6}}},
                {{"kernel_size", Ints{3, 2}},
                 {"input_size", Ints{5, 4}},
                 {"stride", Ints{2, 1}},
                 {"pad_mode", "pad"},
                 {"padding", Ints{1}}}});
  op.AddSample({{{DType::kF32, {3, 5, 4, 6 * 9}}},
                {{"kernel_size", Ints{3}}, {"input_size", Ints{5, 4}}, {"pad_mode", "same"}, {"data_format", "NHWC"}}});
  op.AddSample({{{DType::kF32, {2, 3, 2, 6}}},
                {{"kernel_size", Ints{1}}, {"input_size", Ints{5, 4}}, {"stride", Ints{2}}, {"data_format", "NHWC"}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(unfold) { return {UnfoldOp(), FoldOp()}; }

}  // namespace mslua
