// How a job's connections to other hosts are secured: by TLS, or not because somebody has said so.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "rendezvous/tls/tls.h"

namespace mslua {

struct NetworkOptions {
  // The configuration file of TLS: --tls, else MSLUA_TLS, else config_file_path of set_ps_context{enable_ssl = true}.
  // Empty: no TLS.
  std::string tls_file;
  std::string client_password, server_password;  // of set_ps_context; before those of the files
  // Connections to other hosts may go without TLS: --insecure-network, MSLUA_PLAINTEXT=1 or
  // set_ps_context{enable_ssl = false}.
  bool plaintext = false;
};

// The TLS of this process; null without a configuration file. Its mistakes have exit code 10.
StatusOr<std::shared_ptr<Tls>> LoadTls(const NetworkOptions& options,
                                       const std::function<void(const std::string&)>& log);

// Whether processes may meet at `host`, which other hosts can reach: with TLS, or where plain text is allowed.
Status CheckNetwork(const NetworkOptions& options, const std::string& host);

}  // namespace mslua
