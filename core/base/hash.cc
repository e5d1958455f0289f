#include "core/base/hash.h"

#include <openssl/evp.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mslua {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed

// tables[k][b]: what byte b does to the CRC when k more bytes follow it ("slicing by 8").
struct Crc32cTables {
  uint32_t of[8][256];
  constexpr Crc32cTables() : of() {
    for (uint32_t b = 0; b < 256; ++b) {
      uint32_t crc = b;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
      of[0][b] = crc;
    }
    for (int k = 1; k < 8; ++k) {
      for (uint32_t b = 0; b < 256; ++b) of[k][b] = (of[k - 1][b] >> 8) ^ of[0][of[k - 1][b] & 0xff];
    }
  }
};
constexpr Crc32cTables kTables;

#if defined(__x86_64__)
// What a CRC becomes when kStretch zeros follow: linear, so a table a byte of it. To shift by twice as many zeros is to
// shift twice.
constexpr size_t kStretch = 4096;
static_assert((kStretch & (kStretch - 1)) == 0);
struct Crc32cShift {
  uint32_t of[4][256];
  constexpr Crc32cShift() : of() {
    uint32_t bits[32] = {};  // what each bit becomes
    for (int i = 0; i < 32; ++i) bits[i] = (uint32_t{1} << i >> 8) ^ kTables.of[0][uint32_t{1} << i & 0xff];
    for (size_t zeros = 1; zeros < kStretch; zeros *= 2) {
      uint32_t twice[32] = {};
      for (int i = 0; i < 32; ++i) twice[i] = Sum(bits, bits[i]);
      for (int i = 0; i < 32; ++i) bits[i] = twice[i];
    }
    for (int k = 0; k < 4; ++k) {
      for (uint32_t b = 0; b < 256; ++b) of[k][b] = Sum(bits, b << (8 * k));
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return of[0][crc & 0xff] ^ of[1][(crc >> 8) & 0xff] ^ of[2][(crc >> 16) & 0xff] ^ of[3][crc >> 24];
  }

 private:
  static constexpr uint32_t Sum(const uint32_t (&bits)[32], uint32_t x) {
    uint32_t sum = 0;
    for (int i = 0; i < 32; ++i) sum ^= (x >> i & 1) != 0 ? bits[i] : 0;
    return sum;
  }
};
constexpr Crc32cShift kShift;

__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const void* data, size_t size, uint32_t before) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint64_t crc = ~before;
  // Three stretches at a time: an instruction takes three cycles, and one may begin in each.
  for (; size >= 3 * kStretch; size -= 3 * kStretch, p += 3 * kStretch) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      uint64_t words[3];
      std::memcpy(&words[0], p + i, 8);
      std::memcpy(&words[1], p + kStretch + i, 8);
      std::memcpy(&words[2], p + 2 * kStretch + i, 8);
      crc = _mm_crc32_u64(crc, words[0]);
      second = _mm_crc32_u64(second, words[1]);
      third = _mm_crc32_u64(third, words[2]);
    }
    crc = kShift(static_cast<uint32_t>(crc)) ^ static_cast<uint32_t>(second);
    crc = kShift(static_cast<uint32_t>(crc)) ^ static_cast<uint32_t>(third);
  }
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  uint32_t last = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++p) last = _mm_crc32_u8(last, *p);
  return ~last;
}

// x^n modulo the polynomial, bits reversed.
constexpr uint32_t PowerOfX(int n) {
  uint32_t power = 0x80000000;
  for (; n > 0; --n) power = (power >> 1) ^ ((power & 1) ? kPolynomial : 0);
  return power;
}

// Folding: in each lane of 16 bytes, x is moved `kBits` further modulo the polynomial, by multiplications without
// carry of its first 8 bytes by the low half of a constant and of the others by the high one, and added to `to`. A
// product of reversed operands is x short, operands of 32 bits in 64 are x^32 long.
template <int kBits>
__attribute__((target("avx512f"))) inline __m512i FoldConstants() {
  constexpr long long kLow = PowerOfX(kBits + 31), kHigh = PowerOfX(kBits - 33);
  return _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
}
__attribute__((target("avx512f,vpclmulqdq"))) inline __m512i Fold(__m512i x, __m512i by, __m512i to) {
  const __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00), high = _mm512_clmulepi64_epi128(x, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, to, 0x96);
}

// Four registers of 64 bytes are folded into the next 256 bytes, again and again, then into their last 16 bytes, whose
// CRC is that of all.
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t Crc32cAvx512(const void* data, size_t size,
                                                                           uint32_t before) {
  constexpr size_t kStep = 256;
  if (size < 2 * kStep) return Crc32cSse42(data, size, before);
  const uint8_t* p = static_cast<const uint8_t*>(data);
  __m512i a =
      _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~before))));
  __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
  const __m512i by = FoldConstants<8 * kStep>();
  for (p += kStep, size -= kStep; size >= kStep; p += kStep, size -= kStep) {
    a = Fold(a, by, _mm512_loadu_si512(p));
    b = Fold(b, by, _mm512_loadu_si512(p + 64));
    c = Fold(c, by, _mm512_loadu_si512(p + 128));
    d = Fold(d, by, _mm512_loadu_si512(p + 192));
  }
  const __m512i by_register = FoldConstants<512>();
  a = Fold(Fold(Fold(a, by_register, b), by_register, c), by_register, d);
  const __m512i by_lane = FoldConstants<128>();
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, a);
  alignas(64) uint64_t sum[8] = {lanes[0], lanes[1]};
  for (int lane = 1; lane < 4; ++lane) {
    const __m512i next = _mm512_set_epi64(0, 0, 0, 0, 0, 0, lanes[2 * lane + 1], lanes[2 * lane]);
    _mm512_store_si512(sum, Fold(_mm512_load_si512(sum), by_lane, next));
  }
  const uint64_t crc = _mm_crc32_u64(_mm_crc32_u64(0, sum[0]), sum[1]);
  return Crc32cSse42(p, size, ~static_cast<uint32_t>(crc));
}
#endif

}  // namespace

uint32_t Crc32cPortable(const void* data, size_t size, uint32_t before) {
  const auto& t = kTables.of;
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint32_t crc = ~before;
  for (; size >= 8; size -= 8, p += 8) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= crc;
    crc = t[7][low & 0xff] ^ t[6][(low >> 8) & 0xff] ^ t[5][(low >> 16) & 0xff] ^ t[4][low >> 24] ^ t[3][high & 0xff] ^
          t[2][(high >> 8) & 0xff] ^ t[1][(high >> 16) & 0xff] ^ t[0][high >> 24];
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xff];
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t size, uint32_t before) {
#if defined(__x86_64__)
  static const bool kHasAvx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  if (kHasAvx512) return Crc32cAvx512(data, size, before);
  static const bool kHasSse42 = __builtin_cpu_supports("sse4.2");
  if (kHasSse42) return Crc32cSse42(data, size, before);
#endif
  return Crc32cPortable(data, size, before);
}

// OpenSSL has BLAKE2b built in; without it (or without memory) it cannot continue.
Blake2b::Blake2b() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(context_, EVP_blake2b512(), nullptr) != 1) std::abort();
}

Blake2b::~Blake2b() { EVP_MD_CTX_free(context_); }

void Blake2b::Update(const void* data, size_t size) {
  if (EVP_DigestUpdate(context_, data, size) != 1) std::abort();
}

std::string Blake2b::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(context_, digest.data(), &size) != 1 ||
      EVP_DigestInit_ex(context_, EVP_blake2b512(), nullptr) != 1) {
    std::abort();
  }
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

std::string Blake2bHex(absl::string_view bytes) {
  Blake2b hash;
  hash.Update(bytes.data(), bytes.size());
  return hash.HexDigest();
}

}  // namespace mslua
