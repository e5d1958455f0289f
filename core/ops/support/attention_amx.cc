#include "core/ops/support/attention_amx.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

namespace mslua::amx {
namespace {

constexpr int64_t kTile = 16;        // rows of a tile; also 32-bit words of a row
constexpr int64_t kBlock = 32;       // rows of a block of scores; bf16 elements of a tile's row
constexpr int64_t kTileWords = 256;  // of a tile

// A block of the scratch memory for each matrix; of none, it only counts.
class Space {
 public:
  explicit Space(void* block) : block_(static_cast<char*>(block)) {}
  template <class T>
  T* Take(int64_t n) {
    T* p = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + taken_);
    taken_ += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return p;
  }
  int64_t taken() const { return taken_; }

 private:
  char* const block_;
  int64_t taken_ = 0;
};

// The right operand of a product over k with n columns: tiles of 32 k by 16 columns, in each a row for two k, in which
// the two lie side by side for every column. Tile (k block, column block) lies at (k block * n / 16 + column block).
using Packed = uint32_t*;

// Of m' for m [n, k]: a tile's row is a column of 32-bit words of m.
void PackTransposed(Rows m, int64_t n, int64_t k, Packed to) {
  const __m512i lanes = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                           _mm512_set1_epi32(static_cast<int>(m.stride)));
  for (int64_t kb = 0; kb < k; kb += kBlock) {
    for (int64_t nb = 0; nb < n; nb += kTile) {
      for (int64_t p = 0; p < kTile; ++p, to += kTile)
        _mm512_store_si512(to, _mm512_i32gather_epi32(lanes, m.data + nb * m.stride + kb + 2 * p, 2));
    }
  }
}

__m512i LoadWords(const BF16* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Of m [k, n]: two rows of m interleaved.
void PackRows(Rows m, int64_t k, int64_t n, Packed to) {
  for (int64_t kb = 0; kb < k; kb += kBlock) {
    for (int64_t nb = 0; nb < n; nb += kTile) {
      for (int64_t p = 0; p < kTile; ++p, to += kTile) {
        const BF16* row = m.data + (kb + 2 * p) * m.stride + nb;
        _mm512_store_si512(to, _mm512_or_si512(LoadWords(row), _mm512_slli_epi32(LoadWords(row + m.stride), 16)));
      }
    }
  }
}

// m' [k, n], row-major, from what PackTransposed makes of m [n, k].
void Unpack(const uint32_t* packed, int64_t n, int64_t k, BF16* to) {
  for (int64_t kb = 0; kb < k; kb += kBlock) {
    for (int64_t nb = 0; nb < n; nb += kTile) {
      for (int64_t p = 0; p < kTile; ++p, packed += kTile) {
        const __m512i words = _mm512_load_si512(packed);
        BF16* row = to + (kb + 2 * p) * n + nb;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_cvtepi32_epi16(words));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
      }
    }
  }
}

// y [m, n] f32, rows y_stride apart, = a [m, k] times b, or plus that: m and n multiples of 32. b has `columns`
// columns, of which the n from `first` on are used, and its rows from k block `first_k` / 32 on.
void Multiply(Rows a, const uint32_t* b, int64_t m, int64_t n, int64_t k, int64_t columns, int64_t first,
              int64_t first_k, bool add, float* y, int64_t y_stride) {
  const int64_t a_bytes = a.stride * 2, y_bytes = y_stride * 4, across = columns / kTile;
  for (int64_t i = 0; i < m; i += kBlock) {
    for (int64_t j = 0; j < n; j += kBlock) {
      float *y0 = y + i * y_stride + j, *y1 = y0 + kTile * y_stride;
      if (add) {
        _tile_loadd(0, y0, y_bytes);
        _tile_loadd(1, y0 + kTile, y_bytes);
        _tile_loadd(2, y1, y_bytes);
        _tile_loadd(3, y1 + kTile, y_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (int64_t l = 0; l < k; l += kBlock) {
        const uint32_t* tile = b + ((first_k + l) / kBlock * across + (first + j) / kTile) * kTileWords;
        _tile_loadd(4, a.data + i * a.stride + l, a_bytes);
        _tile_loadd(5, a.data + (i + kTile) * a.stride + l, a_bytes);
        _tile_loadd(6, tile, 64);
        _tile_loadd(7, tile + kTileWords, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, y0, y_bytes);
      _tile_stored(1, y0 + kTile, y_bytes);
      _tile_stored(2, y1, y_bytes);
      _tile_stored(3, y1 + kTile, y_bytes);
    }
  }
}

// e^x for x <= 88, to 2 units in the last place; 0 for large negative x.
__m512 Exp(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, _mm512_add_ps(r, _mm512_set1_ps(1)));
  return _mm512_scalef_ps(p, n);
}

void StoreBF16(__m512 v, BF16* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}
void StoreRows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, BF16* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += kTile)
      StoreBF16(_mm512_loadu_ps(from + r * from_stride + c), to + r * to_stride + c);
  }
}

// The first n lanes.
__mmask16 First(int64_t n) { return static_cast<__mmask16>((1u << std::clamp<int64_t>(n, 0, 16)) - 1); }

// Row of scores, of which `seen` count: probabilities, zeros up to n. Gives the logarithm of the sum of exponentials.
float Softmax(const float* scores, int64_t seen, int64_t n, float scale, float* exponentials, BF16* to) {
  const __m512 lowest = _mm512_set1_ps(-INFINITY), factor = _mm512_set1_ps(scale);
  __m512 best = lowest, sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < seen; i += kTile)
    best = _mm512_max_ps(best, _mm512_mask_loadu_ps(lowest, First(seen - i), scores + i));
  const float max = _mm512_reduce_max_ps(best) * scale;  // the scale is positive
  const __m512 shift = _mm512_set1_ps(max);
  for (int64_t i = 0; i < seen; i += kTile) {
    const __m512 e =
        _mm512_maskz_mov_ps(First(seen - i), Exp(_mm512_fmsub_ps(_mm512_loadu_ps(scores + i), factor, shift)));
    sum = _mm512_add_ps(sum, e);
    _mm512_storeu_ps(exponentials + i, e);
  }
  const float total = _mm512_reduce_add_ps(sum);
  const __m512 inverse = _mm512_set1_ps(1 / total);
  for (int64_t i = 0; i < n; i += kTile)
    StoreBF16(i < seen ? _mm512_mul_ps(_mm512_loadu_ps(exponentials + i), inverse) : _mm512_setzero_ps(), to + i);
  return max + std::log(total);
}

// Of 32 keys from `key` and queries from `query` to t: probabilities p, and ds = p (dp - delta) scale, from transposed
// scores and dp. Rows of all are t apart.
void ScoreGradients(const Head& h, int64_t key, int64_t query, const float* scores, const float* dp, const float* lse,
                    const float* delta, BF16* p, BF16* ds) {
  const __m512 factor = _mm512_set1_ps(h.scale);
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t i = query; i < h.t; i += kTile) {
      const int64_t at = r * h.t + i;
      const __mmask16 seen = h.causal ? static_cast<__mmask16>(~First(key + r - i)) : static_cast<__mmask16>(0xffff);
      const __m512 e = _mm512_maskz_mov_ps(
          seen, Exp(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at), factor, _mm512_loadu_ps(lse + i))));
      StoreBF16(e, p + at);
      const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(dp + at), _mm512_loadu_ps(delta + i));
      StoreBF16(_mm512_mul_ps(_mm512_mul_ps(e, factor), _mm512_maskz_mov_ps(seen, d)), ds + at);
    }
  }
}

// Of each row, the sum of a * b.
void RowDots(Rows a, Rows b, int64_t rows, int64_t columns, float* to) {
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

struct ForwardSpace {
  uint32_t *k, *v;
  float *scores, *exponentials, *y;
  BF16* p;
  int64_t bytes;
  ForwardSpace(const Head& h, void* scratch) {
    Space s(scratch);
    k = s.Take<uint32_t>(h.t * h.d / 2);
    v = s.Take<uint32_t>(h.t * h.d / 2);
    scores = s.Take<float>(kBlock * h.t);
    exponentials = s.Take<float>(h.t);
    y = s.Take<float>(kBlock * h.d);
    p = s.Take<BF16>(kBlock * h.t);
    bytes = s.taken();
  }
};

struct BackwardSpace {
  uint32_t *qt, *dyt, *kt, *q, *dy, *ds;  // packed; ds of one block of keys
  BF16 *k_columns, *p, *score_gradients;
  float *scores, *dp, *delta, *dq, *result;
  int64_t bytes;
  BackwardSpace(const Head& h, void* scratch) {
    Space s(scratch);
    for (uint32_t** packed : {&qt, &dyt, &kt, &q, &dy}) *packed = s.Take<uint32_t>(h.t * h.d / 2);
    ds = s.Take<uint32_t>(kBlock * h.t / 2);
    k_columns = s.Take<BF16>(h.t * h.d);
    p = s.Take<BF16>(kBlock * h.t);
    score_gradients = s.Take<BF16>(kBlock * h.t);
    scores = s.Take<float>(kBlock * h.t);
    dp = s.Take<float>(kBlock * h.t);
    delta = s.Take<float>(h.t);
    dq = s.Take<float>(h.t * h.d);
    result = s.Take<float>(kBlock * h.d);
    bytes = s.taken();
  }
};

// Stores from' [columns, rows] in bf16.
void StoreTransposed(const float* from, int64_t rows, int64_t columns, MutableRows to) {
  const __m512i lanes = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                           _mm512_set1_epi32(static_cast<int>(columns)));
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; r += kTile)
      StoreBF16(_mm512_i32gather_ps(lanes, from + r * columns + c, 4), to.data + c * to.stride + r);
  }
}

bool SystemAllows() {
  // Linux hands out the tiles' registers on request: ARCH_REQ_XCOMP_PERM for XTILEDATA.
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

bool ProcessorHasTiles() {
  // Leaf 7: AMX-BF16 and AMX-TILE in edx, AVX512F, DQ, BW and VL in ebx; its subleaf 1: AVX512-BF16 in eax.
  unsigned a, b, c, d;
  const auto ask = [&](unsigned leaf, unsigned subleaf) {
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "0"(leaf), "2"(subleaf));
  };
  ask(0, 0);
  if (a < 7) return false;
  ask(7, 1);
  if ((a >> 5 & 1) == 0) return false;
  ask(7, 0);
  return (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0 && (b >> 16 & 1) != 0 && (b >> 17 & 1) != 0 && (b >> 30 & 1) != 0 &&
         (b >> 31 & 1) != 0;
}

}  // namespace

bool Supports(int64_t queries, int64_t keys, int64_t d, int64_t e) {
  static const bool has = ProcessorHasTiles() && SystemAllows();
  return has && queries == keys && d == e && queries % kBlock == 0 && d % kBlock == 0 && queries > 0 && d > 0;
}

namespace {

// Eight tiles of 16 rows of 64 bytes. A constant, since the instruction does not tell the compiler that it reads it
// all.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64, "the processor's format");
constexpr Configuration kConfiguration;

// Constructors do not take the instructions that the pragma allows.
void Configure() { _tile_loadconfig(&kConfiguration); }
void Release() { _tile_release(); }

}  // namespace

Tiles::Tiles() { Configure(); }
Tiles::~Tiles() { Release(); }

int64_t ForwardBytes(const Head& h) { return ForwardSpace(h, nullptr).bytes; }
int64_t BackwardBytes(const Head& h) { return BackwardSpace(h, nullptr).bytes; }

void Forward(const Head& h, Rows q, Rows k, Rows v, MutableRows y, float* lse, void* scratch) {
  const ForwardSpace s(h, scratch);
  PackTransposed(k, h.t, h.d, s.k);
  PackRows(v, h.t, h.d, s.v);
  for (int64_t i = 0; i < h.t; i += kBlock) {
    const int64_t keys = h.causal ? i + kBlock : h.t;
    Multiply({q.data + i * q.stride, q.stride}, s.k, kBlock, keys, h.d, h.t, 0, 0, false, s.scores, h.t);
    for (int64_t r = 0; r < kBlock; ++r) {
      const int64_t seen = h.causal ? i + r + 1 : h.t;
      lse[i + r] = Softmax(s.scores + r * h.t, seen, keys, h.scale, s.exponentials, s.p + r * h.t);
    }
    Multiply({s.p, h.t}, s.v, kBlock, h.d, keys, h.d, 0, 0, false, s.y, h.d);
    StoreRows(s.y, h.d, kBlock, h.d, y.data + i * y.stride, y.stride);
  }
}

void Backward(const Head& h, Rows q, Rows k, Rows v, Rows y, Rows dy, const float* lse, const float* delta,
              MutableRows dq, MutableRows dk, MutableRows dv, void* scratch) {
  const BackwardSpace s(h, scratch);
  if (delta == nullptr) {
    RowDots(y, dy, h.t, h.d, s.delta);
    delta = s.delta;
  }
  PackTransposed(q, h.t, h.d, s.qt);
  PackTransposed(dy, h.t, h.d, s.dyt);
  PackTransposed(k, h.t, h.d, s.kt);
  Unpack(s.kt, h.t, h.d, s.k_columns);
  PackRows(q, h.t, h.d, s.q);
  PackRows(dy, h.t, h.d, s.dy);
  for (int64_t j = 0; j < h.t; j += kBlock) {
    // Everything of these 32 keys, transposed: rows are keys, columns the queries that see one of them.
    const int64_t i = h.causal ? j : 0, queries = h.t - i;
    Multiply({k.data + j * k.stride, k.stride}, s.qt, kBlock, queries, h.d, h.t, i, 0, false, s.scores + i, h.t);
    Multiply({v.data + j * v.stride, v.stride}, s.dyt, kBlock, queries, h.d, h.t, i, 0, false, s.dp + i, h.t);
    ScoreGradients(h, j, i, s.scores, s.dp, lse, delta, s.p, s.score_gradients);
    Multiply({s.p + i, h.t}, s.dy, kBlock, h.d, queries, h.d, 0, i, false, s.result, h.d);
    StoreRows(s.result, h.d, kBlock, h.d, dv.data + j * dv.stride, dv.stride);
    Multiply({s.score_gradients + i, h.t}, s.q, kBlock, h.d, queries, h.d, 0, i, false, s.result, h.d);
    StoreRows(s.result, h.d, kBlock, h.d, dk.data + j * dk.stride, dk.stride);
    PackRows({s.score_gradients + i, h.t}, kBlock, queries, s.ds);
    Multiply({s.k_columns + j, h.t}, s.ds, h.d, queries, kBlock, queries, 0, 0, j > 0, s.dq + i, h.t);
  }
  StoreTransposed(s.dq, h.d, h.t, dq);
}

}  // namespace mslua::amx

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else  // not x86

namespace mslua::amx {
bool Supports(int64_t, int64_t, int64_t, int64_t) { return false; }
int64_t ForwardBytes(const Head&) { return 0; }
int64_t BackwardBytes(const Head&) { return 0; }
void Forward(const Head&, Rows, Rows, Rows, MutableRows, float*, void*) {}
void Backward(const Head&, Rows, Rows, Rows, Rows, Rows, const float*, const float*, MutableRows, MutableRows,
              MutableRows, void*) {}
Tiles::Tiles() = default;
Tiles::~Tiles() = default;
}  // namespace mslua::amx

#endif
