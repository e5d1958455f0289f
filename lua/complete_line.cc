#include "lua/complete_line.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attach/server/job_folder.h"
#include "cli/completion.h"
#include "core/base/exit_code.h"
#include "lua/embedded.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"

namespace mslua {
namespace {

using cli::Candidate;
using cli::Slot;

// A recipe that takes longer ends the program: a shell waits for its completion.
constexpr unsigned kSeconds = 5;

// Files and folders that begin with `typed`, a folder with a / at its end; of the files those that end in `ending`.
void AddFiles(const std::string& typed, const std::string& ending, std::vector<Candidate>* found) {
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  const std::string start = typed.substr(folder.size());
  DIR* const entries = opendir(folder.empty() ? "." : folder.c_str());
  if (entries == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (!absl::StartsWith(name, start) || (name[0] == '.' && start.empty()) || name == "." || name == "..") continue;
    struct stat info;
    if (stat((folder + name).c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode))
      names.push_back(folder + name + "/");
    else if (absl::EndsWith(name, ending))
      names.push_back(folder + name);
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  for (std::string& name : names) found->push_back({std::move(name), ""});
}

void AddRuns(const std::string& typed, std::vector<Candidate>* found) {
  found->push_back({"last", "the newest"});
  if (const auto jobs = endpoint::ListJobs(); jobs.ok()) {
    for (const endpoint::Job& job : *jobs) found->push_back({job.id, absl::StrCat("running: ", job.name)});
  }
  AddFiles(typed.empty() ? "runs/" : typed, "/", found);
}

// The lines of the Lua function `words` of mslua.verbs: "preset NAME" and "parameter NAME VALUE".
void AddFromRecipe(const Slot& slot, std::vector<Candidate>* found) {
  SessionOptions options;
  options.verb = "recipes";
  options.file = slot.recipe_file;
  auto session = OpenSession(std::move(options));
  if (!session.ok()) return;
  Status status;
  if (FindRecipe(slot.recipe_file) == nullptr) status = ReadThenEnterSandbox(**session);
  if (status.ok()) status = (*session)->RunText("return require('mslua.verbs').words()", "=mslua/verb");
  const char* const text = status.ok() ? lua_tostring((*session)->lua(), -1) : nullptr;
  if (text == nullptr) return;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits('\t', 2));
    if (parts.size() != 3) continue;
    if (slot.preset && parts[0] == "preset") found->push_back({parts[1], ""});
    if (slot.parameter && parts[0] == "parameter") found->push_back({parts[1] + "=", parts[2]});
  }
}

}  // namespace

int CompleteLine(const std::vector<std::string>& words) {
  alarm(kSeconds);
  // What the recipe prints is no candidate. The sandbox allows writing to descriptor 1 and to no copy of it: so the
  // stream changes, which glibc allows, and not the descriptor.
  stdout = std::fopen("/dev/null", "w");
  const Slot slot = cli::SlotOf(words);
  std::vector<Candidate> more;
  if (slot.recipe) {
    for (const auto& [name, doc] : LibraryRecipeDocs()) more.push_back({name, doc});
    AddFiles(slot.typed, ".lua", &more);
  }
  if (slot.run) AddRuns(slot.typed, &more);
  if (slot.file) AddFiles(slot.typed, "", &more);
  if ((slot.preset || slot.parameter) && !slot.recipe_file.empty()) AddFromRecipe(slot, &more);
  const std::string lines = cli::CompletionLines(slot, more);
  return write(STDOUT_FILENO, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()) ? 0 : kExitStorage;
}

}  // namespace mslua
