#include "core/ops/declare/averages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/op/device_text.h"
#include "core/ops/declare/device_images.h"

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

DeviceProgram OnDevice(const AveragePooling& p, DType t) {
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

}  // namespace

void DeclareAverages(OpDef& op, const AverageMap& map) {
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) -> std::string {
    return ChannelsLast(a) ? "n !h !w c -> n !p !q c" : "n c !h !w -> n c !p !q";
  });
  op.Infer([map](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const AveragePooling p, map(a, in[0]));
    return std::vector<TensorType>{{in[0].dtype, p.result().shape()}};
  });
  op.Reference([map](const OpCall& c) {
    ASSIGN_OR_RETURN(const AveragePooling p, map(c.attrs, c.inputs[0].type));
    ReferenceAveragePool(p, c.inputs[0].type.dtype, c.inputs[0].data, c.outputs[0].data);
    return absl::OkStatus();
  });
  op.OnDevice([map](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const AveragePooling p, map(s.attrs, s.inputs[0]));
    return OnDevice(p, s.inputs[0].dtype);
  });
  op.AnyLayout().Fast(HighwayAveragePool(map));
}

StatusOr<AveragePooling> AveragesBySize(const Attrs& attrs, const TensorType& x, absl::string_view size,
                                        const std::function<AverageAxis(int64_t size, int64_t results)>& axis) {
  if (x.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions");
  ASSIGN_OR_RETURN(const auto other, Pair(attrs, size));
  const Image image = Image::Of(x, ChannelsLast(attrs));
  RETURN_IF_ERROR(CheckAverages({image.h, image.w, other[0], other[1]}));
  if (image.pixels() == 0) return absl::InvalidArgumentError("images without pixels have no averages");
  if (size == "input_size") {
    return AveragePooling{image.n, image.c, image.channels_last, axis(other[0], image.h), axis(other[1], image.w)}
        .Transposed();
  }
  return AveragePooling{image.n, image.c, image.channels_last, axis(image.h, other[0]), axis(image.w, other[1])};
}

GradFn GradBySize(std::string back, std::string size, std::vector<std::string> kept) {
  return [back, size, kept](GradContext& c) {
    const Image x = Image::Of(c.g.TypeOf(c.x(0)), ChannelsLast(c.attrs));
    Attrs attrs = {{size, std::vector<int64_t>{x.h, x.w}}};
    for (const std::string& name : kept) attrs.Set(name, *c.attrs.Find(name));
    return std::vector<Value>{c.g.Op(back, {c.dy[0]}, attrs)};
  };
}

}  // namespace mslua
