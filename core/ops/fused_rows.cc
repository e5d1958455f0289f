#include <algorithm>

#include "absl/strings/str_split.h"
#include "core/op/formula.h"
#include "core/ops/declare/labelled_rows.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The form of a node, as far as its attributes and operands say it: its results are not compared with the types.
StatusOr<RowForm> PartsOf(const Attrs& attrs, absl::Span<const TensorType> inputs) {
  RowForm form;
  ASSIGN_OR_RETURN(form.program.scalars, ParseScalarProgram(attrs.Str("program")));
  ASSIGN_OR_RETURN(form.program.reads, ParseRowReads(attrs.Str("reads")));
  const auto& shape = attrs.Ints("shape");
  form.shape.assign(shape.begin(), shape.end());
  form.axes = attrs.Ints("axes");
  for (const TensorType& t : inputs) form.operands.push_back(t.shape);
  form.reduced.assign(form.program.scalars.results.size(), false);
  for (const int64_t o : attrs.Ints("of_rows")) {
    if (o < 0 || o >= static_cast<int64_t>(form.reduced.size()))
      return absl::InvalidArgumentError("of_rows names a result that the program has not");
    form.reduced[static_cast<size_t>(o)] = true;
  }
  return form;
}

StatusOr<std::vector<TensorType>> Infer(const Attrs& attrs, absl::Span<const TensorType> inputs) {
  ASSIGN_OR_RETURN(const RowForm form, PartsOf(attrs, inputs));
  const auto negative = [](int64_t d) { return d < 0; };
  if (HasTooManyElements(form.shape) || std::any_of(form.shape.begin(), form.shape.end(), negative))
    return absl::InvalidArgumentError("shape is none of a tensor");
  for (const int64_t axis : form.axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(form.shape.size()))
      return absl::InvalidArgumentError("axes are outside of the shape");
  }
  std::vector<TensorType> outputs;
  for (absl::string_view name : absl::StrSplit(attrs.Str("dtypes"), ',')) {
    const auto dtype = ParseDType(name);
    if (!dtype) return absl::InvalidArgumentError(absl::StrCat("unknown type ", name));
    const bool reduced = outputs.size() < form.reduced.size() && form.reduced[outputs.size()];
    outputs.push_back({*dtype, reduced ? form.RowShape() : form.shape});
  }
  RETURN_IF_ERROR(CheckRowForm(form, {attrs, inputs, outputs}));
  return outputs;
}

}  // namespace

MSLUA_ROWS(fused_rows) {
  ASSIGN_OR_RETURN(RowForm form, PartsOf(spec.attrs, spec.inputs));
  RETURN_IF_ERROR(CheckRowForm(form, spec));
  return form;
}

MSLUA_OPERATOR(fused_rows) {
  OpDef op("fused_rows");
  op.Doc(
      "A program over rows, such as a softmax, with elementwise operators before and after it: one pass over memory. "
      "Inputs broadcast to `shape`; made for a device by the pass fuse_rows.");
  op.Variadic("x", TypeClass::kAny);
  op.Required("program", AttrKind::kString, "a ScalarProgram of one element")
      .Required("reads", AttrKind::kString,
                "what its inputs are: x0, an operand's element; sum3, max3 or min3 of its value 3 over the row; "
                "is_column1, whether operand 1 names the column; differs1(-100), whether it is another number")
      .Required("shape", AttrKind::kInts, "of the elements")
      .Required("axes", AttrKind::kInts, "along which a row lies")
      .Required("dtypes", AttrKind::kString, "of the outputs: f32,bf16")
      .Required("of_rows", AttrKind::kInts, "the outputs, from 0, that have one element a row");
  op.Infer(Infer);
  op.Flops([](const Attrs& attrs, absl::Span<const TensorType> inputs, absl::Span<const TensorType>) {
    const auto form = PartsOf(attrs, inputs);
    if (!form.ok()) return 0.0;
    return static_cast<double>(form->program.scalars.code.size()) * static_cast<double>(NumElements(form->shape));
  });
  ComputesLabelledRows(op);
  op.elementwise = true;  // results over operands of their type are right (core/op/device_rows.cc)

  const auto sample = [&op](std::vector<TensorType> inputs, const char* program, const char* reads, Shape shape,
                            std::vector<int64_t> axes, const char* dtypes, std::vector<int64_t> of_rows,
                            double low = -2) {
    op.AddSample({std::move(inputs),
                  {{"program", std::string(program)},
                   {"reads", std::string(reads)},
                   {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                   {"axes", std::move(axes)},
                   {"dtypes", std::string(dtypes)},
                   {"of_rows", std::move(of_rows)}},
                  low,
                  2});
  };
  const DType f32 = DType::kF32;
  // softmax(a * b) in registers, by one thread, in packs, and in rows that registers do not hold; then along an axis
  // before others.
  for (const int64_t n : {7, 37, 768, 3000, 20001}) {
    sample({{f32, {3, n}}, {f32, {1, n}}}, "4: i0; i1; mul(0,1); i2; sub(2,3); exp(4); i3; div(5,6) -> 7,2,6",
           "x0 x1 max2 sum5", {3, n}, {1}, "f32,f32,f32", {2});
  }
  for (const int64_t n : {5, 70}) {
    sample({{f32, {2, n, 3}}, {f32, {2, 1, 3}}}, "4: i0; i1; mul(0,1); i2; sub(2,3); exp(4); i3; div(5,6) -> 7,3",
           "x0 x1 max2 sum5", {2, n, 3}, {1}, "f32,f32", {1});
  }
  // Sums of squares of rows, of columns and of all, with the squares beside them.
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{1}, {0}, {0, 1}, {0, 2}}) {
    sample({{f32, {40, 90, 2}}}, "3: i0; mul(0,0); i1; sqrt(2); i2 -> 3,1,4", "x0 sum1 max1", {40, 90, 2}, axes,
           "f32,f32,f32", {0, 2});
  }
  // A loss of labels, which are 1 to 4 beside operands above 0, and without a reduction what its gradient is.
  sample({{f32, {5, 6}}, {DType::kI32, {5, 1}}},
         "6: i0; 0.5; mul(0,1); i1; sub(2,3); exp(4); i2; log(6); i3; 0.0; select(8,2,9); i4; sub(7,11); add(12,3); "
         "i5; select(14,13,9) -> 15",
         "x0 max2 sum5 is_column1 sum10 differs1(2)", {5, 6}, {1}, "f32", {0}, 0.5);
  sample({{f32, {5, 6}}, {DType::kI32, {5, 1}}}, "3: i0; i1; i2; sub(0,1); mul(2,3) -> 4", "x0 is_column1 differs1(2)",
         {5, 6}, {1}, "f32", {}, 0.5);
  return {op};
}

}  // namespace mslua
