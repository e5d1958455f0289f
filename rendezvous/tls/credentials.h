// A certificate with its key, from a file: PKCS#12 or PEM.
#pragma once

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/status.h"
#include "rendezvous/tls/openssl.h"

namespace mslua {

struct Credentials {
  CertificatePtr certificate;
  KeyPtr key;
  std::vector<CertificatePtr> chain;  // certificates of CAs that the file holds
  std::string path;                   // for messages
};

struct CredentialFiles {
  std::string certificate;  // PKCS#12, or PEM with one or more certificates
  std::string key;          // PEM; empty: with the certificate
  std::string password;     // of the PKCS#12 file or of an encrypted key
  std::string what;         // "server": begins the names of its fields in messages
};

// PermissionDenied: others can read the file, or the password is wrong. NotFound. InvalidArgument: no certificate, no
// key, or a key that is not the certificate's. Files of OpenSSL 1 (RC2-40) are read too.
StatusOr<Credentials> LoadCredentials(const CredentialFiles& files);

// All certificates in `bytes`, PEM or one in DER; `what` begins messages. InvalidArgument: there is none.
StatusOr<std::vector<CertificatePtr>> ParseCertificates(absl::string_view bytes, const std::string& what);
// All revocation lists, PEM or one in DER.
StatusOr<std::vector<CrlPtr>> ParseCrls(absl::string_view bytes, const std::string& what);

}  // namespace mslua
