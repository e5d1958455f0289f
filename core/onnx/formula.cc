// Operators with a formula: a node of ONNX for each instruction.
#include "core/op/formula.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "core/onnx/lowering.h"

namespace mslua::onnx {
namespace {

// A value of the program: a number in the type of computation, or a truth value.
struct Computed {
  std::string name;
  bool truth = false;
};

class FormulaLowering {
 public:
  FormulaLowering(Lowering& c, const ScalarProgram& program) : c_(c), program_(program), type_(TypeOfComputation(c)) {}

  void Run() {
    for (const ScalarInstr& instr : program_.code) values_.push_back(Compute(instr));
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const Computed& y = values_[static_cast<size_t>(program_.results[i])];
      const DType type = c_.TypeOut(i).dtype;
      std::string name = type == DType::kBool ? Truth(y) : Number(y);
      if (type != DType::kBool && type != type_) name = c_.Cast(name, type);
      c_.Result(name, i);
    }
  }

 private:
  // As ElementwiseComputeType says.
  static DType TypeOfComputation(const Lowering& c) {
    bool f32 = false, f64 = false, i64 = false;
    const auto see = [&](DType t) {
      f64 = f64 || t == DType::kF64;
      f32 = f32 || IsFloat(t);
      i64 = i64 || t == DType::kI64;
    };
    for (size_t i = 0; i < c.inputs(); ++i) see(c.TypeIn(i).dtype);
    for (size_t i = 0; i < c.outputs(); ++i) see(c.TypeOut(i).dtype);
    return f64 ? DType::kF64 : f32 ? DType::kF32 : i64 ? DType::kI64 : DType::kI32;
  }

  std::string Constant(double value) { return c_.Number(value, type_); }
  std::string Number(const Computed& v) { return v.truth ? c_.Cast(v.name, type_) : v.name; }
  std::string Truth(const Computed& v) { return v.truth ? v.name : c_.Cast(v.name, DType::kBool); }

  Computed Compute(const ScalarInstr& instr) {
    instr_ = &instr;
    const auto unary = [&](const char* op) { return Computed{c_.Op(op, {Number(0)})}; };
    const auto binary = [&](const char* op) { return Computed{c_.Op(op, {Number(0), Number(1)})}; };
    const auto compare = [&](const char* op) { return Computed{c_.Op(op, {Number(0), Number(1)}), true}; };
    const auto opposite = [&](const Computed& truth) { return Computed{c_.Op("Not", {truth.name}), true}; };
    const auto logical = [&](const char* op) { return Computed{c_.Op(op, Truths()), true}; };
    switch (instr.op) {
      case ScalarOp::kInput: {
        const size_t i = static_cast<size_t>(instr.args[0]);
        const DType from = c_.TypeIn(i).dtype;
        if (from == DType::kBool) return {c_.In(i), true};
        return {from == type_ ? c_.In(i) : c_.Cast(c_.In(i), type_)};
      }
      case ScalarOp::kConst:
        return {Constant(instr.constant)};
#define MSLUA_SCALAR(id, name, short_name, arity, result, cost, number, vector, device, ...) \
  case ScalarOp::k##id:                                                                      \
    return __VA_ARGS__;
#include "core/op/scalar_functions-inl.h"
    }
    return {};
  }

  // The operands of the instruction.
  const Computed& Arg(int k) const { return values_[static_cast<size_t>(instr_->args[k])]; }
  std::string Number(int k) { return Number(Arg(k)); }
  Computed Operand(int k) { return {Number(k)}; }
  std::vector<std::string> Truths() {
    std::vector<std::string> truths;
    for (int k = 0; k < Arity(instr_->op); ++k) truths.push_back(Truth(Arg(k)));
    return truths;
  }

  Computed Choice() { return {c_.Op("Where", {Truth(Arg(0)), Number(1), Number(2)})}; }

  // log(u) * x / (u - 1) with u = 1 + x is exact where 1 + x is rounded (Kahan); x itself where u is 1 or infinite.
  Computed Log1p() {
    const std::string x = Number(0), one = Constant(1), u = c_.Op("Add", {x, one});
    const std::string plain =
        c_.Op("Or", {c_.Op("Equal", {u, one}), c_.Op("Equal", {u, Constant(std::numeric_limits<double>::infinity())})});
    const std::string scaled = c_.Op("Mul", {c_.Op("Log", {u}), c_.Op("Div", {x, c_.Op("Sub", {u, one})})});
    return {c_.Op("Where", {plain, x, scaled})};
  }

  // 2 exp(x / 2) sinh(x / 2), without the difference of nearly equal numbers; below -40 it is -1 in all types.
  Computed Expm1() {
    const std::string half = c_.Op("Mul", {c_.Op("Max", {Number(0), Constant(-40)}), Constant(0.5)});
    const std::string product = c_.Op("Mul", {c_.Op("Exp", {half}), c_.Op("Sinh", {half})});
    return {c_.Op("Mul", {product, Constant(2)})};
  }

  Computed None(const char* function) {
    c_.Fail(absl::StrCat(function, " has no ONNX form"));
    return {Constant(0)};
  }

  // The angle of y / x, and half a turn more on the left. Of two infinities the quotient is 1 or -1.
  Computed Atan2() {
    const std::string y = Number(0), x = Number(1), zero = Constant(0);
    const std::string infinite = c_.Op("And", {c_.Op("IsInf", {y}), c_.Op("IsInf", {x})});
    const std::string signs = c_.Op("Mul", {c_.Op("Sign", {y}), c_.Op("Sign", {x})});
    const std::string ratio = c_.Op("Where", {infinite, signs, c_.Op("Div", {y, x})});
    const std::string angle = c_.Op("Atan", {c_.Op("Where", {c_.Op("Equal", {y, zero}), zero, ratio})});
    constexpr double kPi = 3.141592653589793;
    const std::string turn = c_.Op("Where", {c_.Op("Less", {y, zero}), Constant(-kPi), Constant(kPi)});
    return {c_.Op("Where", {c_.Op("Less", {x, zero}), c_.Op("Add", {angle, turn}), angle})};
  }

  // Whether a quotient rounded down is one less than that rounded toward 0, which leaves r.
  std::string RoundsDown(const std::string& r, const std::string& b) {
    const std::string zero = Constant(0);
    const std::string differ = c_.Op("Xor", {c_.Op("Less", {r, zero}), c_.Op("Less", {b, zero})});
    return c_.Op("And", {c_.Op("Not", {c_.Op("Equal", {r, zero})}), differ});
  }

  // Runtimes need not bear a division of integers by zero: they divide by 1 there.
  Computed Remainder(bool truncated) {
    const std::string a = Number(0), b = Number(1);
    const NamedAttrs of_dividend = {{"fmod", int64_t{1}}};
    if (!IsFloat(type_)) {
      const std::string none = c_.Op("Equal", {b, Constant(0)}), divisor = c_.Op("Where", {none, Constant(1), b});
      const NamedAttrs sign = {{"fmod", int64_t{truncated ? 1 : 0}}};
      return {c_.Op("Where", {none, a, c_.Op("Mod", {a, divisor}, sign)})};
    }
    const std::string r = c_.Op("Mod", {a, b}, of_dividend);
    return {truncated ? r : c_.Op("Where", {RoundsDown(r, b), c_.Op("Add", {r, b}), r})};
  }
  Computed WholeQuotient(bool truncated) {
    const std::string a = Number(0), b = Number(1), zero = Constant(0), none = c_.Op("Equal", {b, zero});
    const NamedAttrs of_dividend = {{"fmod", int64_t{1}}};
    const bool whole = !IsFloat(type_);
    const std::string divisor = whole ? c_.Op("Where", {none, Constant(1), b}) : b;
    const std::string q = c_.Op("Div", {a, divisor}), r = c_.Op("Mod", {a, divisor}, of_dividend);
    std::string y = whole ? q : c_.Op("Round", {c_.Op("Div", {c_.Op("Sub", {a, r}), b})});
    if (!truncated) {
      y = c_.Op("Sub", {y, c_.Cast(RoundsDown(r, divisor), type_)});
      return {c_.Op("Where", {none, whole ? zero : q, y})};
    }
    if (whole) return {c_.Op("Where", {none, zero, y})};
    const std::string plain = c_.Op("Mul", {c_.Op("Sign", {q}), c_.Op("Floor", {c_.Op("Abs", {q})})});
    return {c_.Op("Where", {c_.Op("IsNaN", {r}), plain, y})};
  }

  Lowering& c_;
  const ScalarProgram& program_;
  const DType type_;
  const ScalarInstr* instr_ = nullptr;  // that is lowered now
  std::vector<Computed> values_;
};

}  // namespace

void LowerFormula(Lowering& c) {
  const auto program = FormulaProgram(c.op(), c.attrs());
  if (!program.ok()) return c.Fail(std::string(program.status().message()));
  FormulaLowering(c, *program).Run();
}

}  // namespace mslua::onnx
