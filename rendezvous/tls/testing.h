// For tests: certificates of a folder that `MakeCertificates` has made, changed and signed again.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "openssl/pem.h"
#include "rendezvous/tls/credentials.h"
#include "rendezvous/tls/make_certificates.h"
#include "rendezvous/tls/openssl.h"

namespace mslua {

inline std::string ContentsOf(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void WriteTo(const std::string& path, const std::string& text) {
  std::filesystem::remove(path);
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// A folder of certificates, removed at the end.
class TestCertificates {
 public:
  explicit TestCertificates(CertificateRequest request = {}) {
    char path[] = "/tmp/mslua-tls-XXXXXX";
    root_ = mkdtemp(path);
    request.folder = root_ + "/tls";
    if (request.job.empty()) request.job = "test";
    made_ = MakeCertificates(request);
  }
  // The same files in a folder of their own.
  TestCertificates(const TestCertificates& other) : TestCertificates(CertificateRequest()) {
    const auto overwrite = std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy(other.root_, root_, overwrite | std::filesystem::copy_options::recursive);
  }
  ~TestCertificates() { std::filesystem::remove_all(root_); }
  const Status& made() const { return made_; }
  std::string operator/(const std::string& name) const { return root_ + "/tls/" + name; }
  std::string config() const { return *this / "config.json"; }
  std::string password() const { return std::string(absl::StripAsciiWhitespace(ContentsOf(*this / "password"))); }
  // Replaces a piece of the configuration.
  void Configure(const std::string& from, const std::string& to) const {
    WriteTo(config(), absl::StrReplaceAll(ContentsOf(config()), {{from, to}}));
  }
  Credentials Load(const std::string& name) const {
    return std::move(*LoadCredentials({*this / name, "", password(), "server"}));
  }
  // Signs the certificate of a file again, after `edit`.
  void Change(const std::string& name, const std::function<void(X509*)>& edit) const {
    const Credentials old = Load(name);
    const std::string key_text = ContentsOf(*this / "ca.key");
    const BioPtr reader = ReaderOf(key_text);
    const KeyPtr ca(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, nullptr));
    edit(old.certificate.get());
    X509_sign(old.certificate.get(), ca.get(), EVP_sha256());
    STACK_OF(X509)* const chain = sk_X509_new_null();
    const Pkcs12Ptr file(
        PKCS12_create(password().c_str(), "", old.key.get(), old.certificate.get(), chain, 0, 0, 0, 0, 0));
    sk_X509_free(chain);
    const BioPtr memory(BIO_new(BIO_s_mem()));
    i2d_PKCS12_bio(memory.get(), file.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(memory.get(), &bytes);
    WriteTo(*this / name, std::string(bytes, static_cast<size_t>(size)));
  }

 private:
  std::string root_;
  Status made_;
};

}  // namespace mslua
