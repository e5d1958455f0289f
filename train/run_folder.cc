#include "train/run_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/checkpoint/checkpoint.h"
#include "core/train/summaries.h"
#include "train/run_settings.h"

namespace mslua {

StatusOr<std::string> NewRunFolder(const std::string& name) {
  RETURN_IF_ERROR(MakeFolders("runs"));
  const std::time_t now = std::time(nullptr);
  std::tm local;
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  for (int copy = 1; copy < 1000; ++copy) {
    const std::string path = absl::StrCat("runs/", name, "-", stamp, copy > 1 ? absl::StrCat("-", copy) : "");
    if (mkdir(path.c_str(), 0777) == 0) {
      RETURN_IF_ERROR(MakeFolders(path));  // its entry is on disk
      return path;
    }
    if (errno != EEXIST)
      return absl::InvalidArgumentError(absl::StrCat("cannot make the run folder ", path, ": ", std::strerror(errno)));
  }
  return absl::InvalidArgumentError(absl::StrCat("too many run folders runs/", name, "-", stamp));
}

namespace {

// Whether `folder` is one that NewRunFolder names for `recipe`: a recipe's name may be the beginning of another's.
bool IsNamedFor(absl::string_view folder, absl::string_view recipe) {
  if (!absl::ConsumePrefix(&folder, recipe)) return false;
  constexpr absl::string_view kStamp = "-20260131-120000";
  if (folder.size() < kStamp.size()) return false;
  for (size_t i = 0; i < folder.size(); ++i) {
    const char wanted = i < kStamp.size() ? kStamp[i] : i == kStamp.size() ? '-' : '0';
    if (wanted == '-' ? folder[i] != '-' : !absl::ascii_isdigit(static_cast<unsigned char>(folder[i]))) return false;
  }
  return folder.size() != kStamp.size() + 1;
}

// The name of the recipe that the run folder `run` records; empty: it records none, as that of a script.
std::string RecordedRecipe(const std::string& run) {
  const auto settings = ReadRunSettings(run);
  if (!settings.ok()) return "";
  if (!settings->name.empty()) return settings->name;
  const std::string file = settings->from.substr(settings->from.rfind('/') + 1);
  return std::string(absl::StripSuffix(file, ".lua"));
}

// The path of `part` of the run folder `run`.
std::string PathOf(const std::string& run, const std::string& part) {
  if (part == kRunCheckpoints) return checkpoint::CheckpointsOfRun(run);
  if (part == kRunBest) return checkpoint::CheckpointsOfRun(run) + "/best";
  return absl::StrCat(run, "/", part);
}

// When `path` was written last; nothing where it is missing, or a folder of checkpoints without any.
absl::optional<timespec> Written(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::nullopt;
  if (S_ISDIR(info.st_mode)) {
    const auto checkpoints = checkpoint::ListCheckpoints(path);
    if (!checkpoints.ok() || checkpoints->empty()) return absl::nullopt;
  }
  return info.st_mtim;
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

}  // namespace

bool IsSharedRecord(absl::string_view name) {
  return name == kRunMetrics || name == kRunMatrices || name == kRunEvents || name == kSummaries ||
         name == kRunSamples || absl::StartsWith(name, kRunTensorBoard);
}

bool IsBesideRecords(absl::string_view name) {
  return name == kRunTraces || name == kRunPictures || name == kRunDumps || name == kSummaryPictures;
}

bool IsNameOfRun(absl::string_view name) {
  if (IsSharedRecord(name) || IsBesideRecords(name) || checkpoint::IsCompanionName(name) || IsTemporaryName(name))
    return true;
  for (const char* const other :
       {kRunCheckpoints, checkpoint::kCheckpointDirectoryFile, kRunLock, kRunOutcome, "config.lua", "attach"}) {
    if (name == other) return true;
  }
  if (absl::ConsumePrefix(&name, kRunEarlier)) return IsNumber(name);
  if (!absl::ConsumePrefix(&name, "rank_")) return false;
  for (const char* const ending : {kRunLog, kRunLaunch, kRunCrash}) {
    if (absl::ConsumeSuffix(&name, ending)) return IsNumber(name);
  }
  return false;
}

std::vector<std::string> RunFoldersOf(const std::string& recipe, const std::string& part) {
  std::vector<std::pair<std::pair<int64_t, int64_t>, std::string>> found;
  if (DIR* runs = opendir("runs")) {
    while (const dirent* entry = readdir(runs)) {
      const std::string name = entry->d_name, path = absl::StrCat("runs/", name);
      if (name[0] == '.') continue;
      const auto t = Written(PathOf(path, part));
      if (t && (recipe.empty() || IsNamedFor(name, recipe) || RecordedRecipe(path) == recipe))
        found.push_back({{t->tv_sec, t->tv_nsec}, path});
    }
    closedir(runs);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> folders;
  for (auto& run : found) folders.push_back(std::move(run.second));
  return folders;
}

StatusOr<std::string> LastRunFolder(const std::string& recipe, const std::string& part, absl::string_view how) {
  const std::vector<std::string> folders = RunFoldersOf(recipe, part);
  if (!folders.empty()) return folders[0];
  const std::string what = part == kRunCheckpoints ? "a checkpoint" : part == kRunBest ? "a best checkpoint" : part;
  return absl::NotFoundError(absl::StrCat("no run ", recipe.empty() ? "" : absl::StrCat("of ", recipe, " "), "with ",
                                          what, " under runs/; ", how));
}

StatusOr<std::string> CheckpointPlace(const std::string& word, const std::string& recipe, const std::string& directory,
                                      absl::string_view how) {
  const bool best = word == "best";
  if (!best && word != "last") return word;
  if (!directory.empty()) return best ? directory + "/best" : directory;
  const char* const part = best ? kRunBest : kRunCheckpoints;
  ASSIGN_OR_RETURN(const std::string folder, LastRunFolder(recipe, part, how));
  return PathOf(folder, part);
}

}  // namespace mslua
