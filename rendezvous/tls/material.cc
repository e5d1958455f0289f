#include "rendezvous/tls/material.h"

#include <openssl/err.h>

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/tls/ciphers.h"
#include "rendezvous/tls/private_file.h"
#include "rendezvous/tls/session.h"

namespace mslua {
namespace {

constexpr int kMostDepth = 8;  // certificates in a chain

// What is wrong with a chain, where its verification has stopped.
std::string DescribeVerifyError(X509_STORE_CTX* context) {
  X509* const certificate = X509_STORE_CTX_get_current_cert(context);
  const std::string name = certificate == nullptr
                               ? "certificate"
                               : absl::StrCat("certificate \"", NameText(X509_get_subject_name(certificate)), "\"");
  const int error = X509_STORE_CTX_get_error(context);
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat(name, " expired on ", DateOf(X509_get0_notAfter(certificate)));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat(name, " is not valid before ", DateOf(X509_get0_notBefore(certificate)));
    case X509_V_ERR_CERT_REVOKED:
      return absl::StrCat(name, " has been revoked (crl_path)");
    case X509_V_ERR_CRL_HAS_EXPIRED:
      return absl::StrCat("the list of revoked certificates (crl_path) for ", name, " has expired");
    case X509_V_ERR_CRL_NOT_YET_VALID:
      return absl::StrCat("the list of revoked certificates (crl_path) for ", name, " is not valid yet");
    case X509_V_ERR_UNABLE_TO_GET_CRL:
      return absl::StrCat("crl_path has no list of revoked certificates of the CA that signed ", name);
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return absl::StrCat(name, " is signed by a CA that ca_cert_path does not hold (\"",
                          certificate == nullptr ? "" : NameText(X509_get_issuer_name(certificate)), "\")");
    case X509_V_ERR_INVALID_PURPOSE:
      return absl::StrCat(name, " is not made for this use (extended key usage serverAuth or clientAuth)");
    default:
      return absl::StrCat(name, " is refused: ", X509_verify_cert_error_string(error));
  }
}

int OnVerify(int good, X509_STORE_CTX* context) {
  if (good == 1) return 1;
  const auto* ssl = static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx()));
  TlsSession* const session = ssl == nullptr ? nullptr : TlsSession::Of(ssl);
  if (session != nullptr) session->NoteVerifyError(DescribeVerifyError(context));
  return 0;
}

StatusOr<StorePtr> MakeStore(const TlsConfig& config, TlsMaterial* material) {
  StorePtr store(X509_STORE_new());
  ASSIGN_OR_RETURN(const std::string bytes, ReadTrustedFile("ca_cert_path", config.ca_cert_path));
  const std::string name = absl::StrCat("ca_cert_path ", config.ca_cert_path);
  ASSIGN_OR_RETURN(std::vector<CertificatePtr> cas, ParseCertificates(bytes, name));
  for (CertificatePtr& ca : cas) {
    X509_STORE_add_cert(store.get(), ca.get());
    material->certificates.emplace_back(name, std::move(ca));
  }
  unsigned long flags = X509_V_FLAG_PARTIAL_CHAIN;
  if (!config.crl_path.empty()) {
    ASSIGN_OR_RETURN(const std::string lists, ReadTrustedFile("crl_path", config.crl_path));
    ASSIGN_OR_RETURN(material->crls, ParseCrls(lists, absl::StrCat("crl_path ", config.crl_path)));
    for (const CrlPtr& crl : material->crls) {
      const ASN1_TIME* const until = X509_CRL_get0_nextUpdate(crl.get());
      if (until != nullptr && X509_cmp_current_time(until) <= 0) {
        return absl::PermissionDeniedError(absl::StrCat("crl_path ", config.crl_path, ": it expired on ", DateOf(until),
                                                        "; get a new one from the CA (mslua cert revoke DIR)"));
      }
      X509_STORE_add_crl(store.get(), crl.get());
    }
    flags |= X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL;
  }
  X509_STORE_set_flags(store.get(), flags);
  ERR_clear_error();
  return store;
}

// Whether others will accept this end's own certificate, as far as this end can tell. `*spent`: it was good, and the
// list that says otherwise is.
Status CheckOwn(const Credentials& own, X509_STORE* store, bool accepts, const std::string& field, bool* spent) {
  const StoreContextPtr context(X509_STORE_CTX_new());
  STACK_OF(X509)* const chain = sk_X509_new_null();
  for (const CertificatePtr& certificate : own.chain) sk_X509_push(chain, certificate.get());
  X509_STORE_CTX_init(context.get(), store, own.certificate.get(), chain);
  X509_STORE_CTX_set_purpose(context.get(), accepts ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  const bool good = X509_verify_cert(context.get()) == 1;
  const std::string why = good ? "" : DescribeVerifyError(context.get());
  // OpenSSL comes to these when it has verified the list of revoked certificates.
  const int error = X509_STORE_CTX_get_error(context.get());
  *spent = error == X509_V_ERR_CERT_REVOKED || error == X509_V_ERR_CERT_HAS_EXPIRED;
  sk_X509_free(chain);
  ERR_clear_error();
  if (good) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(field, " ", own.path, ": this end's own ", why));
}

StatusOr<SslContextPtr> MakeContext(const TlsConfig& config, const Ciphers& ciphers, const Credentials& own,
                                    X509_STORE* store) {
  SslContextPtr context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const c = context.get();
  SSL_CTX_set_min_proto_version(c, config.tls12 ? TLS1_2_VERSION : TLS1_3_VERSION);
  SSL_CTX_set_options(
      c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, &OnVerify);
  SSL_CTX_set_verify_depth(c, kMostDepth);
  SSL_CTX_set1_cert_store(c, store);
  bool good =
      SSL_CTX_set_ciphersuites(c, ciphers.tls13.c_str()) == 1 && SSL_CTX_set1_groups_list(c, "X25519:P-256") == 1;
  if (config.tls12) good = good && SSL_CTX_set_cipher_list(c, ciphers.tls12.c_str()) == 1;
  good =
      good && SSL_CTX_use_certificate(c, own.certificate.get()) == 1 && SSL_CTX_use_PrivateKey(c, own.key.get()) == 1;
  for (const CertificatePtr& certificate : own.chain) {
    good = good && SSL_CTX_add1_chain_cert(c, certificate.get()) == 1;
  }
  if (!good) return absl::InvalidArgumentError(absl::StrCat(own.path, ": OpenSSL refuses it: ", TakeOpensslError()));
  return context;
}

// The password that the user gave, or that of the file.
StatusOr<std::string> PasswordOf(const std::string& given, const std::string& file, const std::string& field) {
  if (!given.empty() || file.empty()) return given;
  ASSIGN_OR_RETURN(std::string text, ReadSecretFile(field, file));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

}  // namespace

std::vector<int64_t> FileStamps::Look(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return {};
  return {static_cast<int64_t>(info.st_dev),
          static_cast<int64_t>(info.st_ino),
          info.st_size,
          info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec,
          info.st_ctim.tv_sec,
          info.st_ctim.tv_nsec};
}

void FileStamps::Add(const std::string& path) {
  if (!path.empty()) files_.emplace_back(path, Look(path));
}

bool FileStamps::Changed() const {
  for (const auto& [path, stamp] : files_) {
    if (Look(path) != stamp) return true;
  }
  return false;
}

std::vector<TlsMaterial::Expiry> TlsMaterial::Expiries() const {
  std::vector<Expiry> all;
  for (const auto& [what, certificate] : certificates) {
    int days = 0, seconds = 0;
    const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
    ASN1_TIME_diff(&days, &seconds, nullptr, end);
    all.push_back({what, seconds < 0 ? days - 1 : days, DateOf(end)});
  }
  return all;
}

bool IsRevoked(X509* certificate, const std::vector<CrlPtr>& crls) {
  for (const CrlPtr& crl : crls) {
    X509_REVOKED* entry = nullptr;
    if (X509_NAME_cmp(X509_CRL_get_issuer(crl.get()), X509_get_issuer_name(certificate)) == 0 &&
        X509_CRL_get0_by_cert(crl.get(), &entry, certificate) == 1) {
      return true;
    }
  }
  return false;
}

StatusOr<std::shared_ptr<const TlsMaterial>> LoadTlsMaterial(const TlsOptions& options, bool again) {
  auto material = std::make_shared<TlsMaterial>();
  // Before the contents: a file that changes in between is read again.
  material->files.Add(options.config_file);
  ASSIGN_OR_RETURN(const std::string text, ReadTrustedFile("TLS configuration", options.config_file));
  ASSIGN_OR_RETURN(material->config, ParseTlsConfig(text, options.config_file));
  TlsConfig& config = material->config;
  for (const std::string* path :
       {&config.server_cert_path, &config.client_cert_path, &config.server_key_path, &config.client_key_path,
        &config.server_password_file, &config.client_password_file, &config.ca_cert_path, &config.crl_path}) {
    material->files.Add(*path);
  }
  ASSIGN_OR_RETURN(const Ciphers ciphers, ChooseCiphers(config.cipher_list));
  if (config.tls12 && ciphers.tls12.empty()) {
    return absl::InvalidArgumentError("cipher_list: it leaves no cipher of TLS 1.2, which min_version asks for");
  }
  material->warnings = ciphers.warnings;
  ASSIGN_OR_RETURN(const StorePtr store, MakeStore(config, material.get()));
  CredentialFiles server = {config.server_cert_path, config.server_key_path, "", "server"};
  CredentialFiles client = {config.client_cert_path, config.client_key_path, "", "client"};
  ASSIGN_OR_RETURN(server.password,
                   PasswordOf(options.server_password, config.server_password_file, "server_password_file"));
  ASSIGN_OR_RETURN(client.password,
                   PasswordOf(options.client_password, config.client_password_file, "client_password_file"));
  if (server.certificate.empty()) server = client;
  if (client.certificate.empty()) client = server;
  for (const bool accepts : {true, false}) {
    const CredentialFiles& files = accepts ? server : client;
    ASSIGN_OR_RETURN(Credentials own, LoadCredentials(files));
    const std::string field = absl::StrCat(files.what, "_cert_path");
    bool spent = false;
    const Status good = CheckOwn(own, store.get(), accepts, field, &spent);
    if (!good.ok() && !(again && spent)) return good;
    if (!good.ok()) material->warnings.emplace_back(good.message());
    (accepts ? material->accepting_names : material->dialling_names) = NamesOf(own.certificate.get());
    ASSIGN_OR_RETURN((accepts ? material->accepting : material->dialling),
                     MakeContext(config, ciphers, own, store.get()));
    if (accepts || server.certificate != client.certificate) {
      material->certificates.emplace_back(absl::StrCat(field, " ", files.certificate), std::move(own.certificate));
    }
  }
  return std::shared_ptr<const TlsMaterial>(std::move(material));
}

}  // namespace mslua
