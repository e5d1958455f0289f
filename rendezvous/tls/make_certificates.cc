#include "rendezvous/tls/make_certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "rendezvous/tls/credentials.h"
#include "rendezvous/tls/material.h"
#include "rendezvous/tls/names.h"
#include "rendezvous/tls/openssl.h"
#include "rendezvous/tls/private_file.h"

namespace mslua {
namespace {

constexpr int kCaLife = 10;          // times as long as a certificate
constexpr long kDay = 24 * 60 * 60;  // seconds
constexpr long kBefore = 5 * 60;     // clocks of hosts differ by less

Status Openssl(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": OpenSSL: ", TakeOpensslError()));
}

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_.", absl::string_view(&c, 1));
  });
}

bool IsAddress(const std::string& host) {
  char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Unavailable, with errno's text and the exit code of files that cannot be written.
Status CannotWrite(const std::string& path) {
  return WithExitCode(absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno))), kExitStorage);
}

// A file that is there whole or not at all.
Status WriteWhole(const std::string& path, absl::string_view bytes, mode_t mode) {
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, mode));
  RETURN_IF_ERROR(file->Write(bytes.data(), bytes.size()));
  return file->Commit();
}

template <class Write>
std::string Pem(Write write) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  write(memory.get());
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension != nullptr) X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

struct Authority {
  CertificatePtr certificate;
  KeyPtr key;
};

// A certificate without extensions and signature.
CertificatePtr Blank(const std::string& name, EVP_PKEY* key, int days) {
  CertificatePtr certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  unsigned char serial[16];
  RAND_bytes(serial, sizeof serial);
  serial[0] = static_cast<unsigned char>((serial[0] & 0x7f) | 1);  // positive, and of full length
  BIGNUM* const number = BN_bin2bn(serial, sizeof serial, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kBefore);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days * kDay);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

// A certificate that the CA's key signs for itself.
StatusOr<CertificatePtr> SelfSigned(CertificatePtr certificate, EVP_PKEY* key) {
  X509* const c = certificate.get();
  X509_set_issuer_name(c, X509_get_subject_name(c));
  AddExtension(c, c, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  AddExtension(c, c, NID_key_usage, "critical,keyCertSign,cRLSign");
  AddExtension(c, c, NID_subject_key_identifier, "hash");
  if (X509_sign(c, key, EVP_sha256()) == 0) return Openssl("signing");
  return certificate;
}

StatusOr<Authority> NewAuthority(const CertificateRequest& request) {
  Authority ca;
  ca.key.reset(EVP_EC_gen("P-256"));
  if (ca.key == nullptr) return Openssl("making a key");
  const std::string name = absl::StrCat("mslua CA of ", request.job);
  ASSIGN_OR_RETURN(ca.certificate, SelfSigned(Blank(name, ca.key.get(), kCaLife * request.days), ca.key.get()));
  return ca;
}

Status WriteCaCertificate(const std::string& folder, const Authority& ca) {
  return WriteWhole(folder + "/ca.crt", Pem([&](BIO* bio) { PEM_write_bio_X509(bio, ca.certificate.get()); }), 0644);
}

StatusOr<Authority> ReadAuthority(const std::string& folder) {
  Authority ca;
  ASSIGN_OR_RETURN(const std::string certificate, ReadTrustedFile("CA", folder + "/ca.crt"));
  ASSIGN_OR_RETURN(std::vector<CertificatePtr> certificates, ParseCertificates(certificate, folder + "/ca.crt"));
  ca.certificate = std::move(certificates.front());
  ASSIGN_OR_RETURN(const std::string key, ReadSecretFile("key of the CA", folder + "/ca.key"));
  const BioPtr reader = ReaderOf(key);
  ca.key.reset(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, const_cast<char*>("")));
  ERR_clear_error();
  if (ca.key == nullptr || X509_check_private_key(ca.certificate.get(), ca.key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(absl::StrCat(folder, "/ca.key: expected the key of ca.crt"));
  }
  return ca;
}

// A certificate with its key and the CA's certificate, as PKCS#12.
StatusOr<std::string> Issue(const Authority& ca, const CertificateRequest& request, const std::string& name,
                            const std::string& usage, const std::vector<std::string>& names,
                            const std::string& password) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Openssl("making a key");
  const CertificatePtr certificate = Blank(absl::StrCat(name, " of ", request.job), key.get(), request.days);
  X509* const c = certificate.get();
  X509_set_issuer_name(c, X509_get_subject_name(ca.certificate.get()));
  AddExtension(c, ca.certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(c, ca.certificate.get(), NID_key_usage, "critical,digitalSignature");
  AddExtension(c, ca.certificate.get(), NID_ext_key_usage, usage);
  AddExtension(c, ca.certificate.get(), NID_authority_key_identifier, "keyid");
  AddExtension(c, ca.certificate.get(), NID_subject_alt_name, absl::StrJoin(names, ","));
  if (X509_sign(c, ca.key.get(), EVP_sha256()) == 0) return Openssl("signing");
  STACK_OF(X509)* const chain = sk_X509_new_null();
  sk_X509_push(chain, ca.certificate.get());
  const Pkcs12Ptr file(PKCS12_create(password.c_str(), name.c_str(), key.get(), c, chain, 0, 0, 0, 0, 0));
  sk_X509_free(chain);
  if (file == nullptr) return Openssl("writing PKCS#12");
  const BioPtr memory(BIO_new(BIO_s_mem()));
  i2d_PKCS12_bio(memory.get(), file.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

// crl.pem, with `revoked` added (null: nothing).
Status WriteCrl(const std::string& folder, const Authority& ca, CrlPtr crl, X509* revoked) {
  if (crl == nullptr) {
    crl.reset(X509_CRL_new());
    X509_CRL_set_version(crl.get(), 1);
    X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(ca.certificate.get()));
  }
  ASN1_TIME* const now = X509_gmtime_adj(nullptr, -kBefore);
  X509_CRL_set1_lastUpdate(crl.get(), now);
  X509_CRL_set1_nextUpdate(crl.get(), X509_get0_notAfter(ca.certificate.get()));
  if (revoked != nullptr) {
    X509_REVOKED* const entry = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(revoked));
    X509_REVOKED_set_revocationDate(entry, now);
    X509_CRL_add0_revoked(crl.get(), entry);
  }
  ASN1_TIME_free(now);
  X509_CRL_sort(crl.get());
  if (X509_CRL_sign(crl.get(), ca.key.get(), EVP_sha256()) == 0) return Openssl("signing");
  return WriteWhole(folder + "/crl.pem", Pem([&](BIO* bio) { PEM_write_bio_X509_CRL(bio, crl.get()); }), 0644);
}

StatusOr<std::string> ReadPassword(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadSecretFile("password", path));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

constexpr char kConfig[] = R"({
  "server_cert_path": "server.p12",
  "crl_path": "crl.pem",
  "client_cert_path": "client.p12",
  "ca_cert_path": "ca.crt",
  "server_password_file": "password",
  "client_password_file": "password",
  "cipher_list": "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305",
  "cert_expire_warning_time_in_day": %d
}
)";

// A new CA, password, list and configuration, in the folder. The CA's key comes last: with it they are complete.
StatusOr<Authority> FillFolder(const CertificateRequest& request, const std::string& password) {
  const std::string& folder = request.folder;
  ASSIGN_OR_RETURN(Authority ca, NewAuthority(request));
  RETURN_IF_ERROR(WriteWhole(folder + "/password", password + "\n", 0600));
  RETURN_IF_ERROR(WriteCaCertificate(folder, ca));
  RETURN_IF_ERROR(WriteCrl(folder, ca, nullptr, nullptr));
  // A warning with most of the time left would come with every start.
  const std::string config = absl::StrReplaceAll(kConfig, {{"%d", absl::StrCat(std::min(90, request.days / 4))}});
  RETURN_IF_ERROR(WriteWhole(folder + "/config.json", config, 0644));
  RETURN_IF_ERROR(WriteWhole(folder + "/ca.key", Pem([&](BIO* bio) {
                               PEM_write_bio_PrivateKey(bio, ca.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
                             }),
                             0600));
  return ca;
}

// The folder's CA, password, list and configuration, made where they are missing: all of them, or none.
StatusOr<Authority> PrepareFolder(const CertificateRequest& request, bool is_new, std::string* password) {
  const std::string& folder = request.folder;
  if (!is_new) {
    ASSIGN_OR_RETURN(*password, ReadPassword(folder + "/password"));
    return ReadAuthority(folder);
  }
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return CannotWrite(folder);
  constexpr const char* kFiles[] = {"ca.crt",  "server.p12", "client.p12", "attach.p12",
                                    "crl.pem", "password",   "config.json"};
  for (const char* file : kFiles) {
    if (access(absl::StrCat(folder, "/", file).c_str(), F_OK) != 0) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " has a file ", file, " and no ca.key: choose another folder"));
  }
  unsigned char random[18];
  if (RAND_bytes(random, sizeof random) != 1) return Openssl("random numbers");
  *password = absl::WebSafeBase64Escape(absl::string_view(reinterpret_cast<char*>(random), sizeof random));
  StatusOr<Authority> ca = FillFolder(request, *password);
  if (!ca.ok()) {
    for (const char* file : kFiles) unlink(absl::StrCat(folder, "/", file).c_str());
  }
  return ca;
}

StatusOr<std::vector<CrlPtr>> CrlsIn(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return std::vector<CrlPtr>();
  ASSIGN_OR_RETURN(const std::string bytes, ReadTrustedFile("CRL", path));
  return ParseCrls(bytes, path);
}

// Whether certificates of so many days outlive the CA's own.
bool ExpiresWithin(const Authority& ca, int days) {
  const std::unique_ptr<ASN1_TIME, decltype(&ASN1_TIME_free)> end(X509_gmtime_adj(nullptr, days * kDay),
                                                                  &ASN1_TIME_free);
  return ASN1_TIME_compare(X509_get0_notAfter(ca.certificate.get()), end.get()) < 0;
}

// A new certificate for the CA's key and name: what it has signed stays good. Its list of revoked ones, which expires
// with it, is made again.
Status Renew(const CertificateRequest& request, Authority* ca) {
  X509* const before = ca->certificate.get();
  const X509_NAME* const name = X509_get_subject_name(before);
  if (X509_NAME_cmp(name, X509_get_issuer_name(before)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        request.folder, "/ca.crt expires on ", DateOf(X509_get0_notAfter(before)),
        ", before the certificates that it would sign; fix: get a new one from the CA that has signed it, or --days"));
  }
  ASSIGN_OR_RETURN(std::vector<CrlPtr> crls, CrlsIn(request.folder + "/crl.pem"));
  CertificatePtr blank = Blank("CA", ca->key.get(), kCaLife * request.days);
  X509_set_subject_name(blank.get(), name);
  ASSIGN_OR_RETURN(ca->certificate, SelfSigned(std::move(blank), ca->key.get()));
  RETURN_IF_ERROR(WriteCaCertificate(request.folder, *ca));
  return WriteCrl(request.folder, *ca, crls.empty() ? nullptr : std::move(crls.front()), nullptr);
}

std::string LastPart(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder.substr(folder.rfind('/') + 1);
}

CertificateSummary SummaryOf(const std::string& file, X509* c, const std::vector<CrlPtr>& crls) {
  const CertificateNames names = NamesOf(c);
  CertificateSummary summary;
  summary.file = file;
  summary.subject = names.subject;
  summary.issuer = NameText(X509_get_issuer_name(c));
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(c), nullptr);
  char* const hex = BN_bn2hex(number);
  summary.serial = hex;
  OPENSSL_free(hex);
  BN_free(number);
  summary.from = DateOf(X509_get0_notBefore(c));
  summary.until = DateOf(X509_get0_notAfter(c));
  summary.job = names.job;
  summary.role = names.role;
  summary.hosts = names.hosts;
  summary.expired = X509_cmp_current_time(X509_get0_notAfter(c)) <= 0;
  summary.revoked = IsRevoked(c, crls);
  return summary;
}

// The certificates in a file; a key is not needed.
StatusOr<std::vector<CertificatePtr>> CertificatesIn(const std::string& path, const std::string& password_file) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadTrustedFile("certificate", path));
  auto plain = ParseCertificates(bytes, path);
  if (plain.ok()) return plain;
  if (ParseCrls(bytes, path).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected a certificate, got a list of revoked ones; `mslua cert show DIR` says which those are"));
  }
  // A sequence of ASN.1, as PKCS#12 is, or PEM.
  if (bytes.empty() || (bytes[0] != 0x30 && !absl::StrContains(bytes, "-----BEGIN "))) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a certificate or a PKCS#12 file"));
  }
  std::string file = password_file;
  if (file.empty()) file = path.substr(0, path.rfind('/') + 1) + "password";
  CredentialFiles files = {path, "", "", "server"};
  if (!password_file.empty() || access(file.c_str(), F_OK) == 0) {
    ASSIGN_OR_RETURN(files.password, ReadPassword(file));
  }
  auto loaded = LoadCredentials(files);
  if (!loaded.ok())
    return Status(loaded.status().code(), absl::StrCat(path,
                                                       ": not a certificate, and no PKCS#12 file "
                                                       "that opens (--password-file): ",
                                                       loaded.status().message()));
  std::vector<CertificatePtr> all;
  all.push_back(std::move(loaded->certificate));
  return all;
}

}  // namespace

Status MakeCertificates(const CertificateRequest& given, bool* renewed) {
  CertificateRequest request = given;
  const bool is_new = access((request.folder + "/ca.key").c_str(), F_OK) != 0;
  if (!is_new) {
    const auto before = ShowCertificates(request.folder + "/server.p12", "");
    if (before.ok() && request.job.empty()) request.job = before->front().job;
    if (before.ok() && request.hosts.empty()) request.hosts = before->front().hosts;
  }
  if (request.job.empty()) request.job = LastPart(request.folder);
  if (!IsName(request.job)) {
    return absl::InvalidArgumentError(
        absl::StrCat("job \"", request.job, "\": expected 1 to 64 letters, digits, '-', '_' or '.' (--job)"));
  }
  std::vector<std::string> job = {absl::StrCat("URI:", kJobUri, request.job)}, server = job, attach = job;
  for (const std::string& host : request.hosts) {
    if (!IsAddress(host) && !IsName(absl::StartsWith(host, "*.") ? absl::string_view(host).substr(2) : host)) {
      return absl::InvalidArgumentError(absl::StrCat("host \"", host, "\": expected a name or an address (--hosts)"));
    }
    server.push_back(absl::StrCat(IsAddress(host) ? "IP:" : "DNS:", host));
  }
  attach.push_back(absl::StrCat("URI:", kRoleUri, "steer"));
  std::string password;
  ASSIGN_OR_RETURN(Authority ca, PrepareFolder(request, is_new, &password));
  const bool renews = ExpiresWithin(ca, request.days);
  if (renews) RETURN_IF_ERROR(Renew(request, &ca));
  if (renewed != nullptr) *renewed = renews;
  for (const auto& [name, usage, names] :
       {std::tuple("server", "serverAuth", &server), std::tuple("client", "clientAuth", &job),
        std::tuple("attach", "clientAuth", &attach)}) {
    ASSIGN_OR_RETURN(const std::string bytes, Issue(ca, request, name, usage, *names, password));
    RETURN_IF_ERROR(WriteWhole(absl::StrCat(request.folder, "/", name, ".p12"), bytes, 0600));
  }
  return absl::OkStatus();
}

Status RevokeCertificate(const std::string& folder, const std::string& name) {
  ASSIGN_OR_RETURN(const Authority ca, ReadAuthority(folder));
  const std::string path = absl::StrContains(name, '/') ? name : absl::StrCat(folder, "/", name);
  ASSIGN_OR_RETURN(const auto certificates, CertificatesIn(path, ""));
  X509* const certificate = certificates.front().get();
  if (X509_NAME_cmp(X509_get_issuer_name(certificate), X509_get_subject_name(ca.certificate.get())) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": it is not of the CA in ", folder));
  }
  if (X509_check_ca(certificate) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": it is the CA's own certificate, and every certificate of the folder would go with it; fix: to replace ",
        "a CA, make another folder (mslua cert make NEW) and copy it to all hosts of the job"));
  }
  ASSIGN_OR_RETURN(std::vector<CrlPtr> crls, CrlsIn(folder + "/crl.pem"));
  if (IsRevoked(certificate, crls)) return absl::AlreadyExistsError(absl::StrCat(path, ": it has been revoked before"));
  return WriteCrl(folder, ca, crls.empty() ? nullptr : std::move(crls.front()), certificate);
}

StatusOr<std::vector<CertificateSummary>> ShowCertificates(const std::string& path, const std::string& password_file) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::NotFoundError(absl::StrCat(path, ": ", strerror(errno)));
  const bool is_folder = S_ISDIR(info.st_mode);
  const std::string folder = is_folder ? path + "/" : path.substr(0, path.rfind('/') + 1);
  ASSIGN_OR_RETURN(const std::vector<CrlPtr> crls, CrlsIn(folder + "crl.pem"));
  std::vector<std::string> files = {path};
  if (is_folder) {
    files.clear();
    for (const char* name : {"ca.crt", "server.p12", "client.p12", "attach.p12"}) {
      if (access((folder + name).c_str(), F_OK) == 0) files.push_back(folder + name);
    }
    if (files.empty()) {
      return absl::NotFoundError(
          absl::StrCat(path, ": no ca.crt and no server.p12 there (mslua cert make makes them)"));
    }
  }
  std::vector<CertificateSummary> all;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const auto certificates, CertificatesIn(file, password_file));
    for (const CertificatePtr& c : certificates) all.push_back(SummaryOf(file, c.get(), crls));
  }
  return all;
}

}  // namespace mslua
