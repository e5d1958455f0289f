// What kernels on the tiles of Intel processors (AMX) share. Their code stands between MSLUA_AMX_BEGIN and
// MSLUA_AMX_END, and runs where amx::Available(); only for x86.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "core/base/round_up.h"
#include "core/kernels/amx/amx.h"
#include "hwy/base.h"

#define MSLUA_AMX_BEGIN HWY_PUSH_ATTRIBUTES("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#define MSLUA_AMX_END HWY_POP_ATTRIBUTES

MSLUA_AMX_BEGIN
namespace mslua::amx {

constexpr int64_t kTile = 16;                  // rows of a tile; 32-bit words of a row
constexpr int64_t kTileWords = kTile * kTile;  // of a tile, each two bf16 that are neighbours along k

// The first n lanes.
inline __mmask16 First(int64_t n) { return static_cast<__mmask16>((1u << std::clamp<int64_t>(n, 0, 16)) - 1); }

inline __m512 Widen(__m256i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)); }

// Tiles 0 to 3 are a block of 32 x 32 sums in f32: zeros, or, to be added to, y; rows of y are `bytes` apart.
[[gnu::always_inline]] inline void BeginSums(bool add, const float* y, int64_t bytes) {
  if (!add) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  const char* below = reinterpret_cast<const char*>(y) + kTile * bytes;
  _tile_loadd(0, y, bytes);
  _tile_loadd(1, y + kTile, bytes);
  _tile_loadd(2, below, bytes);
  _tile_loadd(3, below + kTile * 4, bytes);
}
[[gnu::always_inline]] inline void StoreSums(float* y, int64_t bytes) {
  char* below = reinterpret_cast<char*>(y) + kTile * bytes;
  _tile_stored(0, y, bytes);
  _tile_stored(1, y + kTile, bytes);
  _tile_stored(2, below, bytes);
  _tile_stored(3, below + kTile * 4, bytes);
}

// An operand's tiles of a step, 32 of k: two of them, and of a number's three parts the next `plane` bytes on. In a row
// of a tile, `stride` bytes apart, lie 32 k of a row of the left operand, or two k of 16 columns of the right one.
struct TilePair {
  const void* first;
  int64_t second, plane, stride;  // bytes

  const char* At(int part) const { return static_cast<const char*>(first) + part * plane; }
};

// Adds the products of a step to the sums: of numbers of one part, or the six of split_matmul.h. `kSwapped`: in the
// order of a call whose a is this one's b, so that the sums of both are the same to the last bit.
template <int kParts, bool kSwapped = false>
[[gnu::always_inline]] inline void MultiplyStep(const TilePair& a, const TilePair& b) {
  const auto load_a = [&](int part) {
    _tile_loadd(4, a.At(part), a.stride);
    _tile_loadd(5, a.At(part) + a.second, a.stride);
  };
  const auto load_b = [&](int part) {
    _tile_loadd(6, b.At(part), b.stride);
    _tile_loadd(7, b.At(part) + b.second, b.stride);
  };
  const auto multiply = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  };
  if constexpr (kParts == 3 && kSwapped) {
    load_a(2);
    load_b(0);
    multiply();
    load_a(1);
    multiply();
    load_b(1);
    multiply();
    load_a(0);
    multiply();
    load_b(2);
    multiply();
    load_b(0);
  } else if constexpr (kParts == 3) {
    // The largest product last: what the others sum to is not rounded at its size.
    load_b(2);
    load_a(0);
    multiply();
    load_b(1);
    multiply();
    load_a(1);
    multiply();
    load_b(0);
    multiply();
    load_a(2);
    multiply();
    load_a(0);
  } else {
    static_assert(kParts == 1, "bf16, or f32 as the sum of three");
    load_b(0);
    load_a(0);
  }
  multiply();
}

// Operands lie in panels of 32 rows of the left one, or columns of the right one; of a panel, in steps of 32 along k:
// two tiles of bf16, or of f32 two of h, then two of m, then of l.
constexpr int64_t kPanel = 32, kStep = 32;
constexpr int64_t kPlane = 2 * kTileWords;  // from h to m to l
template <int kParts>
constexpr int64_t kWordsOfStep = kParts* kPlane;

// Adds the products of `steps` steps of a panel each, one after the other.
template <int kParts>
[[gnu::always_inline]] inline void MultiplySteps(const uint32_t* a, const uint32_t* b, int64_t steps) {
  constexpr int64_t kWord = sizeof(uint32_t);
  for (int64_t s = 0; s < steps; ++s, a += kWordsOfStep<kParts>, b += kWordsOfStep<kParts>)
    MultiplyStep<kParts>({a, kTileWords * kWord, kPlane * kWord, 64}, {b, kTileWords * kWord, kPlane * kWord, 64});
}

// Words of h, m and l of 32 numbers. The largest magnitude of an h seen so far, as bits, is kept in `largest`.
class Splitter {
 public:
  Splitter() : largest_(Nothing()), interleave_(Interleave()) {}

  // Numbers x[0..32) along k: word i has x[2 i] and x[2 i + 1].
  void AlongK(__m512 lower, __m512 upper, uint32_t* to, int64_t plane) {
#pragma GCC unroll 3
    for (int part = 0; part < 3; ++part) {
      const __m512i words = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(upper, lower));
      _mm512_store_si512(to + part * plane, words);
      if (part == 0) See(words);
      if (part == 2) break;
      lower = _mm512_sub_ps(lower, Widen(_mm512_castsi512_si256(words)));
      upper = _mm512_sub_ps(upper, Widen(_mm512_extracti64x4_epi64(words, 1)));
    }
  }
  // Two neighbours along k, of 16 rows: word i has first[i] and second[i].
  void AcrossK(__m512 first, __m512 second, uint32_t* to, int64_t plane) {
#pragma GCC unroll 3
    for (int part = 0; part < 3; ++part) {
      const __m512i apart = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
      const __m512i words = _mm512_permutexvar_epi16(interleave_, apart);
      _mm512_store_si512(to + part * plane, words);
      if (part == 0) See(words);
      if (part == 2) break;
      first = _mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
      second = _mm512_sub_ps(second, _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536))));
    }
  }

  // Whether every h so far was finite.
  bool finite() const { return _mm512_cmpge_epu16_mask(largest_, _mm512_set1_epi16(0x7f80)) == 0; }

 private:
  void See(__m512i words) { largest_ = _mm512_max_epu16(largest_, _mm512_and_si512(words, _mm512_set1_epi16(0x7fff))); }

  // Constructors do not take the instructions that the pragma allows.
  static __m512i Nothing() { return _mm512_setzero_si512(); }
  static __m512i Interleave() {
    return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4,
                            19, 3, 18, 2, 17, 1, 16, 0);
  }

  __m512i largest_;
  const __m512i interleave_;
};

inline void Prefetch(const float* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace mslua::amx
MSLUA_AMX_END
