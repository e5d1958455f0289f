// What a process says of its TLS.
#pragma once

#include <functional>
#include <string>

namespace mslua {

struct TlsOptions {
  std::string config_file;                       // config.h
  std::string client_password, server_password;  // before those of the files that the configuration names
  std::function<void(const std::string&)> log;   // warnings, on any thread
};

}  // namespace mslua
