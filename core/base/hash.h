// Checksums of files: CRC32C finds damage fast and chunk by chunk, BLAKE2b names contents for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace mslua {

// CRC32C (Castagnoli, RFC 3720) of `size` bytes that follow those whose CRC32C is `before` (0: none).
// Uses the SSE4.2 instruction where the processor has it.
uint32_t Crc32c(const void* data, size_t size, uint32_t before = 0);
// The same from a table, on any processor.
uint32_t Crc32cPortable(const void* data, size_t size, uint32_t before = 0);

// BLAKE2b with its 64-byte digest (RFC 7693), in pieces: what `b2sum` prints.
class Blake2b {
 public:
  Blake2b();
  ~Blake2b();
  Blake2b(const Blake2b&) = delete;
  Blake2b& operator=(const Blake2b&) = delete;

  void Update(const void* data, size_t size);
  // The digest in 128 lower-case hexadecimal digits. The object then starts again from the empty input.
  std::string HexDigest();

 private:
  evp_md_ctx_st* context_;
};
// The digest of `bytes` in 128 lower-case hexadecimal digits.
std::string Blake2bHex(absl::string_view bytes);

}  // namespace mslua
