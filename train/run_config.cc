#include "train/run_config.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/atomic_file.h"

namespace mslua {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kBegin = "require(\"mslua.params\").resolved {";

// As lua/mslua/literal.lua writes a string.
std::string LuaString(const std::string& text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

}  // namespace

std::string WithFolders(const std::string& config, const std::string& run, const std::string& current) {
  if (!absl::StartsWith(config, kBegin)) return config;
  const fs::path from_run = fs::path(current).lexically_relative((fs::path(current) / run).lexically_normal());
  const bool inside =
      std::all_of(from_run.begin(), from_run.end(), [](const fs::path& name) { return name == ".." || name == "."; });
  std::string folders = LuaString(current);
  if (inside && !from_run.empty()) folders = absl::StrCat(LuaString(from_run.string()), ", ", folders);
  return absl::StrCat(kBegin, "folders = {", folders, "}, ", config.substr(kBegin.size()));
}

Status WriteConfig(const std::string& run, const std::string& config) {
  std::error_code error;
  const fs::path current = fs::current_path(error);
  return WriteFileAtomically(absl::StrCat(run, "/config.lua"),
                             error ? config : WithFolders(config, run, current.string()));
}

}  // namespace mslua
