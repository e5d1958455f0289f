// What proofs of identity are made of: random numbers, a keyed checksum, a comparison that gives nothing away.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// `bytes` random bytes from the system. Unavailable: it has none.
StatusOr<std::string> RandomBytes(size_t bytes);

// HMAC-SHA-256 (RFC 2104) of `message` under `key`: 32 bytes.
std::string HmacSha256(absl::string_view key, absl::string_view message);

// Whether `a` and `b` are equal; takes the same time wherever they differ.
bool SameSecret(absl::string_view a, absl::string_view b);

}  // namespace mslua
