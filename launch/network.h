// How a job's connections to other hosts are secured: by TLS, or not because somebody has said so.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/types/optional.h"
#include "core/base/status.h"
#include "rendezvous/tls/tls.h"

namespace mslua {

struct NetworkOptions {
  // The configuration file of TLS: --tls, else MSLUA_TLS, else config_file_path of set_ps_context{enable_ssl = true}.
  // Empty: no TLS.
  std::string tls_file;
  std::string client_password, server_password;  // of set_ps_context; before those of the files
  // Whether connections to other hosts may go without TLS: --insecure-network, else set_ps_context{enable_ssl = false};
  // not set: as MSLUA_PLAINTEXT says.
  absl::optional<bool> plaintext;
};

// Sets the configuration file that MSLUA_TLS names, where `options` has none. InvalidArgument: the command line says
// --insecure-network, too.
Status AddTlsVariable(const std::string& tls_file, NetworkOptions* options);

// Of a process that other hosts reach: whether what it sends them is encrypted.
std::string EncryptionLine(bool encrypted);

// The TLS of this process; null without a configuration file. Its mistakes have exit code 10.
StatusOr<std::shared_ptr<Tls>> LoadTls(const NetworkOptions& options,
                                       const std::function<void(const std::string&)>& log);

// Whether processes may meet at `host`, which other hosts can reach: with TLS, or where plain text is allowed.
Status CheckNetwork(const NetworkOptions& options, const std::string& host);

}  // namespace mslua
