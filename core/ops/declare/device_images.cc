#include "core/ops/declare/device_images.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {
namespace {

// A table of the kernel: i64 or f64.
std::string Table(const std::string& name, const std::vector<int64_t>& values) {
  return absl::StrCat("  static const __constant__ i64 ", name, "[] = {", absl::StrJoin(values, ", "), "};\n");
}
std::string Table(const std::string& name, const std::vector<double>& values) {
  return absl::StrCat("  static const __constant__ double ", name, "[] = {",
                      absl::StrJoin(values, ", ", [](std::string* out, double v) { *out += NumberText(v); }), "};\n");
}

std::string AxisTables(const std::string& axis, const AverageAxis& a) {
  std::string weight = "source_" + axis + "[s]";
  std::string tables = absl::StrCat(Table("begin_" + axis, a.begin), Table("end_" + axis, a.end),
                                    Table("scale_" + axis, a.result_scale), Table("source_" + axis, a.source_scale));
  if (!a.result_at.empty()) {
    absl::StrAppend(&tables, Table("result_at_" + axis, a.result_at), Table("source_at_" + axis, a.source_at));
    const std::string distance = absl::StrCat("result_at_", axis, "[i] - source_at_", axis, "[s]");
    absl::StrAppend(&weight, " * (1 - (", distance, " < 0 ? -(", distance, ") : ", distance, "))");
  }
  return absl::StrCat(tables, "  const auto weight_", axis, " = [&](i64 i, i64 s) { return ", weight, "; };\n");
}

}  // namespace

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

DeviceProgram AveragePoolOnDevice(const AveragePooling& p, DType t) {
  return OneStep(EachElement(
      p.result().elements(),
      absl::StrCat("  typedef ", DeviceComputeType(t), " C;\n", AxisTables("h", p.rows), AxisTables("w", p.columns),
                   ImagePlace(p.result()), ImageStrides("x", p.source()), R"cuda(
  C sum = 0;
  for (i64 r = begin_h[h]; r < end_h[h]; ++r) {
    for (i64 s = begin_w[w]; s < end_w[w]; ++s)
      sum += (C)(weight_h(h, r) * weight_w(w, s)) * (C)Get(x0[n * x_n + c * x_c + r * x_h + s * x_w]);
  }
  Set(y0[i], sum * (C)(scale_h[h] * scale_w[w]));
)cuda")));
}

}  // namespace mslua
