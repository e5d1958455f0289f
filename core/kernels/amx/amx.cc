#include "core/kernels/amx/amx.h"

#if defined(__x86_64__)

#include <cstdint>

#include "core/base/processor.h"
#include "core/kernels/amx/amx-inl.h"
#include "oneapi/dnnl/dnnl.h"

namespace mslua::amx {
namespace {

// oneDNN's limit on what a process uses, the variable ONEDNN_MAX_CPU_ISA, is ours too.
bool UserAllows() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

}  // namespace

bool Available() {
  static const bool available = UserAllows() && ProcessorHasTiles();
  return available;
}

}  // namespace mslua::amx

MSLUA_AMX_BEGIN
namespace mslua::amx {
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

void TransposeWords(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  __m512i r[16], s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    s[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    s[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    s[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    s[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_si512(to + i * to_stride, _mm512_shuffle_i32x4(s[i], s[i + 8], 0x88));
    _mm512_storeu_si512(to + (i + 8) * to_stride, _mm512_shuffle_i32x4(s[i], s[i + 8], 0xdd));
  }
}

Tiles::Tiles() { Configure(); }
Tiles::~Tiles() { Release(); }

}  // namespace mslua::amx
MSLUA_AMX_END

#else  // not x86

namespace mslua::amx {
bool Available() { return false; }
void TransposeWords(const uint32_t*, int64_t, uint32_t*, int64_t) {}
Tiles::Tiles() = default;
Tiles::~Tiles() = default;
}  // namespace mslua::amx

#endif
