// A certificate authority of one's own in a folder: for jobs whose site has none, and for tests.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua {

// Files of the folder: ca.crt, ca.key, server.p12, client.p12, attach.p12, crl.pem, password, config.json.
struct CertificateRequest {
  std::string folder;
  std::vector<std::string> hosts;  // names and addresses of the hosts that accept; empty: as before, else none
  std::string job;                 // letters, digits, '-', '_', '.'; empty: as before, else the folder's name
  int days = 30;                   // certificates hold so long, the CA ten times
};

// Makes the folder with a new CA; or, where there is one, new certificates of it in the place of those before, which
// stay good until they expire or are revoked. A CA that would expire before them gets a new certificate for its key,
// ca.crt, and a new crl.pem: `*renewed`, if it is not null, says so. InvalidArgument: a name or a number that cannot
// be. Files that others must not read have mode 0600.
Status MakeCertificates(const CertificateRequest& request, bool* renewed = nullptr);

// Puts the certificate of file `name` ("client.p12", or any path) on the folder's list of revoked ones, crl.pem.
// AlreadyExists: it is on it. NotFound. InvalidArgument: it is none of the CA's, or the CA's own.
Status RevokeCertificate(const std::string& folder, const std::string& name);

struct CertificateSummary {
  std::string file, subject, issuer, serial, from, until;
  std::string job, role;
  std::vector<std::string> hosts;
  bool expired = false, revoked = false;
};
// Of the certificates in `path`: a folder as above, or a file. `password_file`: of PKCS#12 files; empty: the file
// "password" beside them.
StatusOr<std::vector<CertificateSummary>> ShowCertificates(const std::string& path, const std::string& password_file);

}  // namespace mslua
