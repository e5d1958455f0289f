// The configuration file of TLS (JSON), field by field. A pure function over its text.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

struct TlsConfig {
  // Certificates with their keys, PKCS#12 or PEM: of the end that accepts, and of the end that dials. One of the two
  // serves for both.
  std::string server_cert_path, client_cert_path;
  // Keys in PEM files of their own; empty: with the certificate.
  std::string server_key_path, client_key_path;
  std::string server_password_file, client_password_file;
  std::string ca_cert_path;
  std::string crl_path;     // empty: no certificate is revoked
  std::string cipher_list;  // names of TLS 1.2, separated by ':'; empty: all that are good
  int cert_expire_warning_time_in_day = 90;
  bool tls12 = false;  // "min_version": "1.2"; else 1.3
  // What a certificate has to say besides its chain. kBest: the job where both certificates name one, else the host
  // where the accepting end's certificate names any, else nothing.
  enum class Verify { kBest, kJob, kHost, kChain };
  Verify verify = Verify::kBest;
};

// `path` is where `text` comes from: for messages, and for relative paths, which begin in its folder. InvalidArgument
// names the field, what was expected and what was given.
StatusOr<TlsConfig> ParseTlsConfig(absl::string_view text, const std::string& path);

}  // namespace mslua
