// TLS configurations from outside.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "rendezvous/tls/ciphers.h"
#include "rendezvous/tls/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config =
      mslua::ParseTlsConfig(absl::string_view(reinterpret_cast<const char*>(data), size), "folder/config.json");
  if (!config.ok()) return 0;
  if (config->ca_cert_path.empty()) std::abort();
  const auto ciphers = mslua::ChooseCiphers(config->cipher_list.substr(0, 1000));
  if (ciphers.ok() && ciphers->tls13.empty()) std::abort();
  return 0;
}
