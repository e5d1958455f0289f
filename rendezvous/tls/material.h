// What sessions are made from: the files of a configuration, read and checked.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "rendezvous/tls/config.h"
#include "rendezvous/tls/credentials.h"
#include "rendezvous/tls/names.h"
#include "rendezvous/tls/options.h"

namespace mslua {

// The files as they were when they were read.
class FileStamps {
 public:
  void Add(const std::string& path);
  bool Changed() const;

 private:
  static std::vector<int64_t> Look(const std::string& path);
  std::vector<std::pair<std::string, std::vector<int64_t>>> files_;
};

struct TlsMaterial {
  TlsConfig config;
  FileStamps files;
  SslContextPtr accepting, dialling;
  CertificateNames accepting_names, dialling_names;
  std::vector<CrlPtr> crls;
  struct Expiry {
    std::string what;
    int days = 0;  // until then; below 0: before
    std::string date;
  };
  // Own certificates and those of CAs, at the time of the call.
  std::vector<Expiry> Expiries() const;
  std::vector<std::pair<std::string, CertificatePtr>> certificates;  // for Expiries, by what they are
  std::vector<std::string> warnings;
};

// Reads and checks all files. Every connection's chain is verified; what is wrong with one is noted in its session.
// `again`: the files have changed while a job runs. Then an own certificate that has been revoked or has expired is a
// warning: the others refuse it, and a list that says so has to take effect here, too.
StatusOr<std::shared_ptr<const TlsMaterial>> LoadTlsMaterial(const TlsOptions& options, bool again = false);

// Whether a certificate is in one of the lists of its issuer.
bool IsRevoked(X509* certificate, const std::vector<CrlPtr>& crls);

}  // namespace mslua
