// Rows of a table, read and replaced by their numbers: what an update of a table of embeddings touches
// (core/passes/rows.cc).
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/op/device_text.h"
#include "core/ops/declare/indices.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 1 << 16;  // bytes that are worth a thread

int64_t RowBytes(const TensorType& table) {
  return NumElements(absl::MakeConstSpan(table.shape).subspan(1)) * SizeOf(table.dtype);
}

Status ReadRows(const OpCall& c) {
  const TensorType& table = c.inputs[0].type;
  const int64_t bytes = RowBytes(table);
  const char* const x = c.inputs[0].as<char>();
  char* const y = c.outputs[0].as<char>();
  ParallelFor(c.inputs[1].type.elements(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, bytes)),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t row = IndexAt(c.inputs[1], i);
                  if (row >= 0 && row < table.shape[0])
                    std::memcpy(y + i * bytes, x + row * bytes, static_cast<size_t>(bytes));
                  else
                    std::memset(y + i * bytes, 0, static_cast<size_t>(bytes));
                }
              });
  return absl::OkStatus();
}

// Each thread owns a range of the table's rows. From the last update to the first, which so counts.
Status UpdateRows(const OpCall& c) {
  const TensorType& table = c.inputs[0].type;
  const int64_t bytes = RowBytes(table), count = c.inputs[1].type.elements(), all = table.shape[0];
  char* const y = c.outputs[0].as<char>();
  const char* const updates = c.inputs[2].as<char>();
  if (c.outputs[0].data != c.inputs[0].data) std::memcpy(y, c.inputs[0].data, static_cast<size_t>(table.bytes()));
  const int64_t worth = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, bytes));  // updates a thread
  ParallelFor(all, std::max<int64_t>(1, all * worth / std::max<int64_t>(1, count)), [&](int64_t begin, int64_t end) {
    for (int64_t i = count - 1; i >= 0; --i) {
      const int64_t row = IndexAt(c.inputs[1], i);
      if (row >= begin && row < end) std::memcpy(y + row * bytes, updates + i * bytes, static_cast<size_t>(bytes));
    }
  });
  return absl::OkStatus();
}

std::string Sizes(const OpSpec& spec) {
  const TensorType& table = spec.inputs[0];
  return absl::StrCat(Constant("rows", table.shape[0]),
                      Constant("inner", NumElements(absl::MakeConstSpan(table.shape).subspan(1))),
                      Constant("count", spec.inputs[1].elements()), "  typedef ", DeviceType(table.dtype), " T;\n");
}

DeviceProgram ReadOnDevice(const OpSpec& spec) {
  return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat(Sizes(spec), R"cuda(
  const i64 row = Get(x1[i / inner]);
  y0[i] = row >= 0 && row < rows ? x0[row * inner + i % inner] : T{};
)cuda")));
}

DeviceProgram UpdateOnDevice(const OpSpec& spec) {
  DeviceProgram program;
  program.steps.push_back(EachElement(spec.outputs[0].elements(), "  if (y0 != x0) y0[i] = x0[i];"));
  program.steps.push_back(EachElement(spec.inputs[2].elements(), absl::StrCat(Sizes(spec), R"cuda(
  const i64 at = i / inner, row = Get(x1[at]);
  bool first = row >= 0 && row < rows;
  for (i64 k = 0; k < at && first; ++k) first = Get(x1[k]) != row;
  if (first) y0[row * inner + i % inner] = x2[i];
)cuda")));
  return program;
}

// " d1 d2", the dimensions of a row.
std::string RowDims(const TensorType& table) {
  std::string text;
  for (int64_t d = 1; d < table.rank(); ++d) absl::StrAppend(&text, " d", d);
  return text;
}

Status CheckTypes(const TensorType& table, const TensorType& rows) {
  if (table.rank() > 0 && rows.rank() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("x should have at least 1 dimension, and rows exactly 1");
}

OpDef ReadRowsOp() {
  OpDef op("read_rows");
  op.Doc("Rows of x [v, ..] by their numbers `rows` [n], from 0: [n, ..]. Zeros for a number outside [0, v).");
  op.Input("x").Input("rows", TypeClass::kIndex).AllTypes();
  op.Check([](const Attrs&, absl::Span<const TensorType> in) { return CheckTypes(in[0], in[1]); });
  op.Rule([](const Attrs&, absl::Span<const TensorType> in) {
    return absl::StrCat("!v", RowDims(in[0]), ", n -> n", RowDims(in[0]));
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const TensorType& x = c.g.TypeOf(c.x(0));
    const Value all = c.g.Op("iota", {}, {{"size", x.shape[0]}, {"dtype", DType::kI32}});
    return {c.g.Op("row_sums", {all, c.x(1), c.dy[0]}), Value()};
  });
  op.Reference(ReadRows).OnDevice(ReadOnDevice);
  op.AddSample({{{DType::kF32, {4, 5}}, {DType::kI32, {7}}}});
  op.AddSample({{{DType::kF32, {3}}, {DType::kI64, {6}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(update_rows) {
  OpDef op("update_rows");
  op.Doc(
      "x [v, ..] with `updates` [n, ..] in the place of its rows `rows` [n], from 0. Of equal numbers the first one "
      "counts; a number outside [0, v) changes nothing. Where x is not needed any more it is changed in place.");
  op.Input("x").Input("rows", TypeClass::kIndex).Input("updates").AllTypes();
  op.Check([](const Attrs&, absl::Span<const TensorType> in) { return CheckTypes(in[0], in[1]); });
  op.Rule([](const Attrs&, absl::Span<const TensorType> in) {
    const std::string dims = RowDims(in[0]);
    return absl::StrCat("!v", dims, ", !n, !n", dims, " -> !v", dims);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const Value first = c.g.Op("unique_rows", {c.x(1)}, {{"size", c.g.TypeOf(c.x(0)).shape[0]}});
    return {c.g.Op("update_rows", {c.dy[0], c.x(1), ZerosLike(c.g, c.x(2))}), Value(),
            c.g.Op("read_rows", {c.dy[0], first})};
  });
  op.Reference(UpdateRows).OnDevice(UpdateOnDevice).InPlace(0, 0);
  op.AddSample({{{DType::kF32, {4, 5}}, {DType::kI32, {3}}, {DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {3}}, {DType::kI64, {6}}, {DType::kF32, {6}}}});
  return {op, ReadRowsOp()};
}

}  // namespace mslua
