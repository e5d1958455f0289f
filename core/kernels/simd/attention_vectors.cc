#include "core/kernels/simd/attention_vectors.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/attention_vectors.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "core/base/round_up.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/math-inl.h"
#include "core/kernels/simd/register_tile-inl.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

#ifndef MSLUA_OPS_ATTENTION_VECTORS_SPACE_
#define MSLUA_OPS_ATTENTION_VECTORS_SPACE_
namespace mslua::vectors {

// A block of scores: few enough for the nearest cache beside what they are made of.
constexpr int64_t kQueries = 64, kKeys = 64;

// Hands out parts of a block of floats; of none, it only counts.
class Floats {
 public:
  explicit Floats(void* block) : block_(static_cast<float*>(block)) {}
  // Rows of whole lines, a multiple of what a register tile has.
  float* Take(int64_t rows, int64_t columns) {
    float* p = block_ == nullptr ? nullptr : block_ + taken_;
    taken_ += RoundUp(rows, 16) * Padded(columns);
    return p;
  }
  int64_t bytes() const { return taken_ * static_cast<int64_t>(sizeof(float)); }
  static int64_t Padded(int64_t columns) { return RoundUp(columns, 16); }

 private:
  float* const block_;
  int64_t taken_ = 0;
};

// Operands of a head as dense f32, and results. Scores have a row for each key of a block, a column for each query.
struct ForwardSpace {
  float *k, *v;             // of the head
  float *q, *qt, *y;        // of a block of queries; qt transposed
  float* scores;            // of a block
  float *top, *sum, *work;  // of each query: the highest score, the sum of exponentials
  int64_t bytes;
  ForwardSpace(const Attention& a, void* scratch) {
    Floats f(scratch);
    k = f.Take(a.s, a.d);
    v = f.Take(a.s, a.e);
    q = f.Take(kQueries, a.d);
    qt = f.Take(a.d, kQueries);
    y = f.Take(kQueries, a.e);
    scores = f.Take(kKeys, kQueries);
    top = f.Take(1, kQueries);
    sum = f.Take(1, kQueries);
    work = f.Take(1, kQueries);
    bytes = f.bytes();
  }
};
struct BackwardSpace {
  float *k, *v, *dk, *dv;          // of the head
  float *q, *qt, *dy, *dyt, *dq;   // of a block of queries; qt and dyt transposed
  float *probabilities, *dscores;  // of a block
  float *lse, *delta;              // of each query
  int64_t bytes;
  BackwardSpace(const Attention& a, void* scratch) {
    Floats f(scratch);
    for (float** m : {&k, &dk}) *m = f.Take(a.s, a.d);
    for (float** m : {&v, &dv}) *m = f.Take(a.s, a.e);
    for (float** m : {&q, &dq}) *m = f.Take(kQueries, a.d);
    dy = f.Take(kQueries, a.e);
    qt = f.Take(a.d, kQueries);
    dyt = f.Take(a.e, kQueries);
    for (float** m : {&probabilities, &dscores}) *m = f.Take(kKeys, kQueries);
    for (float** m : {&lse, &delta}) *m = f.Take(1, kQueries);
    bytes = f.bytes();
  }
};

}  // namespace mslua::vectors
#endif  // MSLUA_OPS_ATTENTION_VECTORS_SPACE_

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

using vectors::BackwardSpace;
using vectors::Floats;
using vectors::ForwardSpace;
using vectors::kKeys;
using vectors::kQueries;

using Left = LeftOperand<float>;
using Right = RightOperand<float>;

// Of a register tile of 2 vectors: 32 registers with AVX-512, 16 without. No more than a vector has lanes, so that a
// tile of queries needs no more scores than are made for each vector of queries.
constexpr int kRows = HWY_TARGET == HWY_SCALAR ? 1 : HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// e^(score - shift), by 2 to a power. The difference comes first: where one score is far above the others it is exactly
// 0 for that one, however large the scores are, which a factor in front of it would change.
HWY_INLINE V32 Weight(V32 score, V32 shift) {
  return Exp2(hn::Mul(hn::Sub(score, shift), hn::Set(F32(), 1.44269504f)));
}

// m [rows, columns] * factor, as f32, rows of zeros up to `padded`.
template <class T>
void CopyRows(Rows<T> m, int64_t rows, int64_t padded, int64_t columns, float factor, float* to) {
  const int64_t stride = Floats::Padded(columns);
  const V32 f = hn::Set(F32(), factor);
  ForEachVector(columns, [&](int64_t c, size_t n) {
    HWY_UNROLL(4)
    for (int64_t r = 0; r < rows; ++r) Store(hn::Mul(LoadN(m.data + r * m.stride + c, n), f), to + r * stride + c);
  });
  std::fill(to + rows * stride, to + padded * stride, 0.0f);
}

template <class T>
void StoreRows(const float* m, int64_t rows, int64_t columns, float factor, MutableRows<T> to) {
  const int64_t stride = Floats::Padded(columns);
  const V32 f = hn::Set(F32(), factor);
  ForEachVector(columns, [&](int64_t c, size_t n) {
    HWY_UNROLL(4)
    for (int64_t r = 0; r < rows; ++r) StoreN(hn::Mul(Load(m + r * stride + c), f), to.data + r * to.stride + c, n);
  });
}

// m [rows, columns], padded, to [columns, kQueries].
void Transpose(const float* m, int64_t rows, int64_t columns, float* to) {
  const int64_t stride = Floats::Padded(columns);
#if HWY_TARGET == HWY_SCALAR
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * kQueries + r] = m[r * stride + c];
  }
#else
  const F32 d;
  const hn::Repartition<double, F32> pairs;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = 0; r < rows; r += lanes) {
    for (int64_t c = 0; c < columns; c += 4) {
      // 4 columns: vector i has rows i, i + 4, ... of these, which change places within each block of 4 x 4.
      V32 v[4];
      HWY_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const float* from = m + (r + i) * stride + c;
        v[i] = hn::LoadDup128(d, from);
        HWY_UNROLL(4)
        for (int64_t block = 4; block < lanes; block += 4)
          v[i] = hn::IfThenElse(hn::FirstN(d, block), v[i], hn::LoadDup128(d, from + block * stride));
      }
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1])),
                 low23 = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3])),
                 high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1])),
                 high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
      float* const at = to + c * kQueries + r;
      Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), at);
      Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), at + kQueries);
      Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), at + 2 * kQueries);
      Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), at + 3 * kQueries);
    }
  }
#endif
}

// Queries [i, i + m) and keys [j, j + n) of a head.
struct Block {
  const Attention& a;
  int64_t i, m, j, n;
  // How many of the block's keys its query sees.
  int64_t Seen(int64_t query) const { return std::clamp<int64_t>(a.Seen(i + query) - j, 0, n); }
  // The block's first query that sees its key.
  int64_t FirstToSee(int64_t key) const { return a.causal ? std::max<int64_t>(0, j + key - (a.s - a.t) - i) : 0; }
  // Whether no query before this block sees the key.
  bool FirstSeeing(int64_t key) const { return i == 0 || (a.causal && j + key - (a.s - a.t) >= i); }
  // Of the queries from `query` on in a vector, those that see the key.
  hn::Mask<F32> SeenBy(int64_t key, int64_t query) const {
    const int64_t before = j + key + 1 - a.Seen(i + query);
    return hn::Ge(hn::Iota(F32(), 0.0f), hn::Set(F32(), static_cast<float>(before)));
  }
  // Whether all of these queries see the kRows keys from `key` on.
  bool AllSee(int64_t key, int64_t query) const { return key + kRows <= std::min(n, a.Seen(i + query) - j); }
};

// f(vectors, key, query) for register tiles of scores: kRows keys from `key` on, 1 or 2 vectors of queries from `query`
// on, for all keys that one of the queries sees.
template <class F>
HWY_INLINE void ForEachTile(const Block& b, F f) {
  const int64_t lanes = hn::Lanes(F32());
  for (int64_t query = 0; query < b.m; query += 2 * lanes) {
    int64_t key = 0, end = b.Seen(query + lanes - 1);
    if (query + lanes >= b.m) {
      for (; key < end; key += kRows) f(std::integral_constant<int, 1>(), key, query);
      continue;
    }
    for (; key < end; key += kRows) f(std::integral_constant<int, 2>(), key, query);
    end = b.Seen(query + 2 * lanes - 1);
    for (; key < end; key += kRows) f(std::integral_constant<int, 1>(), key, query + lanes);
  }
}

// f(vectors, column) for columns in register tiles of 2 vectors and 1.
template <class F>
HWY_INLINE void ForEachColumns(int64_t columns, F f) {
  const int64_t lanes = hn::Lanes(F32());
  int64_t c = 0;
  for (; c + lanes < columns; c += 2 * lanes) f(std::integral_constant<int, 2>(), c);
  if (c < columns) f(std::integral_constant<int, 1>(), c);
}

template <int C>
HWY_INLINE void Multiply(Left a, Right b, int64_t k, V32 (&sum)[kRows][C]) {
  MultiplyTile(a, b, k, hn::Lanes(F32()), sum);
}

// to [kRows, columns] = a [kRows, k] b [k, columns], to which is added what is there, times `factors` of its rows.
enum class Add { kNothing, kOld, kOldTimesFactors };
template <Add kAdd>
void Product(Left a, Right b, int64_t k, int64_t columns, const float* factors, float* to) {
  const int64_t lanes = hn::Lanes(F32());
  ForEachColumns(columns, [&](auto vectors, int64_t column) {
    constexpr int C = decltype(vectors)::value;
    V32 sum[kRows][C];
    Multiply(a, Right{b.data + column, b.row}, k, sum);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (int c = 0; c < C; ++c) {
        float* const at = to + r * b.row + column + c * lanes;
        V32 v = sum[r][c];
        if (kAdd == Add::kOld) v = hn::Add(v, Load(at));
        if (kAdd == Add::kOldTimesFactors) v = hn::MulAdd(Load(at), hn::Set(F32(), factors[r]), v);
        Store(v, at);
      }
    }
  });
}

// Scores of keys [key, ..) times queries, and the highest of each query so far.
template <int C>
HWY_INLINE void ScoreTile(const Block& b, const ForwardSpace& s, int64_t key, int64_t query) {
  const F32 d;
  const int64_t lanes = hn::Lanes(d), stride = Floats::Padded(b.a.d);
  V32 sum[kRows][C];
  Multiply(Left{s.k + (b.j + key) * stride, stride, 1}, Right{s.qt + query, kQueries}, b.a.d, sum);
  const V32 lowest = hn::Set(d, -INFINITY);
  const bool whole = b.AllSee(key, query);
  HWY_UNROLL(16)
  for (int c = 0; c < C; ++c) {
    V32 top = Load(s.top + query + c * lanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      if (!whole && b.a.causal) sum[r][c] = hn::IfThenElse(b.SeenBy(key + r, query + c * lanes), sum[r][c], lowest);
      if (whole || key + r < b.n) top = hn::Max(top, sum[r][c]);
      Store(sum[r][c], s.scores + (key + r) * kQueries + query + c * lanes);
    }
    Store(top, s.top + query + c * lanes);
  }
}

// Scores become e^(score - top). `work` of each query, its highest score before, becomes the factor by which what was
// summed before shrinks.
void Exponentials(const Block& b, const ForwardSpace& s) {
  const F32 d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t query = 0; query < b.m; query += lanes) {
    const V32 top = Load(s.top + query), shrink = Weight(Load(s.work + query), top);
    V32 total = hn::Zero(d);
    const int64_t end = b.Seen(query + lanes - 1);
    HWY_UNROLL(4)
    for (int64_t key = 0; key < end; ++key) {
      float* const at = s.scores + key * kQueries + query;
      const V32 e = Weight(Load(at), top);
      Store(e, at);
      total = hn::Add(total, e);
    }
    Store(shrink, s.work + query);
    Store(hn::MulAdd(Load(s.sum + query), shrink, total), s.sum + query);
  }
}

// y of a block of queries (+)= probabilities times values of a block of keys.
void Values(const Block& b, const ForwardSpace& s) {
  const int64_t stride = Floats::Padded(b.a.e);
  for (int64_t query = 0; query < b.m; query += kRows) {
    const int64_t keys = b.Seen(query + kRows - 1);
    const Left p = {s.scores + query, 1, kQueries};
    const Right v = {s.v + b.j * stride, stride};
    float* const y = s.y + query * stride;
    if (b.j == 0)
      Product<Add::kNothing>(p, v, keys, b.a.e, nullptr, y);
    else
      Product<Add::kOldTimesFactors>(p, v, keys, b.a.e, s.work + query, y);
  }
}

template <class T>
void ForwardBlock(const Attention& a, const ForwardSpace& s, int64_t i, int64_t m, MutableRows<T> y, float* lse) {
  const int64_t lanes = hn::Lanes(F32());
  std::fill_n(s.top, kQueries, -INFINITY);
  std::fill_n(s.sum, kQueries, 0.0f);
  const int64_t keys = a.Seen(i + m - 1);
  for (int64_t j = 0; j < keys; j += kKeys) {
    const Block b = {a, i, m, j, std::min(kKeys, keys - j)};
    std::copy_n(s.top, kQueries, s.work);
    ForEachTile(
        b, [&](auto vectors, int64_t key, int64_t query) { ScoreTile<decltype(vectors)::value>(b, s, key, query); });
    Exponentials(b, s);
    Values(b, s);
  }
  for (int64_t query = 0; query < m; query += lanes) {
    const V32 sum = Load(s.sum + query);
    Store(hn::Div(hn::Set(F32(), 1.0f), sum), s.work + query);
    const V32 l = hn::Add(Load(s.top + query), hn::Log(F32(), sum));
    // The library's logarithm of NaN is none.
    StoreN(hn::IfThenElse(hn::IsNaN(sum), sum, l), lse + query, static_cast<size_t>(std::min(lanes, m - query)));
  }
  const int64_t stride = Floats::Padded(a.e);
  for (int64_t r = 0; r < m; ++r) StoreRows<T>(s.y + r * stride, 1, a.e, s.work[r], {y.data + r * y.stride, y.stride});
}

template <class T>
void ForwardHead(const Attention& a, Rows<T> q, Rows<T> k, Rows<T> v, MutableRows<T> y, float* lse, void* scratch) {
  const ForwardSpace s(a, scratch);
  const int64_t keys = RoundUp(a.s, kRows);
  CopyRows(k, a.s, keys, a.d, 1, s.k);
  CopyRows(v, a.s, a.s, a.e, 1, s.v);
  for (int64_t i = 0; i < a.t; i += kQueries) {
    const int64_t m = std::min(kQueries, a.t - i), padded = RoundUp(m, 16);
    CopyRows(Rows<T>{q.data + i * q.stride, q.stride}, m, padded, a.d, static_cast<float>(a.scale), s.q);
    Transpose(s.q, padded, a.d, s.qt);
    ForwardBlock<T>(a, s, i, m, {y.data + i * y.stride, y.stride}, lse + i);
  }
}

// Probabilities e^(score - lse) of keys [key, ..) times queries; zeros where a query does not see a key.
template <int C>
HWY_INLINE void ProbabilityTile(const Block& b, const BackwardSpace& s, int64_t key, int64_t query) {
  const int64_t lanes = hn::Lanes(F32()), stride = Floats::Padded(b.a.d);
  V32 sum[kRows][C];
  Multiply(Left{s.k + (b.j + key) * stride, stride, 1}, Right{s.qt + query, kQueries}, b.a.d, sum);
  const bool masked = b.a.causal && !b.AllSee(key, query);
  HWY_UNROLL(16)
  for (int c = 0; c < C; ++c) {
    const V32 lse = Load(s.lse + query + c * lanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      V32 p = Weight(sum[r][c], lse);
      if (masked) p = hn::IfThenElseZero(b.SeenBy(key + r, query + c * lanes), p);
      Store(p, s.probabilities + (key + r) * kQueries + query + c * lanes);
    }
  }
}

// Gradients of scores, less the scale: p (dy v' - delta).
template <int C>
HWY_INLINE void ScoreGradientTile(const Block& b, const BackwardSpace& s, int64_t key, int64_t query) {
  const int64_t lanes = hn::Lanes(F32()), stride = Floats::Padded(b.a.e);
  V32 sum[kRows][C];
  Multiply(Left{s.v + (b.j + key) * stride, stride, 1}, Right{s.dyt + query, kQueries}, b.a.e, sum);
  HWY_UNROLL(16)
  for (int c = 0; c < C; ++c) {
    const V32 delta = Load(s.delta + query + c * lanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = (key + r) * kQueries + query + c * lanes;
      Store(hn::Mul(Load(s.probabilities + at), hn::Sub(sum[r][c], delta)), s.dscores + at);
    }
  }
}

void BackwardBlock(const Block& b, const BackwardSpace& s) {
  const int64_t d = b.a.d, e = b.a.e, d_row = Floats::Padded(d), e_row = Floats::Padded(e);
  ForEachTile(b, [&](auto vectors, int64_t key, int64_t query) {
    ProbabilityTile<decltype(vectors)::value>(b, s, key, query);
  });
  ForEachTile(b, [&](auto vectors, int64_t key, int64_t query) {
    ScoreGradientTile<decltype(vectors)::value>(b, s, key, query);
  });
  for (int64_t key = 0; key < b.n; key += kRows) {
    const int64_t first = b.FirstToSee(key), at = key * kQueries + first, k = b.m - first;
    const Left p = {s.probabilities + at, kQueries, 1}, ds = {s.dscores + at, kQueries, 1};
    const Right dy = {s.dy + first * e_row, e_row}, q = {s.q + first * d_row, d_row};
    float *const dv = s.dv + (b.j + key) * e_row, *const dk = s.dk + (b.j + key) * d_row;
    if (b.FirstSeeing(key)) {
      Product<Add::kNothing>(p, dy, k, e, nullptr, dv);
      Product<Add::kNothing>(ds, q, k, d, nullptr, dk);
    } else {
      Product<Add::kOld>(p, dy, k, e, nullptr, dv);
      Product<Add::kOld>(ds, q, k, d, nullptr, dk);
    }
  }
  for (int64_t query = 0; query < b.m; query += kRows) {
    const Left ds = {s.dscores + query, 1, kQueries};
    const Right k = {s.k + b.j * d_row, d_row};
    const int64_t keys = b.Seen(query + kRows - 1);
    float* const dq = s.dq + query * d_row;
    if (b.j == 0)
      Product<Add::kNothing>(ds, k, keys, d, nullptr, dq);
    else
      Product<Add::kOld>(ds, k, keys, d, nullptr, dq);
  }
}

// Of each row, the sum of a times b, which is padded.
template <class T>
void RowDots(Rows<T> a, const float* b, int64_t rows, int64_t columns, float* to) {
  const int64_t stride = Floats::Padded(columns);
  for (int64_t r = 0; r < rows; ++r) {
    V32 sum = hn::Zero(F32());
    ForEachVector(columns, [&](int64_t c, size_t n) {
      sum = hn::MulAdd(LoadN(a.data + r * a.stride + c, n), Load(b + r * stride + c), sum);
    });
    to[r] = hn::GetLane(hn::SumOfLanes(F32(), sum));
  }
}

template <class T>
struct BackwardOperands {
  Rows<T> q, k, v, y, dy;
  const float *lse, *delta;
  MutableRows<T> dq, dk, dv;
};

// A block of m queries from `i` on, ready for all keys. Numbers of queries beyond them are zeros.
template <class T>
void PrepareQueries(const Attention& a, const BackwardOperands<T>& o, const BackwardSpace& s, int64_t i, int64_t m) {
  const int64_t padded = RoundUp(m, 16);
  CopyRows(Rows<T>{o.q.data + i * o.q.stride, o.q.stride}, m, padded, a.d, static_cast<float>(a.scale), s.q);
  Transpose(s.q, padded, a.d, s.qt);
  CopyRows(Rows<T>{o.dy.data + i * o.dy.stride, o.dy.stride}, m, padded, a.e, 1, s.dy);
  Transpose(s.dy, padded, a.e, s.dyt);
  std::copy_n(o.lse + i, m, s.lse);
  if (o.delta != nullptr)
    std::copy_n(o.delta + i, m, s.delta);
  else
    RowDots(Rows<T>{o.y.data + i * o.y.stride, o.y.stride}, s.dy, m, a.e, s.delta);
  std::fill(s.lse + m, s.lse + kQueries, 0.0f);
  std::fill(s.delta + m, s.delta + kQueries, 0.0f);
}

template <class T>
void BackwardHead(const Attention& a, const BackwardOperands<T>& o, void* scratch) {
  const BackwardSpace s(a, scratch);
  const int64_t keys = RoundUp(a.s, kRows);
  CopyRows(o.k, a.s, keys, a.d, 1, s.k);
  CopyRows(o.v, a.s, keys, a.e, 1, s.v);
  for (int64_t i = 0; i < a.t; i += kQueries) {
    const int64_t m = std::min(kQueries, a.t - i), seen = a.Seen(i + m - 1);
    PrepareQueries(a, o, s, i, m);
    for (int64_t j = 0; j < seen; j += kKeys) BackwardBlock({a, i, m, j, std::min(kKeys, seen - j)}, s);
    StoreRows<T>(s.dq, m, a.d, static_cast<float>(a.scale), {o.dq.data + i * o.dq.stride, o.dq.stride});
  }
  StoreRows(s.dk, a.s, a.d, 1, o.dk);  // of queries times the scale
  StoreRows(s.dv, a.s, a.e, 1, o.dv);
}

void ForwardF32(const Attention& a, Rows<float> q, Rows<float> k, Rows<float> v, MutableRows<float> y, float* lse,
                void* scratch) {
  ForwardHead(a, q, k, v, y, lse, scratch);
}
void ForwardBF16(const Attention& a, Rows<BF16> q, Rows<BF16> k, Rows<BF16> v, MutableRows<BF16> y, float* lse,
                 void* scratch) {
  ForwardHead(a, q, k, v, y, lse, scratch);
}
void BackwardF32(const Attention& a, Rows<float> q, Rows<float> k, Rows<float> v, Rows<float> y, Rows<float> dy,
                 const float* lse, const float* delta, MutableRows<float> dq, MutableRows<float> dk,
                 MutableRows<float> dv, void* scratch) {
  BackwardHead<float>(a, {q, k, v, y, dy, lse, delta, dq, dk, dv}, scratch);
}
void BackwardBF16(const Attention& a, Rows<BF16> q, Rows<BF16> k, Rows<BF16> v, Rows<BF16> y, Rows<BF16> dy,
                  const float* lse, const float* delta, MutableRows<BF16> dq, MutableRows<BF16> dk,
                  MutableRows<BF16> dv, void* scratch) {
  BackwardHead<BF16>(a, {q, k, v, y, dy, lse, delta, dq, dk, dv}, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardBF16);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardBF16);

namespace vectors {

int64_t ForwardBytes(const Attention& a) { return ForwardSpace(a, nullptr).bytes; }
int64_t BackwardBytes(const Attention& a) { return BackwardSpace(a, nullptr).bytes; }

void Forward(const Attention& a, Rows<float> q, Rows<float> k, Rows<float> v, MutableRows<float> y, float* lse,
             void* scratch) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(a, q, k, v, y, lse, scratch);
}
void Forward(const Attention& a, Rows<BF16> q, Rows<BF16> k, Rows<BF16> v, MutableRows<BF16> y, float* lse,
             void* scratch) {
  HWY_DYNAMIC_DISPATCH(ForwardBF16)(a, q, k, v, y, lse, scratch);
}
void Backward(const Attention& a, Rows<float> q, Rows<float> k, Rows<float> v, Rows<float> y, Rows<float> dy,
              const float* lse, const float* delta, MutableRows<float> dq, MutableRows<float> dk, MutableRows<float> dv,
              void* scratch) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(a, q, k, v, y, dy, lse, delta, dq, dk, dv, scratch);
}
void Backward(const Attention& a, Rows<BF16> q, Rows<BF16> k, Rows<BF16> v, Rows<BF16> y, Rows<BF16> dy,
              const float* lse, const float* delta, MutableRows<BF16> dq, MutableRows<BF16> dk, MutableRows<BF16> dv,
              void* scratch) {
  HWY_DYNAMIC_DISPATCH(BackwardBF16)(a, q, k, v, y, dy, lse, delta, dq, dk, dv, scratch);
}

}  // namespace vectors
}  // namespace mslua
#endif  // HWY_ONCE
