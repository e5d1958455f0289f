#include "train/run_config.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/atomic_file.h"
#include "core/checkpoint/checkpoint.h"

namespace mslua {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kBegin = "require(\"mslua.params\").resolved {";

// As lua/mslua/literal.lua writes a string.
std::string LuaString(const std::string& text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}, {"\r", "\\r"}}),
                      "\"");
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  const fs::path rest = path.lexically_relative(folder);
  return !rest.empty() && *rest.begin() != "..";
}

StatusOr<std::string> CurrentFolder() {
  std::error_code error;
  const fs::path current = fs::current_path(error);
  if (error) return absl::ErrnoToStatus(error.value(), "cannot tell the current folder");
  return current.string();
}

}  // namespace

std::vector<std::string> PathsFromRun(const std::string& path, const std::string& run, const std::string& current) {
  const fs::path here(current), to = (here / path).lexically_normal(), from = (here / run).lexically_normal();
  std::vector<std::string> paths;
  if (IsInside(to, here) && IsInside(from, here)) paths.push_back(to.lexically_relative(from).string());
  paths.push_back(to.string());
  return paths;
}

std::string WithFolders(const std::string& config, const std::string& run, const std::string& current) {
  if (!absl::StartsWith(config, kBegin)) return config;
  std::vector<std::string> folders = PathsFromRun(current, run, current);
  for (std::string& folder : folders) folder = LuaString(folder);
  return absl::StrCat(kBegin, "folders = {", absl::StrJoin(folders, ", "), "}, ", config.substr(kBegin.size()));
}

Status WriteConfig(const std::string& run, const std::string& config) {
  ASSIGN_OR_RETURN(const std::string current, CurrentFolder());
  return WriteFileAtomically(absl::StrCat(run, "/config.lua"), WithFolders(config, run, current));
}

Status RecordCheckpointDirectory(const std::string& run, const std::string& directory) {
  const std::string file = absl::StrCat(run, "/", checkpoint::kCheckpointDirectoryFile);
  if (directory.empty()) {
    unlink(file.c_str());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string current, CurrentFolder());
  return WriteFileAtomically(file, absl::StrCat(absl::StrJoin(PathsFromRun(directory, run, current), "\n"), "\n"));
}

}  // namespace mslua
