// Scalar formulas: an elementwise operator written once, as text, from which come its reference
// kernel, its tile program on the CPU, its CUDA text, and (for gradients) graph nodes.
//
//   "x * sigmoid(x)"            "select(lt(x, lo), lo, min(x, hi))"
//
// Grammar: + - * / and unary - with the usual precedence, parentheses, numbers, names, calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// The instructions: an input, a constant, and the functions of core/op/scalar_functions-inl.h. Each function is also
// the name of an operator, so that a formula can become graph nodes.
enum class ScalarOp : uint8_t {
  kInput,
  kConst,
#define MSLUA_SCALAR(id, ...) k##id,
#include "core/op/scalar_functions-inl.h"
};

inline constexpr int kNumScalarOps = 2  // kInput, kConst, the functions
#define MSLUA_SCALAR(...) +1
#include "core/op/scalar_functions-inl.h"
    ;

// What a function's results are: 1 or 0; numbers with no more digits than the operands have; rounded numbers.
enum class ScalarResult : uint8_t { kTruth, kExact, kRounded };

const char* Name(ScalarOp op);  // "add", "less_equal", ...: the operator's name and the formula's call
int Arity(ScalarOp op);         // 0 for kInput and kConst
int CostOf(ScalarOp op);        // the work for one element, in copies of an element; 0 for kConst
ScalarResult ResultOf(ScalarOp op);
// The inverse of Name. InvalidArgument: no function has that name.
StatusOr<ScalarOp> ParseScalarOp(absl::string_view name);

// One value computed: instruction `i` of a program defines value `i`.
struct ScalarInstr {
  ScalarOp op = ScalarOp::kConst;
  int32_t args[3] = {-1, -1, -1};  // earlier values; kInput: args[0] is the input's number
  double constant = 0;             // kConst
  friend bool operator==(const ScalarInstr& a, const ScalarInstr& b);
};

// Straight-line code over scalars. Immutable after parsing.
struct ScalarProgram {
  std::vector<ScalarInstr> code;
  std::vector<int32_t> results;  // values, one for each output
  int32_t num_inputs = 0;

  friend bool operator==(const ScalarProgram& a, const ScalarProgram& b) {
    return a.code == b.code && a.results == b.results && a.num_inputs == b.num_inputs;
  }
};

// One input, which is the result as well.
ScalarProgram CopyProgram();

// Names that a formula may use: inputs by position; constants by value (an operator's attributes).
struct FormulaNames {
  std::vector<std::string> inputs;
  std::vector<std::pair<std::string, double>> constants;
};

// Parses one expression for each output. Equal subexpressions become one instruction.
StatusOr<ScalarProgram> ParseFormula(const std::vector<std::string>& expressions, const FormulaNames& names);

// "i0; 0.5; mul(0,1) -> 2": the form in which a fused node carries its program in the IR.
std::string ToString(const ScalarProgram& program);
StatusOr<ScalarProgram> ParseScalarProgram(absl::string_view text);

// The value of each result for one element, in double. Unused inputs may be anything.
void EvaluateScalar(const ScalarProgram& program, const double* inputs, double* results);
// The same in T arithmetic (float, double, int32_t, int64_t), n elements at a time; input k of element
// e is inputs[k][e]. `workspace` holds code.size() * n elements.
template <class T>
void EvaluateTile(const ScalarProgram& program, int64_t n, const T* const* inputs, T* const* results, T* workspace);

}  // namespace mslua
