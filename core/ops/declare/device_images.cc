#include "core/ops/declare/device_images.h"

#include "absl/strings/str_cat.h"

namespace mslua {
std::string ImagePlace(const Image& image) {
  const std::string c = absl::StrCat(image.c), h = absl::StrCat(image.h), w = absl::StrCat(image.w);
  if (image.channels_last)
    return absl::StrCat("  const i64 c = i % ", c, ", w = i / ", c, " % ", w, ", h = i / ", image.c * image.w, " % ", h,
                        ", n = i / ", image.c * image.w * image.h, ";\n");
  return absl::StrCat("  const i64 w = i % ", w, ", h = i / ", w, " % ", h, ", c = i / ", image.h * image.w, " % ", c,
                      ", n = i / ", image.c * image.w * image.h, ";\n");
}

std::string ImageStrides(const std::string& name, const Image& image) {
  const auto s = image.strides();
  return absl::StrCat("  constexpr i64 ", name, "_n = ", s[0], ", ", name, "_c = ", s[1], ", ", name, "_h = ", s[2],
                      ", ", name, "_w = ", s[3], ";\n");
}

std::string WindowText(const Window& v, const Image& x) {
  std::string text;
  for (int a = 0; a < 2; ++a) {
    const char* const d = a == 0 ? "h" : "w";
    absl::StrAppend(&text, "  constexpr i64 size_", d, " = ", v.size[a], ", stride_", d, " = ", v.stride[a],
                    ", dilation_", d, " = ", v.dilation[a], ", before_", d, " = ", v.before[a], ";\n");
  }
  absl::StrAppend(&text, "  constexpr i64 height = ", x.h, ", width = ", x.w, ";\n");
  return text;
}

}  // namespace mslua
