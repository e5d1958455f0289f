#include "core/base/authentication.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

namespace mslua {

StatusOr<std::string> RandomBytes(size_t bytes) {
  std::string random(bytes, 0);
  for (size_t have = 0; have < bytes;) {
    const ssize_t n = getrandom(&random[have], bytes - have, 0);
    if (n > 0) {
      have += static_cast<size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      return absl::UnavailableError("the system gives no random numbers");
    }
  }
  return random;
}

std::string HmacSha256(absl::string_view key, absl::string_view message) {
  std::string digest(32, 0);
  unsigned int size = 0;
  if (key.size() > INT_MAX || HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(&digest[0]), &size) == nullptr) {
    std::abort();
  }
  return digest;
}

bool SameSecret(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace mslua
