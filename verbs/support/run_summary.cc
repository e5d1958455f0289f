#include "verbs/support/run_summary.h"

#include <dirent.h>
#include <fts.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/input_file.h"
#include "core/base/text.h"
#include "core/files/file_lock.h"
#include "core/json/json.h"
#include "train/run_folder.h"
#include "train/run_settings.h"

namespace mslua {
namespace {

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

int64_t BytesOf(const std::string& folder) {
  std::string path = folder;
  char* const paths[] = {path.data(), nullptr};
  FTS* const tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, nullptr);
  if (tree == nullptr) return 0;
  int64_t bytes = 0;
  while (const FTSENT* entry = fts_read(tree)) {
    if (entry->fts_info == FTS_F) bytes += entry->fts_statp->st_size;
  }
  fts_close(tree);
  return bytes;
}

// When the first process of the run began, by the name of its event file.
int64_t StartOf(const std::string& folder) {
  int64_t start = 0;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return 0;
  while (const dirent* entry = readdir(entries)) {
    absl::string_view name = entry->d_name;
    int64_t seconds = 0;
    if (!absl::ConsumePrefix(&name, kRunTensorBoard)) continue;
    std::from_chars(name.data(), name.data() + name.size(), seconds);
    if (seconds > 0 && (start == 0 || seconds < start)) start = seconds;
  }
  closedir(entries);
  return start;
}

constexpr char kNoEnd[] = "no end";

// State, cause and steps.
void ReadOutcome(RunSummary* run) {
  run->state = kNoEnd;
  const auto text = ReadFile(absl::StrCat(run->folder, "/", kRunOutcome), 1 << 20);
  const auto outcome = text.ok() ? ParseJson(*text) : StatusOr<Json>(text.status());
  if (outcome.ok() && outcome->is_object()) {
    const auto state = outcome->find("state"), step = outcome->find("step"), cause = outcome->find("cause");
    if (state != outcome->end() && state->is_string()) run->state = state->get<std::string>();
    if (step != outcome->end() && step->is_number_integer()) run->steps = step->get<int64_t>();
    if (cause != outcome->end() && cause->is_string()) run->cause = cause->get<std::string>();
  }
  if (FileLock::IsHeld(absl::StrCat(run->folder, "/", kRunLock))) run->state = "running";
}

// What is in the folder and does not belong to its run, sorted.
std::vector<std::string> BesideRun(const std::string& folder) {
  std::set<std::string> found;
  std::string path = folder;
  char* const paths[] = {path.data(), nullptr};
  FTS* const tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, nullptr);
  if (tree == nullptr) return {};
  while (FTSENT* const entry = fts_read(tree)) {
    if (entry->fts_level == 0 || entry->fts_info == FTS_DP) continue;
    const bool other = entry->fts_level == 1 && !IsNameOfRun(entry->fts_name);
    if (other) fts_set(tree, entry, FTS_SKIP);
    if (other || (entry->fts_info == FTS_D && IsRunFolder(entry->fts_path)))
      found.insert(std::string(entry->fts_path).substr(folder.size() + 1));
  }
  fts_close(tree);
  return {found.begin(), found.end()};
}

}  // namespace

bool IsRunFolder(const std::string& folder) {
  return Exists(absl::StrCat(folder, "/", kRunLock)) &&
         (Exists(absl::StrCat(folder, "/", kRunMetrics)) || Exists(absl::StrCat(folder, "/rank_0.log")));
}

Status CheckOnlyARun(const std::string& folder) {
  const std::vector<std::string> others = BesideRun(folder);
  if (others.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(folder, " holds more than its run: ", SomeOf(others, 5),
                   "; move it to another place first, or remove the folder with rm -r; nothing was removed"));
}

bool HasEnded(const std::string& folder) {
  RunSummary run;
  run.folder = folder;
  ReadOutcome(&run);
  return run.state != "running" && run.state != kNoEnd;
}

std::string BestKey(const RunRecord& record, bool* more) {
  *more = true;
  for (const char* share : {"eval_top1", "eval_accuracy", "eval_top5"}) {
    if (record.values.count(share) > 0) return share;
  }
  *more = false;
  if (record.values.count("eval_loss") > 0) return "eval_loss";
  for (const std::string& key : record.Keys()) {
    if (!absl::StartsWith(key, "eval_")) continue;
    // As mode = "auto" of EarlyStopping (lua/mslua/callbacks.lua).
    *more = true;
    for (const char* less : {"loss", "perplexity", "mae", "mse"}) *more = *more && !absl::EndsWith(key, less);
    return key;
  }
  return "";
}

RunSummary Summarize(const std::string& folder) {
  const auto record = ReadRunRecord(folder);
  return Summarize(folder, record.ok() ? *record : RunRecord());
}

RunSummary Summarize(const std::string& folder, const RunRecord& record) {
  RunSummary run;
  run.folder = folder;
  run.started = StartOf(folder);
  run.bytes = BytesOf(folder);
  ReadOutcome(&run);
  if (const auto settings = ReadRunSettings(folder); settings.ok()) run.recipe = settings->from;
  if (const auto loss = record.values.find("loss"); loss != record.values.end()) {
    run.steps = std::max(run.steps, loss->second.rbegin()->first);
    run.loss = loss->second.rbegin()->second;
  }
  bool more = false;
  run.best_key = BestKey(record, &more);
  if (run.best_key.empty()) return run;
  for (const auto& [step, value] : record.values.at(run.best_key)) {
    if (!run.best || (more ? value > *run.best : value < *run.best)) run.best = value;
  }
  return run;
}

}  // namespace mslua
