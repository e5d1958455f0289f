// What a certificate says of its owner, and whether two ends of a connection may speak with each other because of it.
#pragma once

#include <openssl/x509.h>

#include <string>
#include <vector>

#include "rendezvous/tls/config.h"

namespace mslua {

// The URIs that certificates of `mslua cert make` carry: "mslua:job/NAME", "mslua:role/look".
inline constexpr char kJobUri[] = "mslua:job/";
inline constexpr char kRoleUri[] = "mslua:role/";

struct CertificateNames {
  std::string subject;             // for messages
  std::string job;                 // empty: it names none
  std::string role;                // of a client that attaches; empty: a scheduler or a rank
  std::vector<std::string> hosts;  // names and addresses
};
// From its subject and its subjectAltName.
CertificateNames NamesOf(X509* certificate);

// Who the peer has to be: a process of the job, or a client that attaches ("look" or "steer").
enum class PeerIs { kMember, kClient };

struct Meeting {
  CertificateNames mine, theirs;
  TlsConfig::Verify verify = TlsConfig::Verify::kBest;
  PeerIs peer = PeerIs::kMember;
  std::string dialled;          // the name or the address that this end has dialled; empty: this end accepts
  X509* certificate = nullptr;  // the peer's
};
// Why this end refuses the other, in words for both; empty: it does not. `*unnamed`: nothing but the chain decides.
std::string Refusal(const Meeting& meeting, bool* unnamed);

}  // namespace mslua
