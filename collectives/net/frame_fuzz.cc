// Headers of collectives between hosts, given a true checksum, so that damage reaches the decoder: what is accepted is
// within the limits.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "collectives/net/frame.h"
#include "core/base/hash.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (size < mslua::kFrameHeaderBytes) return 0;
  std::string header(text.substr(0, mslua::kFrameHeaderBytes));
  const uint32_t crc = mslua::Crc32c(header.data(), header.size() - sizeof(uint32_t));
  std::memcpy(&header[header.size() - sizeof crc], &crc, sizeof crc);
  int source = 0;
  const auto frame = mslua::DecodeFrameHeader(header, &source);
  if (frame.ok() && (source < 0 || source > mslua::kMaxSourceBytes || frame->bytes > mslua::kMaxFramePayload))
    std::abort();
  return 0;
}
