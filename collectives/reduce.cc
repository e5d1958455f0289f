#include "collectives/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mslua {
namespace {

// Elements combined at a time; the partial results stay in the first-level cache.
constexpr int64_t kTile = 2048;

#if defined(__x86_64__)
bool HasAvx2() {
  // clang's __builtin_cpu_supports does not know f16c.
  unsigned a = 0, b = 0, c = 0, d = 0;
  static const bool has = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return has;
}
bool HasAvx512() {
  static const bool has = HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}
#endif

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void WidenF16(const F16* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  for (; i < n; ++i) out[i] = in[i];
}
__attribute__((target("avx,f16c"))) void NarrowF16(const float* in, F16* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) out[i] = F16(in[i]);
}
#endif

// The type that T is combined in.
template <class T>
using Wide = ComputeType<T>;

template <ReduceOp op, class A>
inline A Combine(A a, A b) {
  if constexpr (std::is_same_v<A, bool>) {
    if constexpr (op == ReduceOp::kSum || op == ReduceOp::kMax) return a | b;
    return a & b;
  } else if constexpr (op == ReduceOp::kMax) {
    return (a != a || a > b) ? a : b;
  } else if constexpr (op == ReduceOp::kMin) {
    return (a != a || a < b) ? a : b;
  } else if constexpr (std::is_integral_v<A>) {
    // Unsigned, where wrapping is defined; not narrower than int, to which operands would be promoted.
    using U = std::conditional_t<sizeof(A) < 4, uint32_t, std::make_unsigned_t<A>>;
    if constexpr (op == ReduceOp::kProd) return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    if constexpr (op == ReduceOp::kProd) return a * b;
    return a + b;
  }
}

template <ReduceOp op, class A>
inline A Finish(A a, int ranks) {
  if constexpr (op == ReduceOp::kMean) {
    if constexpr (std::is_floating_point_v<A>) return a / static_cast<A>(ranks);
    return static_cast<A>(static_cast<int64_t>(a) / ranks);
  }
  return a;
}

struct Arguments {
  const void* const* sources;
  int ranks;
  void* const* outs;
  int num_outs;
  int64_t count;
};

// Two ranks, the commonest case, in one pass without a tile.
template <ReduceOp op, class T>
[[gnu::always_inline]] inline void ReduceTwo(const Arguments& x) {
  const T* a = static_cast<const T*>(x.sources[0]);
  const T* b = static_cast<const T*>(x.sources[1]);
  T* first = static_cast<T*>(x.outs[0]);
  T* second = static_cast<T*>(x.outs[x.num_outs - 1]);
  if (first == second) {
#pragma GCC ivdep
    for (int64_t i = 0; i < x.count; ++i) first[i] = T(Finish<op>(Combine<op>(Wide<T>(a[i]), Wide<T>(b[i])), 2));
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < x.count; ++i) {
      const T value = T(Finish<op>(Combine<op>(Wide<T>(a[i]), Wide<T>(b[i])), 2));
      first[i] = value;
      second[i] = value;
    }
  }
}

// Elements [begin, begin + n) of all sources, which need no conversion.
template <ReduceOp op, class T>
[[gnu::always_inline]] inline void CombineTile(const Arguments& x, int64_t begin, int64_t n, T* sum) {
  const T* first = static_cast<const T*>(x.sources[0]) + begin;
  if (x.ranks == 1) std::memcpy(sum, first, n * sizeof(T));
  for (int k = 1; k < x.ranks; ++k) {
    const T* before = k == 1 ? first : sum;
    const T* next = static_cast<const T*>(x.sources[k]) + begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) sum[i] = Combine<op>(before[i], next[i]);
  }
}

template <ReduceOp op, class T>
[[gnu::always_inline]] inline void ReduceMany(const Arguments& x, bool f16c) {
  using A = Wide<T>;
  alignas(64) A sum[kTile];
  alignas(64) A next[kTile];
  alignas(64) T rounded[kTile];
  for (int64_t begin = 0; begin < x.count; begin += kTile) {
    const int64_t n = std::min(kTile, x.count - begin);
    if constexpr (std::is_same_v<A, T>) {
      CombineTile<op, T>(x, begin, n, sum);
    } else {
      for (int k = 0; k < x.ranks; ++k) {
        const T* source = static_cast<const T*>(x.sources[k]) + begin;
        A* into = k == 0 ? sum : next;
#if defined(__x86_64__)
        if constexpr (std::is_same_v<T, F16>) {
          if (f16c) {
            WidenF16(source, into, n);
          } else {
            for (int64_t i = 0; i < n; ++i) into[i] = source[i];
          }
        } else
#endif
        {
          for (int64_t i = 0; i < n; ++i) into[i] = source[i];
        }
        if (k > 0) {
          for (int64_t i = 0; i < n; ++i) sum[i] = Combine<op>(sum[i], next[i]);
        }
      }
    }
    if constexpr (op == ReduceOp::kMean) {
      for (int64_t i = 0; i < n; ++i) sum[i] = Finish<op>(sum[i], x.ranks);
    }
    const T* result;
    if constexpr (std::is_same_v<A, T>) {
      result = sum;
    } else {
      result = rounded;
#if defined(__x86_64__)
      if constexpr (std::is_same_v<T, F16>) {
        if (f16c) {
          NarrowF16(sum, rounded, n);
        } else {
          for (int64_t i = 0; i < n; ++i) rounded[i] = T(sum[i]);
        }
      } else
#endif
      {
        for (int64_t i = 0; i < n; ++i) rounded[i] = T(sum[i]);
      }
    }
    for (int j = 0; j < x.num_outs; ++j) std::memcpy(static_cast<T*>(x.outs[j]) + begin, result, n * sizeof(T));
  }
}

template <ReduceOp op, class T>
[[gnu::always_inline]] inline void ReduceBody(const Arguments& x, bool f16c) {
  if (x.ranks == 2 && x.num_outs <= 2 && !std::is_same_v<T, F16>) return ReduceTwo<op, T>(x);
  ReduceMany<op, T>(x, f16c);
}

// One body, compiled three times. Whole cache lines at a time: beyond the caches that is a third faster than halves.
template <ReduceOp op, class T>
void ReducePlain(const Arguments& x) {
  ReduceBody<op, T>(x, false);
}
#if defined(__x86_64__)
template <ReduceOp op, class T>
__attribute__((target("avx2"))) void ReduceAvx2(const Arguments& x) {
  ReduceBody<op, T>(x, true);
}
template <ReduceOp op, class T>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512"))) void ReduceAvx512(
    const Arguments& x) {
  ReduceBody<op, T>(x, true);
}
#endif

template <ReduceOp op>
void ForDType(DType dtype, const Arguments& x) {
  DispatchDType(dtype, [&](auto zero) {
    using T = decltype(zero);
#if defined(__x86_64__)
    if (HasAvx512()) return ReduceAvx512<op, T>(x);
    if (HasAvx2()) return ReduceAvx2<op, T>(x);
#endif
    ReducePlain<op, T>(x);
  });
}

}  // namespace

void Reduce(ReduceOp op, DType dtype, absl::Span<const void* const> sources, absl::Span<void* const> outs,
            int64_t count) {
  if (outs.empty() || count == 0) return;
  const Arguments x = {sources.data(), static_cast<int>(sources.size()), outs.data(), static_cast<int>(outs.size()),
                       count};
  switch (op) {
    case ReduceOp::kSum:
      return ForDType<ReduceOp::kSum>(dtype, x);
    case ReduceOp::kProd:
      return ForDType<ReduceOp::kProd>(dtype, x);
    case ReduceOp::kMax:
      return ForDType<ReduceOp::kMax>(dtype, x);
    case ReduceOp::kMin:
      return ForDType<ReduceOp::kMin>(dtype, x);
    case ReduceOp::kMean:
      return ForDType<ReduceOp::kMean>(dtype, x);
  }
}

}  // namespace mslua
