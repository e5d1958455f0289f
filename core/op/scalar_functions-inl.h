// The scalar functions of formulas (core/op/formula.h), one row each:
//
//   MSLUA_SCALAR(Id, name, short name, arity, result, cost,
//                number, vector, device, ONNX)
//
// Who includes this file defines MSLUA_SCALAR; the file undefines it at its end. A new function is a row here: formulas
// can name it then, and every kernel, device and export computes it.
//
//   Id          ScalarOp::kId
//   name        the call in a formula, and the operator with the same meaning
//   short name  another call in a formula, or ""
//   arity       1, 2 or 3 operands
//   result      kTruth: 1 or 0. kExact: no more digits than the operands have. kRounded: a rounded number
//   cost        the work for one element, in copies of an element
//   number      the result for a, b, c of type T: float, double, int32_t or int64_t. F is T, for integers double
//   vector      the result for x, y, z: Highway's vectors of f32, d their tag (core/kernels/simd/tile_program.cc)
//   device      CUDA text, $0, $1, $2 the operands, of type C; or the names of CUDA's functions of float and of double
//   ONNX        nodes (core/onnx/formula.cc)
//
// Minimum and maximum hand a NaN on, as NumPy and PyTorch do. A division of integers truncates, by zero it gives 0; the
// remainder of a division by zero is the dividend. The least integer divided by -1 is itself.

// clang-format off
MSLUA_SCALAR(Add, "add", "", 2, kRounded, 1,
             a + b, hn::Add(x, y), ("$0 + $1"), binary("Add"))
MSLUA_SCALAR(Sub, "sub", "", 2, kRounded, 1,
             a - b, hn::Sub(x, y), ("$0 - $1"), binary("Sub"))
MSLUA_SCALAR(Mul, "mul", "", 2, kRounded, 1,
             a * b, hn::Mul(x, y), ("$0 * $1"), binary("Mul"))
MSLUA_SCALAR(Div, "div", "", 2, kRounded, 1,
             Quotient(a, b), hn::Div(x, y), ("Div($0, $1)"), binary("Div"))
MSLUA_SCALAR(Min, "minimum", "min", 2, kExact, 1,
             a != a || a < b ? a : b, hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Lt(x, y)), x, y),
             ("Min<C>($0, $1)"), binary("Min"))
MSLUA_SCALAR(Max, "maximum", "max", 2, kExact, 1,
             a != a || a > b ? a : b, hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Gt(x, y)), x, y),
             ("Max<C>($0, $1)"), binary("Max"))
MSLUA_SCALAR(Pow, "pow", "", 2, kRounded, 60,
             Power(a, b), Power(d, x, y), ("Pow($0, $1)"), binary("Pow"))
MSLUA_SCALAR(Equal, "equal", "eq", 2, kTruth, 1,
             a == b, Truth(d, hn::Eq(x, y)), ("(C)($0 == $1)"), compare("Equal"))
MSLUA_SCALAR(NotEqual, "not_equal", "", 2, kTruth, 1,
             a != b, Truth(d, Differs(x, y)), ("(C)($0 != $1)"), opposite(compare("Equal")))
MSLUA_SCALAR(Less, "less", "lt", 2, kTruth, 1,
             a < b, Truth(d, hn::Lt(x, y)), ("(C)($0 < $1)"), compare("Less"))
MSLUA_SCALAR(LessEqual, "less_equal", "le", 2, kTruth, 1,
             a <= b, Truth(d, hn::Le(x, y)), ("(C)($0 <= $1)"), compare("LessOrEqual"))
MSLUA_SCALAR(Greater, "greater", "gt", 2, kTruth, 1,
             a > b, Truth(d, hn::Gt(x, y)), ("(C)($0 > $1)"), compare("Greater"))
MSLUA_SCALAR(GreaterEqual, "greater_equal", "ge", 2, kTruth, 1,
             a >= b, Truth(d, hn::Ge(x, y)), ("(C)($0 >= $1)"), compare("GreaterOrEqual"))
MSLUA_SCALAR(And, "logical_and", "", 2, kTruth, 1,
             a != 0 && b != 0, Truth(d, hn::And(IsTrue(x), IsTrue(y))), ("(C)($0 != 0 && $1 != 0)"), logical("And"))
MSLUA_SCALAR(Or, "logical_or", "", 2, kTruth, 1,
             a != 0 || b != 0, Truth(d, hn::Or(IsTrue(x), IsTrue(y))), ("(C)($0 != 0 || $1 != 0)"), logical("Or"))
MSLUA_SCALAR(Neg, "neg", "", 1, kExact, 1,
             -a, hn::Neg(x), ("-$0"), unary("Neg"))
MSLUA_SCALAR(Abs, "abs", "", 1, kExact, 1,
             a < 0 ? -a : (a == 0 ? T{0} : a), hn::Abs(x), ("Abs($0)"), unary("Abs"))
MSLUA_SCALAR(Exp, "exp", "", 1, kRounded, 12,
             std::exp(F(a)), Exp(x), ("expf", "exp"), unary("Exp"))
MSLUA_SCALAR(Log, "log", "", 1, kRounded, 12,
             std::log(F(a)), Log(x), ("logf", "log"), unary("Log"))
MSLUA_SCALAR(Log1p, "log1p", "", 1, kRounded, 12,
             std::log1p(F(a)), Log1p(x), ("log1pf", "log1p"), Log1p())
MSLUA_SCALAR(Expm1, "expm1", "", 1, kRounded, 12,
             std::expm1(F(a)), Expm1(x), ("expm1f", "expm1"), Expm1())
MSLUA_SCALAR(Sqrt, "sqrt", "", 1, kRounded, 1,
             std::sqrt(F(a)), hn::Sqrt(x), ("sqrtf", "sqrt"), unary("Sqrt"))
MSLUA_SCALAR(Rsqrt, "rsqrt", "", 1, kRounded, 1,
             F{1} / std::sqrt(F(a)), hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)), ("RsqrtOf", "RsqrtOf"),
             Computed{c_.Op("Reciprocal", {unary("Sqrt").name})})
MSLUA_SCALAR(Tanh, "tanh", "", 1, kRounded, 12,
             std::tanh(F(a)), Tanh(x), ("tanhf", "tanh"), unary("Tanh"))
MSLUA_SCALAR(Sigmoid, "sigmoid", "", 1, kRounded, 12,
             F{1} / (F{1} + std::exp(-F(a))), Sigmoid(x), ("SigmoidOf", "SigmoidOf"), unary("Sigmoid"))
MSLUA_SCALAR(Erf, "erf", "", 1, kRounded, 12,
             std::erf(F(a)), Erf(x), ("erff", "erf"), unary("Erf"))
MSLUA_SCALAR(Sin, "sin", "", 1, kRounded, 12,
             std::sin(F(a)), Sin(x), ("sinf", "sin"), unary("Sin"))
MSLUA_SCALAR(Cos, "cos", "", 1, kRounded, 12,
             std::cos(F(a)), Cos(x), ("cosf", "cos"), unary("Cos"))
MSLUA_SCALAR(Asin, "asin", "", 1, kRounded, 12,
             std::asin(F(a)), hn::Asin(d, x), ("asinf", "asin"), unary("Asin"))
MSLUA_SCALAR(Acos, "acos", "", 1, kRounded, 12,
             std::acos(F(a)), hn::Acos(d, x), ("acosf", "acos"), unary("Acos"))
MSLUA_SCALAR(Atan, "atan", "", 1, kRounded, 12,
             std::atan(F(a)), hn::Atan(d, x), ("atanf", "atan"), unary("Atan"))
MSLUA_SCALAR(Atan2, "atan2", "", 2, kRounded, 16,
             std::atan2(F(a), F(b)), Atan2(x, y), ("Atan2($0, $1)"), Atan2())
MSLUA_SCALAR(Sinh, "sinh", "", 1, kRounded, 24,
             std::sinh(F(a)), Sinh(x), ("sinhf", "sinh"), unary("Sinh"))
MSLUA_SCALAR(Cosh, "cosh", "", 1, kRounded, 12,
             std::cosh(F(a)), Cosh(x), ("coshf", "cosh"), unary("Cosh"))
MSLUA_SCALAR(Asinh, "asinh", "", 1, kRounded, 24,
             std::asinh(F(a)), Asinh(x), ("asinhf", "asinh"), unary("Asinh"))
MSLUA_SCALAR(Acosh, "acosh", "", 1, kRounded, 24,
             std::acosh(F(a)), Acosh(x), ("acoshf", "acosh"), unary("Acosh"))
MSLUA_SCALAR(Atanh, "atanh", "", 1, kRounded, 12,
             std::atanh(F(a)), Atanh(x), ("atanhf", "atanh"), unary("Atanh"))
MSLUA_SCALAR(Lgamma, "lgamma", "", 1, kRounded, 60,
             LogGamma(F(a)), LogGamma(x), ("lgammaf", "lgamma"), None("lgamma"))
MSLUA_SCALAR(Polygamma, "polygamma", "", 2, kRounded, 250,
             Polygamma(F(a), F(b)), Polygamma(x, y), ("(C)Polygamma($0, $1)"), None("polygamma"))
MSLUA_SCALAR(ErfInv, "erfinv", "", 1, kRounded, 20,
             ErfInv(F(a)), ErfInv(x), ("(C)ErfInv($0)"), None("erfinv"))
MSLUA_SCALAR(TruncateDiv, "truncate_div", "", 2, kRounded, 4,
             TruncatedQuotient(a, b), TruncatedQuotient(x, y), ("TruncateDiv($0, $1)"), WholeQuotient(true))
MSLUA_SCALAR(FloorDiv, "floor_div", "", 2, kRounded, 4,
             FloorQuotient(a, b), FloorQuotient(x, y), ("FloorDiv($0, $1)"), WholeQuotient(false))
MSLUA_SCALAR(Fmod, "fmod", "", 2, kExact, 3,
             Remainder(a, b), Remainder(x, y), ("Fmod($0, $1)"), Remainder(true))
MSLUA_SCALAR(FloorMod, "floor_mod", "", 2, kRounded, 3,
             FloorRemainder(a, b), FloorRemainder(x, y), ("FloorMod($0, $1)"), Remainder(false))
MSLUA_SCALAR(Floor, "floor", "", 1, kExact, 1,
             std::floor(F(a)), hn::Floor(x), ("floorf", "floor"), IsFloat(type_) ? unary("Floor") : Operand(0))
MSLUA_SCALAR(Sign, "sign", "", 1, kExact, 1,
             a != a ? a : static_cast<T>((a > 0) - (a < 0)), Sign(d, x), ("Sign($0)"), unary("Sign"))
MSLUA_SCALAR(Not, "logical_not", "", 1, kTruth, 1,
             a == 0, Truth(d, hn::Eq(x, hn::Zero(d))), ("(C)($0 == 0)"), logical("Not"))
MSLUA_SCALAR(Select, "select", "", 3, kExact, 1,
             a != 0 ? b : c, hn::IfThenElse(IsTrue(x), y, z), ("$0 != 0 ? $1 : $2"), Choice())
// clang-format on
#undef MSLUA_SCALAR
