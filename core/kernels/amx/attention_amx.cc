#include "core/kernels/amx/attention_amx.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/round_up.h"
#include "core/kernels/amx/amx-inl.h"

MSLUA_AMX_BEGIN

namespace mslua::amx {
namespace {

// A block of the scratch memory for each matrix; of none, it only counts.
class Space {
 public:
  explicit Space(void* block) : block_(static_cast<char*>(block)) {}
  template <class T>
  T* Take(int64_t n) {
    T* p = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + taken_);
    taken_ += RoundUp(n * static_cast<int64_t>(sizeof(T)), 64);
    return p;
  }
  int64_t taken() const { return taken_; }

 private:
  char* const block_;
  int64_t taken_ = 0;
};

// How many bf16 a number is the sum of.
template <class T>
constexpr int kParts = 3;
template <>
constexpr int kParts<BF16> = 1;

// A left operand: rows of bf16 for each part, `plane` elements from one part to the next.
struct Left {
  const BF16* data = nullptr;
  int64_t stride = 0, plane = 0;
  Left From(int64_t row, int64_t column) const { return {data + row * stride + column, stride, plane}; }
};

// The right operand of a product over k with n columns: tiles of 32 k by 16 columns, in each a row for two k, in which
// the two lie side by side for every column. Tile (k block, column block) lies at (k block * n / 16 + column block),
// and `plane` words after a part there is the next.
struct Right {
  uint32_t* words = nullptr;
  int64_t plane = 0;
};

const uint32_t* WordsOf(const BF16* p) { return reinterpret_cast<const uint32_t*>(p); }

// Of m' for m [n, k]: a tile's row is a column of 32-bit words of m.
template <int kCount>
void PackTransposed(Left m, int64_t n, int64_t k, Right to) {
  for (int part = 0; part < kCount; ++part) {
    uint32_t* tile = to.words + part * to.plane;
    for (int64_t kb = 0; kb < k; kb += kBlock) {
      for (int64_t nb = 0; nb < n; nb += kTile, tile += kTileWords)
        TransposeWords(WordsOf(m.From(nb, kb).data + part * m.plane), m.stride / 2, tile, kTile);
    }
  }
}

__m512i LoadWords(const BF16* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Of m [k, n]: two rows of m interleaved.
template <int kCount>
void PackRows(Left m, int64_t k, int64_t n, Right packed) {
  for (int part = 0; part < kCount; ++part) {
    uint32_t* to = packed.words + part * packed.plane;
    for (int64_t kb = 0; kb < k; kb += kBlock) {
      for (int64_t nb = 0; nb < n; nb += kTile) {
        for (int64_t p = 0; p < kTile; ++p, to += kTile) {
          const BF16* row = m.From(kb + 2 * p, nb).data + part * m.plane;
          _mm512_store_si512(to, _mm512_or_si512(LoadWords(row), _mm512_slli_epi32(LoadWords(row + m.stride), 16)));
        }
      }
    }
  }
}

// m' [k, n], row-major, from what PackTransposed makes of m [n, k].
template <int kCount>
void Unpack(Right from, int64_t n, int64_t k, BF16* columns) {
  for (int part = 0; part < kCount; ++part, columns += n * k) {
    const uint32_t* packed = from.words + part * from.plane;
    for (int64_t kb = 0; kb < k; kb += kBlock) {
      for (int64_t nb = 0; nb < n; nb += kTile) {
        for (int64_t p = 0; p < kTile; ++p, packed += kTile) {
          const __m512i words = _mm512_load_si512(packed);
          BF16* row = columns + (kb + 2 * p) * n + nb;
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_cvtepi32_epi16(words));
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
        }
      }
    }
  }
}

// y [m, n] f32, rows y_stride apart, = a [m, k] times b, or plus that: m and n multiples of 32. b has `columns`
// columns, of which the n from `first` on are used, and its rows from k block `first_k` / 32 on. `kSwapped`: as
// MultiplyStep has it.
template <int kCount, bool kSwapped = false>
void Multiply(Left a, Right b, int64_t m, int64_t n, int64_t k, int64_t columns, int64_t first, int64_t first_k,
              bool add, float* y, int64_t y_stride) {
  constexpr int64_t kHalf = sizeof(BF16), kWord = sizeof(uint32_t);
  const int64_t y_bytes = y_stride * 4, across = columns / kTile;
  for (int64_t i = 0; i < m; i += kBlock) {
    for (int64_t j = 0; j < n; j += kBlock) {
      float* const sums = y + i * y_stride + j;
      BeginSums(add, sums, y_bytes);
      for (int64_t l = 0; l < k; l += kBlock) {
        const uint32_t* tile = b.words + ((first_k + l) / kBlock * across + (first + j) / kTile) * kTileWords;
        MultiplyStep<kCount, kSwapped>({a.From(i, l).data, kTile * a.stride * kHalf, a.plane * kHalf, a.stride * kHalf},
                                       {tile, kTileWords * kWord, b.plane * kWord, 64});
      }
      StoreSums(sums, y_bytes);
    }
  }
}

// e^x for x <= 88, to 2 units in the last place; 0 for large negative x, NaN for NaN. A loop over the coefficients
// stays one at -O2.
[[gnu::always_inline]] inline __m512 Exp(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-150), x);  // NaN stays where it is the second operand
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, _mm512_add_ps(r, _mm512_set1_ps(1)));
  return _mm512_scalef_ps(p, n);
}

void StoreBF16(__m512 v, BF16* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// The parts of 16 numbers, `plane` elements apart.
template <int kCount>
void StoreParts(__m512 v, BF16* to, int64_t plane) {
  for (int part = 0; part < kCount; ++part, to += plane) {
    const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
    v = _mm512_sub_ps(v, Widen(rounded));
  }
}

// m [rows, columns] as a left operand: where it lies, or its parts in `to`.
Left PartsOf(Rows<BF16> m, int64_t, int64_t, BF16*) { return {m.data, m.stride, 0}; }
Left PartsOf(Rows<float> m, int64_t rows, int64_t columns, BF16* to) {
  const int64_t plane = rows * columns;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += kTile)
      StoreParts<3>(_mm512_loadu_ps(m.data + r * m.stride + c), to + r * columns + c, plane);
  }
  return {to, columns, plane};
}

// Where 32 rows of a result are made, and how they come from there to `to`.
float* ResultSpace(MutableRows<BF16>, float* space) { return space; }
float* ResultSpace(MutableRows<float> to, float*) { return to.data; }
int64_t ResultStride(MutableRows<BF16>, int64_t columns) { return columns; }
int64_t ResultStride(MutableRows<float> to, int64_t) { return to.stride; }
void StoreResult(const float* from, int64_t columns, MutableRows<BF16> to) {
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t c = 0; c < columns; c += kTile)
      StoreBF16(_mm512_loadu_ps(from + r * columns + c), to.data + r * to.stride + c);
  }
}
void StoreResult(const float*, int64_t, MutableRows<float>) {}

template <class T>
MutableRows<T> RowsFrom(MutableRows<T> m, int64_t row) {
  return {m.data + row * m.stride, m.stride};
}

// `to` = 32 rows of a times b.
template <class T>
void MultiplyInto(MutableRows<T> to, Left a, Right b, int64_t n, int64_t k, int64_t first_k, float* space) {
  Multiply<kParts<T>>(a, b, kBlock, n, k, n, 0, first_k, false, ResultSpace(to, space), ResultStride(to, n));
  StoreResult(space, n, to);
}

// e^(score * scale - shift). The product is rounded, as the one that is the shift was: the exponent of the largest
// score is exactly 0, however large it is.
[[gnu::always_inline]] inline __m512 Weight(const float* scores, __m512 scale, __m512 shift) {
  const __m512 product = _mm512_mul_round_ps(_mm512_loadu_ps(scores), scale, _MM_FROUND_CUR_DIRECTION);
  return Exp(_mm512_sub_ps(product, shift));
}

// Row of scores, of which `seen` count: probabilities, zeros up to n. Gives the logarithm of the sum of exponentials.
template <int kCount>
float Softmax(const float* scores, int64_t seen, int64_t n, float scale, float* exponentials, BF16* to, int64_t plane) {
  const __m512 lowest = _mm512_set1_ps(-INFINITY), factor = _mm512_set1_ps(scale);
  __m512 best = lowest, sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < seen; i += kTile)
    best = _mm512_max_ps(best, _mm512_mask_loadu_ps(lowest, First(seen - i), scores + i));
  const float max = _mm512_reduce_max_ps(best) * scale;  // the scale is positive
  const __m512 shift = _mm512_set1_ps(max);
  for (int64_t i = 0; i < seen; i += kTile) {
    const __m512 e = _mm512_maskz_mov_ps(First(seen - i), Weight(scores + i, factor, shift));
    sum = _mm512_add_ps(sum, e);
    _mm512_storeu_ps(exponentials + i, e);
  }
  const float total = _mm512_reduce_add_ps(sum);
  const __m512 inverse = _mm512_set1_ps(1 / total);
  for (int64_t i = 0; i < n; i += kTile) {
    const __m512 p = i < seen ? _mm512_mul_ps(_mm512_loadu_ps(exponentials + i), inverse) : _mm512_setzero_ps();
    StoreParts<kCount>(p, to + i, plane);
  }
  return max + std::log(total);
}

// Of 32 keys from `key` and queries from `query` to t: probabilities p, and ds = p (dp - delta) scale, from transposed
// scores and dp. Rows of all are t apart, parts 32 rows.
template <int kCount>
void ScoreGradients(const Head& h, int64_t key, int64_t query, const float* scores, const float* dp, const float* lse,
                    const float* delta, BF16* p, BF16* ds) {
  const __m512 factor = _mm512_set1_ps(h.scale);
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t i = query; i < h.t; i += kTile) {
      const int64_t at = r * h.t + i;
      const __mmask16 seen = h.causal ? static_cast<__mmask16>(~First(key + r - i)) : static_cast<__mmask16>(0xffff);
      const __m512 e = _mm512_maskz_mov_ps(seen, Weight(scores + at, factor, _mm512_loadu_ps(lse + i)));
      StoreParts<kCount>(e, p + at, kBlock * h.t);
      const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(dp + at), _mm512_loadu_ps(delta + i));
      StoreParts<kCount>(_mm512_mul_ps(_mm512_mul_ps(e, factor), _mm512_maskz_mov_ps(seen, d)), ds + at, kBlock * h.t);
    }
  }
}

// Of each row, the sum of a * b.
void RowDots(Rows<BF16> a, Rows<BF16> b, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t c = 0; c < columns; c += kBlock) {
      const __m512i x = _mm512_loadu_si512(a.data + r * a.stride + c),
                    y = _mm512_loadu_si512(b.data + r * b.stride + c);
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
    }
    to[r] = _mm512_reduce_add_ps(sum);
  }
}
void RowDots(Rows<float> a, Rows<float> b, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t c = 0; c < columns; c += kTile)
      sum =
          _mm512_fmadd_ps(_mm512_loadu_ps(a.data + r * a.stride + c), _mm512_loadu_ps(b.data + r * b.stride + c), sum);
    to[r] = _mm512_reduce_add_ps(sum);
  }
}

template <class T>
struct ForwardSpace {
  BF16 *q, *k, *v;  // parts, where operands do not lie in them
  Right kt, v_rows;
  float *scores, *exponentials, *y;
  BF16* p;
  int64_t bytes;
  ForwardSpace(const Head& h, void* scratch) {
    const int64_t size = h.t * h.d, split = kParts<T> == 1 ? 0 : kParts<T> * size;
    Space s(scratch);
    for (BF16** operand : {&q, &k, &v}) *operand = s.Take<BF16>(split);
    for (Right* packed : {&kt, &v_rows}) *packed = {s.Take<uint32_t>(kParts<T> * size / 2), size / 2};
    scores = s.Take<float>(kBlock * h.t);
    exponentials = s.Take<float>(h.t);
    y = s.Take<float>(kBlock * h.d);
    p = s.Take<BF16>(kParts<T> * kBlock * h.t);
    bytes = s.taken();
  }
};

template <class T>
struct BackwardSpace {
  BF16 *q, *k, *v, *dy;                    // parts, where operands do not lie in them
  Right qt, dyt, kt, q_rows, dy_rows, ds;  // ds of one block of keys
  BF16 *k_columns, *p, *score_gradients;
  float *scores, *dp, *delta, *dq, *result;
  int64_t bytes;
  BackwardSpace(const Head& h, void* scratch) {
    const int64_t size = h.t * h.d, split = kParts<T> == 1 ? 0 : kParts<T> * size;
    Space s(scratch);
    for (BF16** operand : {&q, &k, &v, &dy}) *operand = s.Take<BF16>(split);
    for (Right* packed : {&qt, &dyt, &kt, &q_rows, &dy_rows})
      *packed = {s.Take<uint32_t>(kParts<T> * size / 2), size / 2};
    ds = {s.Take<uint32_t>(kParts<T> * kBlock * h.t / 2), kBlock * h.t / 2};
    k_columns = s.Take<BF16>(kParts<T> * size);
    p = s.Take<BF16>(kParts<T> * kBlock * h.t);
    score_gradients = s.Take<BF16>(kParts<T> * kBlock * h.t);
    scores = s.Take<float>(kBlock * h.t);
    dp = s.Take<float>(kBlock * h.t);
    delta = s.Take<float>(h.t);
    dq = s.Take<float>(size);
    result = s.Take<float>(kBlock * h.d);
    bytes = s.taken();
  }
};

// Stores from' [columns, rows].
void StoreTransposed(const float* from, int64_t rows, int64_t columns, MutableRows<float> to) {
  for (int64_t c = 0; c < columns; c += kTile) {
    for (int64_t r = 0; r < rows; r += kTile)
      TransposeWords(reinterpret_cast<const uint32_t*>(from + r * columns + c), columns,
                     reinterpret_cast<uint32_t*>(to.data + c * to.stride + r), to.stride);
  }
}
void StoreTransposed(const float* from, int64_t rows, int64_t columns, MutableRows<BF16> to) {
  alignas(64) uint32_t tile[kTileWords];
  for (int64_t c = 0; c < columns; c += kTile) {
    for (int64_t r = 0; r < rows; r += kTile) {
      TransposeWords(reinterpret_cast<const uint32_t*>(from + r * columns + c), columns, tile, kTile);
      for (int64_t i = 0; i < kTile; ++i)
        StoreBF16(_mm512_castsi512_ps(_mm512_load_si512(tile + i * kTile)), to.data + (c + i) * to.stride + r);
    }
  }
}

}  // namespace

template <class T>
int64_t ForwardBytes(const Head& h) {
  return ForwardSpace<T>(h, nullptr).bytes;
}
template <class T>
int64_t BackwardBytes(const Head& h) {
  return BackwardSpace<T>(h, nullptr).bytes;
}

template <class T>
void Forward(const Head& h, Rows<T> q, Rows<T> k, Rows<T> v, MutableRows<T> y, float* lse, void* scratch) {
  constexpr int kCount = kParts<T>;
  const ForwardSpace<T> s(h, scratch);
  const Left queries = PartsOf(q, h.t, h.d, s.q), p = {s.p, h.t, kBlock * h.t};
  PackTransposed<kCount>(PartsOf(k, h.t, h.d, s.k), h.t, h.d, s.kt);
  PackRows<kCount>(PartsOf(v, h.t, h.d, s.v), h.t, h.d, s.v_rows);
  for (int64_t i = 0; i < h.t; i += kBlock) {
    const int64_t keys = h.causal ? i + kBlock : h.t;
    Multiply<kCount>(queries.From(i, 0), s.kt, kBlock, keys, h.d, h.t, 0, 0, false, s.scores, h.t);
    for (int64_t r = 0; r < kBlock; ++r) {
      const int64_t seen = h.causal ? i + r + 1 : h.t;
      lse[i + r] =
          Softmax<kCount>(s.scores + r * h.t, seen, keys, h.scale, s.exponentials, s.p + r * h.t, kBlock * h.t);
    }
    MultiplyInto(RowsFrom(y, i), p, s.v_rows, h.d, keys, 0, s.y);
  }
}

template <class T>
void Backward(const Head& h, Rows<T> q, Rows<T> k, Rows<T> v, Rows<T> y, Rows<T> dy, const float* lse,
              const float* delta, MutableRows<T> dq, MutableRows<T> dk, MutableRows<T> dv, void* scratch) {
  constexpr int kCount = kParts<T>;
  const BackwardSpace<T> s(h, scratch);
  if (delta == nullptr) {
    RowDots(y, dy, h.t, h.d, s.delta);
    delta = s.delta;
  }
  const Left q_parts = PartsOf(q, h.t, h.d, s.q), k_parts = PartsOf(k, h.t, h.d, s.k),
             v_parts = PartsOf(v, h.t, h.d, s.v), dy_parts = PartsOf(dy, h.t, h.d, s.dy), p = {s.p, h.t, kBlock * h.t},
             ds = {s.score_gradients, h.t, kBlock * h.t}, k_columns = {s.k_columns, h.t, h.t * h.d};
  PackTransposed<kCount>(q_parts, h.t, h.d, s.qt);
  PackTransposed<kCount>(dy_parts, h.t, h.d, s.dyt);
  PackTransposed<kCount>(k_parts, h.t, h.d, s.kt);
  Unpack<kCount>(s.kt, h.t, h.d, s.k_columns);
  PackRows<kCount>(q_parts, h.t, h.d, s.q_rows);
  PackRows<kCount>(dy_parts, h.t, h.d, s.dy_rows);
  for (int64_t j = 0; j < h.t; j += kBlock) {
    // Everything of these 32 keys, transposed: rows are keys, columns the queries that see one of them.
    const int64_t i = h.causal ? j : 0, queries = h.t - i;
    // Scores are the forward pass's to the last bit: probabilities are powers of their difference from its lse.
    Multiply<kCount, true>(k_parts.From(j, 0), s.qt, kBlock, queries, h.d, h.t, i, 0, false, s.scores + i, h.t);
    Multiply<kCount>(v_parts.From(j, 0), s.dyt, kBlock, queries, h.d, h.t, i, 0, false, s.dp + i, h.t);
    ScoreGradients<kCount>(h, j, i, s.scores, s.dp, lse, delta, s.p, s.score_gradients);
    MultiplyInto(RowsFrom(dv, j), p.From(0, i), s.dy_rows, h.d, queries, i, s.result);
    MultiplyInto(RowsFrom(dk, j), ds.From(0, i), s.q_rows, h.d, queries, i, s.result);
    PackRows<kCount>(ds.From(0, i), kBlock, queries, s.ds);
    Multiply<kCount>(k_columns.From(0, j), s.ds, h.d, queries, kBlock, queries, 0, 0, j > 0, s.dq + i, h.t);
  }
  StoreTransposed(s.dq, h.d, h.t, dq);
}

}  // namespace mslua::amx
MSLUA_AMX_END

#else  // not x86

namespace mslua::amx {
template <class T>
int64_t ForwardBytes(const Head&) {
  return 0;
}
template <class T>
int64_t BackwardBytes(const Head&) {
  return 0;
}
template <class T>
void Forward(const Head&, Rows<T>, Rows<T>, Rows<T>, MutableRows<T>, float*, void*) {}
template <class T>
void Backward(const Head&, Rows<T>, Rows<T>, Rows<T>, Rows<T>, Rows<T>, const float*, const float*, MutableRows<T>,
              MutableRows<T>, MutableRows<T>, void*) {}
}  // namespace mslua::amx

#endif

namespace mslua::amx {

bool Supports(int64_t queries, int64_t keys, int64_t d, int64_t e) {
  return Available() && queries == keys && d == e && queries % kBlock == 0 && d % kBlock == 0 && queries > 0 && d > 0;
}

template int64_t ForwardBytes<BF16>(const Head&);
template int64_t ForwardBytes<float>(const Head&);
template int64_t BackwardBytes<BF16>(const Head&);
template int64_t BackwardBytes<float>(const Head&);
template void Forward<BF16>(const Head&, Rows<BF16>, Rows<BF16>, Rows<BF16>, MutableRows<BF16>, float*, void*);
template void Forward<float>(const Head&, Rows<float>, Rows<float>, Rows<float>, MutableRows<float>, float*, void*);
template void Backward<BF16>(const Head&, Rows<BF16>, Rows<BF16>, Rows<BF16>, Rows<BF16>, Rows<BF16>, const float*,
                             const float*, MutableRows<BF16>, MutableRows<BF16>, MutableRows<BF16>, void*);
template void Backward<float>(const Head&, Rows<float>, Rows<float>, Rows<float>, Rows<float>, Rows<float>,
                              const float*, const float*, MutableRows<float>, MutableRows<float>, MutableRows<float>,
                              void*);

}  // namespace mslua::amx
