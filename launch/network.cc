#include "launch/network.h"

#include <stdlib.h>
#include <string.h>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "rendezvous/cause.h"

namespace mslua {

StatusOr<std::shared_ptr<Tls>> LoadTls(const NetworkOptions& options,
                                       const std::function<void(const std::string&)>& log) {
  if (options.tls_file.empty()) return std::shared_ptr<Tls>();
  auto tls = Tls::Load({options.tls_file, options.client_password, options.server_password, log});
  if (!tls.ok()) return WithCause(tls.status(), {-1, kExitSecurity});
  return tls;
}

Status AddTlsVariable(const std::string& tls_file, NetworkOptions* options) {
  const bool flag = !options->tls_file.empty();
  if (options->plaintext.value_or(false) && (flag || !tls_file.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag ? "--tls" : "MSLUA_TLS", " and --insecure-network exclude each other: ",
                     flag ? "leave one out" : "unset the variable, or leave out the flag"));
  }
  if (!flag) options->tls_file = tls_file;
  return absl::OkStatus();
}

std::string EncryptionLine(bool encrypted) {
  return encrypted ? "connections between hosts are encrypted (TLS)"
                   : "warning: connections between hosts are authenticated and not encrypted";
}

Status CheckNetwork(const NetworkOptions& options, const std::string& host) {
  const char* word = getenv("MSLUA_PLAINTEXT");
  const bool consents = word != nullptr && strcmp(word, "1") == 0;
  if (!options.tls_file.empty() || options.plaintext.value_or(consents)) return absl::OkStatus();
  return WithCause(absl::PermissionDeniedError(absl::StrCat(
                       "ranks meet at ", host,
                       ", which other hosts can reach, and the job has no TLS: give its configuration (--tls FILE, "
                       "MSLUA_TLS=FILE, or in a script ms.set_ps_context{enable_ssl = true, config_file_path = FILE} "
                       "before ms.communication.init(); `mslua cert make` makes one), or, on a network that you trust, "
                       "say --insecure-network or MSLUA_PLAINTEXT=1")),
                   {-1, kExitSecurity});
}

}  // namespace mslua
