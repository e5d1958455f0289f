#include "core/base/hash.h"

#include <openssl/evp.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
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
// What a CRC becomes when kStretch zeros follow: linear, so a table a byte of it.
constexpr size_t kStretch = 4096;
struct Crc32cShift {
  uint32_t of[4][256];
  Crc32cShift() {
    for (int k = 0; k < 4; ++k) {
      for (uint32_t b = 0; b < 256; ++b) {
        uint32_t crc = b << (8 * k);
        for (size_t i = 0; i < kStretch; ++i) crc = (crc >> 8) ^ kTables.of[0][crc & 0xff];
        of[k][b] = crc;
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return of[0][crc & 0xff] ^ of[1][(crc >> 8) & 0xff] ^ of[2][(crc >> 16) & 0xff] ^ of[3][crc >> 24];
  }
};

__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const void* data, size_t size, uint32_t before) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint64_t crc = ~before;
  // Three stretches at a time: an instruction takes three cycles, and one may begin in each.
  static const Crc32cShift shift;
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
    crc = shift(static_cast<uint32_t>(crc)) ^ static_cast<uint32_t>(second);
    crc = shift(static_cast<uint32_t>(crc)) ^ static_cast<uint32_t>(third);
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
  static const bool kHasSse42 = __builtin_cpu_supports("sse4.2");
  if (kHasSse42) return Crc32cSse42(data, size, before);
#endif
  return Crc32cPortable(data, size, before);
}

// OpenSSL has BLAKE2b built in; without it (or without memory) there is no way to go on.
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
