#include "core/kernels/window.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// The most that sizes, strides and dilations along an axis can be, so that a product of two fits 64 bits; and padding,
// which takes memory for every position of a window.
constexpr int64_t kMostAlongAxis = std::numeric_limits<int32_t>::max(), kMostPadding = 1 << 24;

Status Invalid(absl::string_view name, const std::vector<int64_t>& v, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", AttrText(v), ", expected ", expected));
}

}  // namespace

Image Image::Of(const TensorType& type, bool channels_last) {
  const Shape& s = type.shape;
  if (channels_last) return {s[0], s[3], s[1], s[2], true};
  return {s[0], s[1], s[2], s[3], false};
}

Shape Image::shape() const { return channels_last ? Shape{n, h, w, c} : Shape{n, c, h, w}; }

std::array<int64_t, 4> Image::strides() const {
  if (channels_last) return {h * w * c, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

std::array<int64_t, 2> OutputSize(const Window& window, int64_t h, int64_t w) {
  std::array<int64_t, 2> out;
  const std::array<int64_t, 2> in = {h, w};
  for (int a = 0; a < 2; ++a) {
    const int64_t span = (window.size[a] - 1) * window.dilation[a] + 1;
    const int64_t space = in[a] + window.before[a] + window.after[a] - span;
    out[a] = space < 0 ? 0 : space / window.stride[a] + 1;
  }
  return out;
}

bool ChannelsLast(const Attrs& attrs) { return attrs.Str("data_format") == "NHWC"; }

void DeclareWindow(OpDef& op, bool with_dilation) {
  op.Attr("stride", AttrKind::kInts, std::vector<int64_t>{1}, "one number or (height, width)");
  op.Choice("pad_mode", {"valid", "same", "pad"},
            "valid: no padding; same: ceil(input / stride) results; pad: as `padding` says");
  op.Attr("padding", AttrKind::kInts, std::vector<int64_t>{0},
          "one number, (height, width) or (top, bottom, left, right)");
  if (with_dilation) op.Attr("dilation", AttrKind::kInts, std::vector<int64_t>{1}, "one number or (height, width)");
  op.Choice("data_format", {"NCHW", "NHWC"}, "the order of x's dimensions");
}

StatusOr<std::array<int64_t, 2>> Pair(const Attrs& attrs, absl::string_view name) {
  const std::vector<int64_t>& v = attrs.Ints(name);
  if (v.empty() || v.size() > 2 || *std::min_element(v.begin(), v.end()) < 1 ||
      *std::max_element(v.begin(), v.end()) > kMostAlongAxis) {
    return Invalid(name, v, absl::StrCat("one or two positive numbers up to ", kMostAlongAxis));
  }
  return std::array<int64_t, 2>{v.front(), v.back()};
}

StatusOr<Window> ResolveWindow(const Attrs& attrs, std::array<int64_t, 2> size, int64_t h, int64_t w) {
  Window window;
  window.size = size;
  if (std::max(size[0], size[1]) > kMostAlongAxis)
    return absl::InvalidArgumentError(absl::StrCat("a window of ", size[0], " x ", size[1], " is too large"));
  ASSIGN_OR_RETURN(window.stride, Pair(attrs, "stride"));
  window.dilation = {1, 1};
  if (attrs.Has("dilation")) {
    ASSIGN_OR_RETURN(window.dilation, Pair(attrs, "dilation"));
    // One pixel has no dilation; kernels of libraries add it to the window's extent all the same.
    for (int a = 0; a < 2; ++a) window.dilation[a] = size[a] == 1 ? 1 : window.dilation[a];
  }
  const std::vector<int64_t>& padding = attrs.Ints("padding");
  const std::string& mode = attrs.Str("pad_mode");
  const bool none = std::all_of(padding.begin(), padding.end(), [](int64_t p) { return p == 0; });
  if (mode != "pad" && !none) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding is ", AttrText(padding), " but pad_mode is '", mode, "': say pad_mode = 'pad'"));
  }
  window.before = window.after = {0, 0};
  if (mode == "pad") {
    const bool right_count = padding.size() == 1 || padding.size() == 2 || padding.size() == 4;
    if (!right_count || *std::min_element(padding.begin(), padding.end()) < 0 ||
        *std::max_element(padding.begin(), padding.end()) > kMostPadding) {
      return Invalid("padding", padding,
                     absl::StrCat("one, two or four numbers that are not negative, up to ", kMostPadding));
    }
    if (padding.size() == 4) {
      window.before = {padding[0], padding[2]};
      window.after = {padding[1], padding[3]};
    } else {
      window.before = window.after = {padding.front(), padding.back()};
    }
  } else if (mode == "same") {
    const std::array<int64_t, 2> in = {h, w};
    for (int a = 0; a < 2; ++a) {
      const int64_t out = (in[a] + window.stride[a] - 1) / window.stride[a];
      const int64_t span = (window.size[a] - 1) * window.dilation[a] + 1;
      const int64_t total = std::max<int64_t>(0, (out - 1) * window.stride[a] + span - in[a]);
      window.before[a] = total / 2;
      window.after[a] = total - total / 2;
    }
  }
  const auto out = OutputSize(window, h, w);
  if (out[0] < 1 || out[1] < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a window of ", size[0], " x ", size[1], " does not fit into ", h,
                                                   " x ", w, " with this padding and dilation"));
  }
  return window;
}

}  // namespace mslua
