#include "launch/network.h"

#include <stdlib.h>
#include <string.h>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "rendezvous/rendezvous.h"

namespace mslua {

StatusOr<std::shared_ptr<Tls>> LoadTls(const NetworkOptions& options,
                                       const std::function<void(const std::string&)>& log) {
  if (options.tls_file.empty()) return std::shared_ptr<Tls>();
  auto tls = Tls::Load({options.tls_file, options.client_password, options.server_password, log});
  if (!tls.ok()) return WithCause(tls.status(), {-1, kExitSecurity});
  return tls;
}

Status CheckNetwork(const NetworkOptions& options, const std::string& host) {
  const char* word = getenv("MSLUA_PLAINTEXT");
  if (!options.tls_file.empty() || options.plaintext || (word != nullptr && strcmp(word, "1") == 0)) {
    return absl::OkStatus();
  }
  return WithCause(absl::PermissionDeniedError(absl::StrCat(
                       "ranks meet at ", host,
                       ", which other hosts can reach, and the job has no TLS: give its configuration (--tls FILE, "
                       "MSLUA_TLS=FILE, or in a script ms.set_ps_context{enable_ssl = true, config_file_path = FILE} "
                       "before ms.communication.init(); `mslua cert make` makes one), or, on a network that you trust, "
                       "say --insecure-network or MSLUA_PLAINTEXT=1")),
                   {-1, kExitSecurity});
}

}  // namespace mslua
