// Which ciphers a connection may use: of the user's list, those with forward secrecy (ECDHE) and AES-GCM or
// ChaCha20-Poly1305.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua {

struct Ciphers {
  std::string tls12, tls13;           // as OpenSSL takes them, the preferred first
  std::vector<std::string> warnings;  // names that OpenSSL does not know, with the nearest that it does; names not used
};

// `list`: names of TLS 1.2, separated by ':' or ','; empty: all that are good. For TLS 1.3, whose names have no key
// exchange, the ciphers that the list names, in its order. InvalidArgument: none is left.
StatusOr<Ciphers> ChooseCiphers(const std::string& list);

}  // namespace mslua
