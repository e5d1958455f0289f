// Messages of the control connection: what decodes encodes, and decodes again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/hash.h"
#include "rendezvous/control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  (void)mslua::DecodeControl(text);
  if (size < mslua::kControlHeaderBytes) return 0;
  // With the length and the checksum put right, so that damage reaches the body's decoder.
  std::string sealed(text);
  const auto body = static_cast<uint32_t>(size - mslua::kControlHeaderBytes);
  std::memcpy(&sealed[8], &body, sizeof body);
  const uint32_t crc = mslua::Crc32c(sealed.data() + mslua::kControlHeaderBytes, body, mslua::Crc32c(&sealed[4], 8));
  std::memcpy(&sealed[12], &crc, sizeof crc);
  const auto message = mslua::DecodeControl(sealed);
  if (message.ok() && !mslua::DecodeControl(mslua::EncodeControl(*message)).ok()) std::abort();
  return 0;
}
