#include "rendezvous/tls/credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/tls/private_file.h"

namespace mslua {
namespace {

// For OpenSSL: the password of a PEM file. Without one it must not ask at the terminal.
int GivePassword(char* to, int size, int, void* password) {
  const std::string& text = *static_cast<const std::string*>(password);
  if (text.empty() || text.size() > static_cast<size_t>(size)) return -1;
  memcpy(to, text.data(), text.size());
  return static_cast<int>(text.size());
}

Status WrongPassword(const CredentialFiles& files, const std::string& path) {
  return absl::PermissionDeniedError(files.password.empty()
                                         ? absl::StrCat(path, ": the key is encrypted, and no password is given (",
                                                        files.what, "_password or ", files.what, "_password_file)")
                                         : absl::StrCat(path, ": the password is wrong (", files.what, "_password or ",
                                                        files.what, "_password_file)"));
}

// A provider of old ciphers beside the default one, for this thread as long as it lives.
class LegacyCiphers {
 public:
  LegacyCiphers() : context_(OSSL_LIB_CTX_new()) {
    default_ = OSSL_PROVIDER_load(context_, "default");
    legacy_ = OSSL_PROVIDER_load(context_, "legacy");
    before_ = OSSL_LIB_CTX_set0_default(context_);
  }
  ~LegacyCiphers() {
    OSSL_LIB_CTX_set0_default(before_);
    if (legacy_ != nullptr) OSSL_PROVIDER_unload(legacy_);
    if (default_ != nullptr) OSSL_PROVIDER_unload(default_);
    OSSL_LIB_CTX_free(context_);
  }
  bool there() const { return legacy_ != nullptr; }

 private:
  OSSL_LIB_CTX* const context_;
  OSSL_LIB_CTX* before_ = nullptr;
  OSSL_PROVIDER *default_ = nullptr, *legacy_ = nullptr;
};

// What a PKCS#12 file holds, in DER: objects belong to the library context that they were made in.
struct Encoded {
  std::string key, certificate;
  std::vector<std::string> chain;
};

template <class T, class Encode>
std::string Der(T* object, Encode encode) {
  unsigned char* bytes = nullptr;
  const int size = encode(object, &bytes);
  std::string der(reinterpret_cast<char*>(bytes), size > 0 ? static_cast<size_t>(size) : 0);
  OPENSSL_free(bytes);
  return der;
}

// Whether the file could be read; if not, OpenSSL's errors say why.
bool ParsePkcs12(absl::string_view bytes, const std::string& password, Encoded* to) {
  const BioPtr reader = ReaderOf(bytes);
  const Pkcs12Ptr file(d2i_PKCS12_bio(reader.get(), nullptr));
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  STACK_OF(X509)* others = nullptr;
  if (file == nullptr || PKCS12_parse(file.get(), password.c_str(), &key, &certificate, &others) != 1) return false;
  if (key != nullptr) to->key = Der(key, i2d_PrivateKey);
  if (certificate != nullptr) to->certificate = Der(certificate, i2d_X509);
  for (int i = 0; i < sk_X509_num(others); ++i) to->chain.push_back(Der(sk_X509_value(others, i), i2d_X509));
  EVP_PKEY_free(key);
  X509_free(certificate);
  sk_X509_pop_free(others, X509_free);
  return true;
}

CertificatePtr CertificateOf(const std::string& der) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  return CertificatePtr(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
}

StatusOr<Credentials> LoadPkcs12(const CredentialFiles& files, absl::string_view bytes) {
  const std::string name = absl::StrCat(files.what, "_cert_path ", files.certificate);
  ERR_clear_error();
  {
    const BioPtr reader = ReaderOf(bytes);
    const Pkcs12Ptr file(d2i_PKCS12_bio(reader.get(), nullptr));
    if (file == nullptr) {
      ERR_clear_error();
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected a certificate with its key, PKCS#12 or PEM"));
    }
    const bool open = PKCS12_verify_mac(file.get(), files.password.c_str(), -1) == 1 ||
                      (files.password.empty() && PKCS12_verify_mac(file.get(), nullptr, 0) == 1);
    ERR_clear_error();
    if (!open) return WrongPassword(files, name);
  }
  Encoded encoded;
  if (!ParsePkcs12(bytes, files.password, &encoded)) {
    ERR_clear_error();
    const LegacyCiphers legacy;
    if (!ParsePkcs12(bytes, files.password, &encoded)) {
      const std::string why = TakeOpensslError();
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": cannot be read: ", why,
          legacy.there() ? ""
                         : "; OpenSSL's module of old ciphers (legacy.so) is missing: write the file again with "
                           "openssl pkcs12 -export"));
    }
  }
  Credentials loaded;
  loaded.path = files.certificate;
  loaded.certificate = CertificateOf(encoded.certificate);
  const auto* at = reinterpret_cast<const unsigned char*>(encoded.key.data());
  loaded.key.reset(d2i_AutoPrivateKey(nullptr, &at, static_cast<long>(encoded.key.size())));
  OPENSSL_cleanse(&encoded.key[0], encoded.key.size());
  for (const std::string& der : encoded.chain) loaded.chain.push_back(CertificateOf(der));
  if (loaded.certificate == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, ": it holds no certificate"));
  if (loaded.key == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, ": it holds no key"));
  return loaded;
}

StatusOr<Credentials> LoadPem(const CredentialFiles& files, const std::string& bytes) {
  const std::string name = absl::StrCat(files.what, "_cert_path ", files.certificate);
  ASSIGN_OR_RETURN(std::vector<CertificatePtr> certificates, ParseCertificates(bytes, name));
  std::string key_bytes = bytes, key_name = name;
  if (!files.key.empty()) {
    key_name = absl::StrCat(files.what, "_key_path ", files.key);
    ASSIGN_OR_RETURN(key_bytes, ReadSecretFile(absl::StrCat(files.what, "_key_path"), files.key));
  }
  if (!absl::StrContains(key_bytes, "PRIVATE KEY-----")) {
    return absl::InvalidArgumentError(absl::StrCat(key_name, ": it holds no key (", files.what, "_key_path)"));
  }
  Credentials loaded;
  loaded.path = files.certificate;
  ERR_clear_error();
  const BioPtr reader = ReaderOf(key_bytes);
  std::string password = files.password;
  loaded.key.reset(PEM_read_bio_PrivateKey(reader.get(), nullptr, &GivePassword, &password));
  OPENSSL_cleanse(&key_bytes[0], key_bytes.size());
  if (loaded.key == nullptr) {
    ERR_clear_error();
    return WrongPassword(files, key_name);
  }
  loaded.certificate = std::move(certificates.front());
  for (size_t i = 1; i < certificates.size(); ++i) loaded.chain.push_back(std::move(certificates[i]));
  return loaded;
}

// `expected`: "a certificate".
template <class Pointer, class Read, class FromDer>
StatusOr<std::vector<Pointer>> ParseAll(absl::string_view bytes, const std::string& what, const char* expected,
                                        Read read, FromDer from_der) {
  std::vector<Pointer> all;
  const BioPtr reader = ReaderOf(bytes);
  bool whole = true;
  if (absl::StrContains(bytes, "-----BEGIN")) {
    ERR_clear_error();
    while (auto* object = read(reader.get(), nullptr, nullptr, nullptr)) all.emplace_back(object);
    whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  } else if (auto* object = from_der(reader.get(), nullptr)) {
    all.emplace_back(object);
  }
  ERR_clear_error();
  if (all.empty()) return absl::InvalidArgumentError(absl::StrCat(what, ": expected ", expected, ", PEM or DER"));
  if (!whole)
    return absl::InvalidArgumentError(absl::StrCat(what, ": the PEM block after the first ", all.size(),
                                                   " cannot be read: it is damaged, or not ", expected));
  return all;
}

}  // namespace

StatusOr<std::vector<CertificatePtr>> ParseCertificates(absl::string_view bytes, const std::string& what) {
  return ParseAll<CertificatePtr>(bytes, what, "a certificate", PEM_read_bio_X509, d2i_X509_bio);
}

StatusOr<std::vector<CrlPtr>> ParseCrls(absl::string_view bytes, const std::string& what) {
  return ParseAll<CrlPtr>(bytes, what, "a list of revoked certificates (CRL)", PEM_read_bio_X509_CRL, d2i_X509_CRL_bio);
}

StatusOr<Credentials> LoadCredentials(const CredentialFiles& files) {
  const std::string what = absl::StrCat(files.what, "_cert_path");
  // A PEM file without a key is nobody's secret.
  auto bytes = files.key.empty() ? ReadSecretFile(what, files.certificate) : ReadTrustedFile(what, files.certificate);
  if (!bytes.ok()) return bytes.status();
  auto loaded = absl::StrContains(*bytes, "-----BEGIN") ? LoadPem(files, *bytes) : LoadPkcs12(files, *bytes);
  OPENSSL_cleanse(&(*bytes)[0], bytes->size());
  if (!loaded.ok()) return loaded;
  if (X509_check_private_key(loaded->certificate.get(), loaded->key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat(files.what, "_cert_path ", files.certificate, ": the key is not that of the certificate"));
  }
  return loaded;
}

}  // namespace mslua
