// The values of scalar programs, in the arithmetic of a type: reference kernels, and elementwise operators of types
// that core/kernels/simd/tile_program.h does not have.
//
// Loops over elements become vectors; on every processor a product and a sum are rounded twice. Before the headers:
// what they define is inlined only where it is compiled in the same way.
#if !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math", "no-math-errno")
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/target_clones.h"
#include "core/base/wrapping.h"
#include "core/op/formula.h"
#include "core/op/special_functions.h"

namespace mslua {
namespace {

// a / b. Of integers truncated, by zero 0, and the least one by -1 itself, as all results modulo their range.
template <class T>
T Quotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else {
    if (b == -1) return Minus(T{0}, a);
    return b == 0 ? T{0} : static_cast<T>(a / b);
  }
}

// a - q b for the quotient q rounded toward 0: of the sign of a. Of integers a where b is 0.
template <class T>
T Remainder(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    return b == 0 ? a : b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
  }
}

// Whether a quotient rounded down is one less than that rounded toward 0, which leaves r.
template <class T>
bool RoundsDown(T r, T b) {
  return b != 0 && r != 0 && (r < 0) != (b < 0);
}

// a - q b for the quotient q rounded down: of the sign of b, as in Python.
template <class T>
T FloorRemainder(T a, T b) {
  const T r = Remainder(a, b);
  return RoundsDown(r, b) ? static_cast<T>(r + b) : r;
}

// a / b rounded toward 0, and rounded down, as if a / b were exact.
template <class T>
T TruncatedQuotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(QuotientToZero(a, b));
  else
    return Quotient(a, b);
}
template <class T>
T FloorQuotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(QuotientDown(a, b));
  } else {
    const T q = Quotient(a, b);
    return RoundsDown(Remainder(a, b), b) ? static_cast<T>(q - 1) : q;
  }
}

// a to the power b. On integers modulo their range; of a negative exponent the fraction is dropped, and 0 gives 0.
template <class T>
T Power(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::pow(a, b);
  } else {
    if (b < 0) return a == 1 ? T{1} : a == static_cast<T>(-1) ? static_cast<T>(b % 2 == 0 ? 1 : -1) : T{0};
    using U = std::make_unsigned_t<T>;
    uint64_t base = static_cast<U>(a), power = 1;
    for (uint64_t rest = static_cast<U>(b); rest > 0; rest >>= 1, base *= base) {
      if ((rest & 1) != 0) power *= base;
    }
    return static_cast<T>(power);
  }
}

// One instruction over n elements; `out` may be one of the operands. Transcendental functions of integers go through
// double.
template <class T>
inline __attribute__((always_inline)) void RunLoop(ScalarOp op, int64_t n, const T* x, const T* y, const T* z, T* out) {
  using F = std::conditional_t<std::is_floating_point_v<T>, T, double>;
#define MSLUA_LOOP(value)                                    \
  {                                                          \
    _Pragma("GCC ivdep") for (int64_t e = 0; e < n; ++e) {   \
      [[maybe_unused]] const T a = x[e], b = y[e], c = z[e]; \
      out[e] = static_cast<T>(value);                        \
    }                                                        \
    return;                                                  \
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case ScalarOp::kAdd:
        MSLUA_LOOP(Plus(a, b))
      case ScalarOp::kSub:
        MSLUA_LOOP(Minus(a, b))
      case ScalarOp::kMul:
        MSLUA_LOOP(Times(a, b))
      case ScalarOp::kNeg:
        MSLUA_LOOP(Minus(T{0}, a))
      case ScalarOp::kAbs:
        MSLUA_LOOP(a < 0 ? Minus(T{0}, a) : a)
      default:
        break;
    }
  }
  switch (op) {
    case ScalarOp::kInput:
    case ScalarOp::kConst:
      MSLUA_LOOP(a)
#define MSLUA_SCALAR(id, name, short_name, arity, result, cost, number, ...) \
  case ScalarOp::k##id:                                                      \
    MSLUA_LOOP(number)
#include "core/op/scalar_functions-inl.h"
  }
#undef MSLUA_LOOP
}

MSLUA_VECTORS void Run(ScalarOp op, int64_t n, const float* x, const float* y, const float* z, float* out) {
  RunLoop(op, n, x, y, z, out);
}
MSLUA_VECTORS void Run(ScalarOp op, int64_t n, const double* x, const double* y, const double* z, double* out) {
  RunLoop(op, n, x, y, z, out);
}
MSLUA_VECTORS void Run(ScalarOp op, int64_t n, const int32_t* x, const int32_t* y, const int32_t* z, int32_t* out) {
  RunLoop(op, n, x, y, z, out);
}
MSLUA_VECTORS void Run(ScalarOp op, int64_t n, const int64_t* x, const int64_t* y, const int64_t* z, int64_t* out) {
  RunLoop(op, n, x, y, z, out);
}

}  // namespace

template <class T>
void EvaluateTile(const ScalarProgram& p, int64_t n, const T* const* inputs, T* const* results, T* workspace) {
  const auto value = [&](int32_t v) -> const T* {
    const ScalarInstr& i = p.code[v];
    return i.op == ScalarOp::kInput ? inputs[i.args[0]] : workspace + v * n;
  };
  for (size_t v = 0; v < p.code.size(); ++v) {
    const ScalarInstr& i = p.code[v];
    T* out = workspace + v * n;
    if (i.op == ScalarOp::kInput) continue;
    if (i.op == ScalarOp::kConst) {
      std::fill_n(out, n, static_cast<T>(i.constant));
      continue;
    }
    const T* a = value(i.args[0]);
    const T* b = i.args[1] < 0 ? a : value(i.args[1]);
    const T* c = i.args[2] < 0 ? a : value(i.args[2]);
    Run(i.op, n, a, b, c, out);
  }
  for (size_t r = 0; r < p.results.size(); ++r) std::copy_n(value(p.results[r]), n, results[r]);
}

template void EvaluateTile<float>(const ScalarProgram&, int64_t, const float* const*, float* const*, float*);
template void EvaluateTile<double>(const ScalarProgram&, int64_t, const double* const*, double* const*, double*);
template void EvaluateTile<int32_t>(const ScalarProgram&, int64_t, const int32_t* const*, int32_t* const*, int32_t*);
template void EvaluateTile<int64_t>(const ScalarProgram&, int64_t, const int64_t* const*, int64_t* const*, int64_t*);

void EvaluateScalar(const ScalarProgram& p, const double* inputs, double* results) {
  std::vector<const double*> in(p.num_inputs);
  for (int32_t i = 0; i < p.num_inputs; ++i) in[i] = inputs + i;
  std::vector<double*> out(p.results.size());
  for (size_t r = 0; r < out.size(); ++r) out[r] = results + r;
  std::vector<double> workspace(p.code.size());
  EvaluateTile<double>(p, 1, in.data(), out.data(), workspace.data());
}

}  // namespace mslua
