// What operators compute by scalar programs (core/op/formula.h): elementwise, and of rows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/device_form.h"
#include "core/op/formula.h"
#include "core/op/kernel.h"
#include "core/op/op_def.h"

namespace mslua {

// ---- Elementwise ---------------------------------------------------------------------------------------------------

// The type in which a program over such tensors is computed: f64 if any operand is f64, f32 if any is
// another float, else i64 if any is i64, else i32. bool and u8 count as integers.
DType ElementwiseComputeType(absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs);

// Inputs broadcast to the outputs' shape as NumPy does (equal rank, size 1 repeats); outputs share one shape.
// A bool output stores value != 0.
Status EvaluateElementwise(const ScalarProgram& program, absl::Span<const TensorView> inputs,
                           absl::Span<const TensorView> outputs);

// ---- Rows ----------------------------------------------------------------------------------------------------------
//
// An operator whose kernel is sums or maxima over rows, and arithmetic before and after them, says so in its file as a
// formula (core/ops/softmax.cc):
//
//   MSLUA_ROWS(softmax) {
//     RowFormula f;
//     f.shape = spec.inputs[0].shape;
//     f.axes = {spec.attrs.Int("axis")};
//     f.operands = {{"x"}};
//     f.statements = {"m = row_max(x)", "e = exp(x - m)", "s = row_sum(e)", "y = e / s"};
//     f.results = {{"y"}};
//     return FormOf(f, spec);
//   }
//
// Its reference kernel and its kernel on a device are made of that, and elementwise operators before and after it join
// it (core/passes/fuse_rows.cc).

// What an input of a row's scalar program is.
struct RowRead {
  enum Kind : uint8_t {
    kOperand,   // the element of operand `of`
    kIsColumn,  // 1 in the column that operand `of`, an integer a row, names, else 0
    kDiffers,   // whether operand `of`, an integer a row, is not `number`
    kSum,       // the sum of the program's value `of` over the row; kMax and kMin: the greatest and the least
    kMax,
    kMin,
  };
  Kind kind = kOperand;
  int32_t of = 0;
  int64_t number = 0;

  bool IsReduction() const { return kind >= kSum; }
  friend bool operator==(const RowRead& a, const RowRead& b) {
    return a.kind == b.kind && a.of == b.of && a.number == b.number;
  }
};

// The scalar program of one element, whose input i is reads[i].
struct RowProgram {
  ScalarProgram scalars;
  std::vector<RowRead> reads;
};

// "x0 is_column1 differs1(-100) max0 sum3": the form in which a node carries its reads in the IR.
std::string ToString(const std::vector<RowRead>& reads);
StatusOr<std::vector<RowRead>> ParseRowReads(absl::string_view text);

// A row program over tensors. A row lies along `axes`, which increase; its columns count in row-major order.
struct RowForm {
  RowProgram program;
  Shape shape;  // of the elements
  std::vector<int64_t> axes;
  std::vector<Shape> operands;  // of each operand a shape of its elements that broadcasts to `shape`, in its rank
  std::vector<bool> reduced;    // of each result: it has one element a row

  int64_t length() const;
  int64_t rows() const;
  bool IsAxis(int64_t d) const;
  Shape RowShape() const;  // `shape` with 1 along the axes
  // Whether operand i has one element a row.
  bool IsOfRows(size_t i) const;
};

// What the values of a form's program are.
struct RowValues {
  std::vector<bool> element;  // whether value v differs in a row
  std::vector<int> level;     // how many reductions one after the other value v needs
  static RowValues Of(const RowForm& form);
};

// What is wrong with a form for operands and results of these types.
Status CheckRowForm(const RowForm& form, const OpSpec& spec);

// What an operator writes of its rows.
struct RowFormula {
  struct Operand {
    std::string name;
    bool of_rows = false;  // it has an element a row: its shape is that of the elements without the axes
  };
  struct Result {
    std::string name;
    bool of_rows = false;
  };
  Shape shape;
  std::vector<int64_t> axes;
  std::vector<Operand> operands;
  std::vector<std::pair<std::string, double>> constants;
  // "name = EXPRESSION" of operands, constants and names before it (core/op/formula.h), where a whole expression may be
  // row_sum(E), row_max(E), row_min(E), is_column(OPERAND) or differs(OPERAND, INTEGER).
  std::vector<std::string> statements;
  std::vector<Result> results;
};
StatusOr<RowForm> FormOf(const RowFormula& formula, const OpSpec& spec);

using RowFormFn = StatusOr<RowForm> (*)(const OpSpec& spec);
// Called by MSLUA_ROWS.
bool RegisterRowForm(const char* op, RowFormFn form);
// Null where the operator has none.
RowFormFn FindRowForm(const std::string& op);
// The form of a call of an operator that has one.
StatusOr<RowForm> RowFormOf(const std::string& op, const OpCall& call);

// The kernels of a form as CUDA text. Threads that share a row hold its values in registers where these suffice, else
// they compute them again from the operands for each reduction. Sums have an order that follows from the form alone.
// Columns that operands name are checked first (DeviceFault); `differs` of the same operand is a name that is right
// too. Results may lie over operands of their type.
StatusOr<DeviceProgram> DeviceRows(const RowForm& form, const OpSpec& spec);

// Computes a form in plain C++, in the type of arithmetic of elementwise operators; sums are added in f64. Results may
// lie over operands of their type.
Status EvaluateRows(const RowForm& form, absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs);

// Makes the reference kernel and the device's kernel of an operator from its MSLUA_ROWS.
void ComputesRows(OpDef& op);

}  // namespace mslua

#define MSLUA_ROWS(name)                                                                                \
  static ::mslua::StatusOr<::mslua::RowForm> RowForm_##name(const ::mslua::OpSpec& spec);               \
  [[maybe_unused]] static const bool kRowForm_##name = ::mslua::RegisterRowForm(#name, RowForm_##name); \
  static ::mslua::StatusOr<::mslua::RowForm> RowForm_##name(const ::mslua::OpSpec& spec)
