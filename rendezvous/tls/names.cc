#include "rendezvous/tls/names.h"

#include <arpa/inet.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/printable.h"
#include "rendezvous/tls/openssl.h"

namespace mslua {
namespace {

absl::string_view TextOf(const ASN1_STRING* text) {
  return absl::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                           static_cast<size_t>(ASN1_STRING_length(text)));
}

std::string AddressText(const ASN1_STRING* address) {
  char text[INET6_ADDRSTRLEN] = "?";
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  if (ASN1_STRING_length(address) == 4 || ASN1_STRING_length(address) == 16) {
    inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof text);
  }
  return text;
}

bool IsAddress(const std::string& host) {
  char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

bool NamesHost(X509* certificate, const std::string& host) {
  if (IsAddress(host)) return X509_check_ip_asc(certificate, host.c_str(), 0) == 1;
  // Names of the subject (CN) do not count.
  return X509_check_host(certificate, host.data(), host.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr) == 1;
}

std::string Shown(const CertificateNames& names) { return absl::StrCat("certificate \"", names.subject, "\""); }

}  // namespace

CertificateNames NamesOf(X509* certificate) {
  CertificateNames names;
  names.subject = NameText(X509_get_subject_name(certificate));
  auto* const all = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all, i);
    if (name->type == GEN_DNS) {
      names.hosts.push_back(Printable(TextOf(name->d.dNSName)));
    } else if (name->type == GEN_IPADD) {
      names.hosts.push_back(AddressText(name->d.iPAddress));
    } else if (name->type == GEN_URI) {
      const absl::string_view uri = TextOf(name->d.uniformResourceIdentifier);
      if (absl::StartsWith(uri, kJobUri)) names.job = std::string(uri.substr(sizeof kJobUri - 1));
      if (absl::StartsWith(uri, kRoleUri)) names.role = std::string(uri.substr(sizeof kRoleUri - 1));
    }
  }
  GENERAL_NAMES_free(all);
  return names;
}

std::string Refusal(const Meeting& meeting, bool* unnamed) {
  using Verify = TlsConfig::Verify;
  const CertificateNames &mine = meeting.mine, &theirs = meeting.theirs;
  *unnamed = false;
  if (meeting.peer == PeerIs::kMember && !theirs.role.empty()) {
    return absl::StrCat(Shown(theirs), " is for clients that attach (role ", Printable(theirs.role),
                        "), not for a rank or a scheduler");
  }
  if (meeting.peer == PeerIs::kClient && theirs.role != "look" && theirs.role != "steer") {
    return absl::StrCat(Shown(theirs), " is not for clients that attach (URI ", kRoleUri, "look or ", kRoleUri,
                        "steer)");
  }
  const bool both = !mine.job.empty() && !theirs.job.empty();
  if (meeting.verify == Verify::kChain) return "";
  if (meeting.verify == Verify::kJob || (meeting.verify == Verify::kBest && both)) {
    if (mine.job == theirs.job && both) return "";
    return absl::StrCat(Shown(theirs), " is for ",
                        theirs.job.empty() ? "no job" : absl::StrCat("job \"", Printable(theirs.job), "\""),
                        ", and this is ",
                        mine.job.empty() ? "a process whose certificate names no job"
                                         : absl::StrCat("job \"", Printable(mine.job), "\""));
  }
  if (meeting.dialled.empty()) return "";  // hosts are what the end that dials looks at
  if (theirs.hosts.empty() && meeting.verify == Verify::kBest) {
    *unnamed = true;
    return "";
  }
  if (NamesHost(meeting.certificate, meeting.dialled)) return "";
  return absl::StrCat(Shown(theirs), " is for ",
                      theirs.hosts.empty() ? "no host" : absl::StrCat("host ", absl::StrJoin(theirs.hosts, ", ")),
                      ", and \"", meeting.dialled, "\" was dialled");
}

}  // namespace mslua
