#include "rendezvous/tls/ciphers.h"

#include <openssl/err.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/printable.h"
#include "rendezvous/tls/openssl.h"

namespace mslua {
namespace {

constexpr char kAll[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

// All names that this OpenSSL knows.
const std::set<std::string>& Known() {
  static const auto* const known = [] {
    auto* names = new std::set<std::string>;
    const SslContextPtr context(SSL_CTX_new(TLS_method()));
    SSL_CTX_set_cipher_list(context.get(), "ALL:COMPLEMENTOFALL:@SECLEVEL=0");
    const STACK_OF(SSL_CIPHER)* ciphers = SSL_CTX_get_ciphers(context.get());
    for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); ++i) {
      names->insert(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(ciphers, i)));
    }
    ERR_clear_error();
    return names;
  }();
  return *known;
}

size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string Nearest(const std::string& name) {
  const std::string text = name.substr(0, 64);
  const auto& known = Known();
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return Distance(text, a) < Distance(text, b);
  });
}

// The suite of TLS 1.3 with the same cipher; empty: it is not used.
std::string Suite(absl::string_view name) {
  if (absl::StartsWith(name, "TLS_")) {
    const bool good =
        name == "TLS_AES_128_GCM_SHA256" || name == "TLS_AES_256_GCM_SHA384" || name == "TLS_CHACHA20_POLY1305_SHA256";
    return good ? std::string(name) : "";
  }
  const bool good = absl::StartsWith(name, "ECDHE-RSA-") || absl::StartsWith(name, "ECDHE-ECDSA-");
  if (good && absl::EndsWith(name, "-AES128-GCM-SHA256")) return "TLS_AES_128_GCM_SHA256";
  if (good && absl::EndsWith(name, "-AES256-GCM-SHA384")) return "TLS_AES_256_GCM_SHA384";
  if (good && absl::EndsWith(name, "-CHACHA20-POLY1305")) return "TLS_CHACHA20_POLY1305_SHA256";
  return "";
}

}  // namespace

StatusOr<Ciphers> ChooseCiphers(const std::string& list) {
  Ciphers chosen;
  std::vector<std::string> tls12, tls13, unused;
  for (const absl::string_view part : absl::StrSplit(list.empty() ? kAll : list, absl::ByAnyChar(":,"))) {
    const std::string name(absl::StripAsciiWhitespace(part));
    if (name.empty()) continue;
    if (Known().count(name) == 0) {
      chosen.warnings.push_back(absl::StrCat("cipher_list: this OpenSSL knows no cipher \"",
                                             Printable(name.substr(0, 64)), "\"; did you mean \"", Nearest(name),
                                             "\"? It is left out"));
      continue;
    }
    const std::string suite = Suite(name);
    if (suite.empty()) {
      unused.push_back(name);
      continue;
    }
    if (std::find(tls13.begin(), tls13.end(), suite) == tls13.end()) tls13.push_back(suite);
    if (suite != name) tls12.push_back(name);
  }
  if (tls13.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cipher_list: it leaves no cipher; expected at least one of ", kAll,
                     chosen.warnings.empty() ? "" : absl::StrCat("; ", absl::StrJoin(chosen.warnings, "; "))));
  }
  if (!unused.empty()) {
    chosen.warnings.push_back(absl::StrCat(
        "cipher_list: ", unused.size(), unused.size() == 1 ? " name is" : " names are", " left out (", unused[0],
        unused.size() > 1 ? ", ..." : "", "): mslua uses ECDHE with AES-GCM or ChaCha20-Poly1305 only"));
  }
  chosen.tls12 = absl::StrJoin(tls12, ":");
  chosen.tls13 = absl::StrJoin(tls13, ":");
  return chosen;
}

}  // namespace mslua
