#include "rendezvous/tls/config.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/json/json.h"

namespace mslua {
namespace {

constexpr int kMostDays = 36500;

using Setter = std::function<std::string(const Json& value)>;  // what was expected; empty: the value is set

Setter Text(std::string* to) {
  return [to](const Json& value) -> std::string {
    if (!value.is_string() || value.get<std::string>().find('\0') != std::string::npos) return "a string";
    *to = value.get<std::string>();
    return "";
  };
}

// Relative to the folder of the configuration file.
Setter Path(std::string* to, const std::string& folder) {
  return [to, folder](const Json& value) -> std::string {
    const std::string wrong = Text(to)(value);
    if (wrong.empty() && !to->empty() && to->front() != '/') *to = folder + *to;
    return wrong;
  };
}

Setter Days(int* to) {
  return [to](const Json& value) -> std::string {
    const bool good = value.is_number_integer() && value >= 0 && value <= kMostDays;
    if (good) *to = value.get<int>();
    return good ? "" : absl::StrCat("a whole number of days, 0 to ", kMostDays);
  };
}

Setter Version(bool* tls12) {
  return [tls12](const Json& value) -> std::string {
    if (value != "1.2" && value != "1.3") return "\"1.2\" or \"1.3\"";
    *tls12 = value == "1.2";
    return "";
  };
}

Setter Verification(TlsConfig::Verify* to) {
  return [to](const Json& value) -> std::string {
    if (value == "job") return *to = TlsConfig::Verify::kJob, "";
    if (value == "host") return *to = TlsConfig::Verify::kHost, "";
    if (value == "chain") return *to = TlsConfig::Verify::kChain, "";
    return "\"job\", \"host\" or \"chain\"";
  };
}

}  // namespace

StatusOr<TlsConfig> ParseTlsConfig(absl::string_view text, const std::string& path) {
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  const auto json = ParseJson(text, {4, 1 << 20});
  if (!json.ok()) return refuse(json.status().message());
  if (!json->is_object()) return refuse("expected a JSON object with ca_cert_path and server_cert_path");
  TlsConfig config;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::map<std::string, Setter> fields = {
      {"server_cert_path", Path(&config.server_cert_path, folder)},
      {"client_cert_path", Path(&config.client_cert_path, folder)},
      {"server_key_path", Path(&config.server_key_path, folder)},
      {"client_key_path", Path(&config.client_key_path, folder)},
      {"server_password_file", Path(&config.server_password_file, folder)},
      {"client_password_file", Path(&config.client_password_file, folder)},
      {"ca_cert_path", Path(&config.ca_cert_path, folder)},
      {"crl_path", Path(&config.crl_path, folder)},
      {"cipher_list", Text(&config.cipher_list)},
      {"cert_expire_warning_time_in_day", Days(&config.cert_expire_warning_time_in_day)},
      {"min_version", Version(&config.tls12)},
      {"verify", Verification(&config.verify)},
  };
  for (const auto& [key, value] : json->items()) {
    const auto field = fields.find(key);
    if (field == fields.end()) {
      const auto name = [](std::string* out, const auto& known) { out->append(known.first); };
      return refuse(absl::StrCat("no field ", ShowJson(key), "; known: ", absl::StrJoin(fields, ", ", name)));
    }
    const std::string expected = field->second(value);
    if (!expected.empty()) return refuse(absl::StrCat(key, ": expected ", expected, ", got ", ShowJson(value)));
  }
  if (config.ca_cert_path.empty()) return refuse("ca_cert_path is missing: the file with the CA's certificate");
  if (config.server_cert_path.empty() && config.client_cert_path.empty()) {
    return refuse("server_cert_path and client_cert_path are missing: expected at least one");
  }
  for (const auto& [cert, key, name] : {std::tuple(&config.server_cert_path, &config.server_key_path, "server"),
                                        std::tuple(&config.client_cert_path, &config.client_key_path, "client")}) {
    if (cert->empty() && !key->empty()) {
      return refuse(absl::StrCat(name, "_key_path is given without ", name, "_cert_path"));
    }
  }
  return config;
}

}  // namespace mslua
