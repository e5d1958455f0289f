// mslua runs
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/common_flags.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "core/files/file_lock.h"
#include "core/json/json_string.h"
#include "train/run_folder.h"
#include "train/run_settings.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_argument.h"
#include "verbs/support/run_record.h"
#include "verbs/support/run_summary.h"
#include "verbs/support/text_table.h"

namespace mslua {
namespace {

constexpr char kRuns[] = "runs";

std::string NumberText(const std::optional<double>& value) { return value ? absl::StrFormat("%.5g", *value) : "-"; }

std::string NumberJson(const std::optional<double>& value) { return value ? absl::StrFormat("%.9g", *value) : "null"; }

std::string SizeText(int64_t bytes) {
  constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi;
  const auto size = static_cast<double>(bytes);
  if (size >= kGi) return absl::StrFormat("%.1f GiB", size / kGi);
  return size >= kMi ? absl::StrFormat("%.1f MiB", size / kMi) : absl::StrFormat("%.1f KiB", size / kKi);
}

std::string TimeText(int64_t seconds) {
  if (seconds == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixSeconds(seconds), absl::LocalTimeZone());
}

// The run folders in `folder`, the one that began last at the end.
StatusOr<std::vector<RunSummary>> FindRuns(const std::string& folder) {
  std::vector<RunSummary> runs;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) {
    if (errno == ENOENT && folder == kRuns) return runs;
    return FileError("cannot read the folder", folder);
  }
  while (const dirent* entry = readdir(entries)) {
    const std::string path = absl::StrCat(folder, "/", entry->d_name);
    if (entry->d_name[0] != '.' && IsRunFolder(path)) runs.push_back(Summarize(path));
  }
  closedir(entries);
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) {
    return std::pair(a.started, a.folder) < std::pair(b.started, b.folder);
  });
  return runs;
}

Status List(const std::string& folder, bool json) {
  ASSIGN_OR_RETURN(const std::vector<RunSummary> runs, FindRuns(folder));
  TextTable table({"run", "recipe", "started", "steps", "last loss", "best", "state", "size"});
  for (const RunSummary& run : runs) {
    if (json) {
      std::printf(
          "{\"run\":%s,\"recipe\":%s,\"started\":%lld,\"steps\":%lld,\"loss\":%s,\"best_metric\":%s,"
          "\"best\":%s,\"state\":%s,\"bytes\":%lld}\n",
          JsonString(run.folder).c_str(), JsonString(run.recipe).c_str(), static_cast<long long>(run.started),
          static_cast<long long>(run.steps), NumberJson(run.loss).c_str(), JsonString(run.best_key).c_str(),
          NumberJson(run.best).c_str(), JsonString(run.state).c_str(), static_cast<long long>(run.bytes));
      continue;
    }
    table.Add({run.folder, run.recipe.empty() ? "-" : run.recipe, TimeText(run.started), absl::StrCat(run.steps),
               NumberText(run.loss), run.best_key.empty() ? "-" : absl::StrCat(run.best_key, " ", NumberText(run.best)),
               run.state, SizeText(run.bytes)});
  }
  if (!json && !runs.empty()) std::fputs(table.Text().c_str(), stdout);
  if (runs.empty() && !json) std::fprintf(stderr, "mslua: no run in %s/\n", Printable(folder).c_str());
  return absl::OkStatus();
}

// What is compared: a name, and for each run its text ("-": the run does not have it) and its JSON.
struct Row {
  std::string name;
  std::vector<std::string> texts, jsons;
};

// The parameters in which the runs differ.
StatusOr<std::vector<Row>> Differences(const std::vector<RunRecord>& records) {
  std::vector<RunSettings> settings;
  std::set<std::string> names;
  for (const RunRecord& record : records) {
    auto found = ReadRunSettings(record.folder);
    if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
    settings.push_back(found.ok() ? *std::move(found) : RunSettings());
    for (const auto& value : settings.back().values) names.insert(value.first);
  }
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const auto& value_of) {
    Row row{name, {}, {}};
    for (const RunSettings& run : settings) {
      const std::string* const value = value_of(run);
      row.texts.push_back(value == nullptr ? "-" : *value);
      row.jsons.push_back(value == nullptr ? "null" : JsonString(*value));
    }
    const auto same = [&](const std::string& json) { return json == row.jsons[0]; };
    if (!std::all_of(row.jsons.begin(), row.jsons.end(), same)) rows.push_back(std::move(row));
  };
  add("recipe", [](const RunSettings& run) { return run.from.empty() ? nullptr : &run.from; });
  for (const std::string& name : names) {
    add(name, [&](const RunSettings& run) {
      const auto value = run.values.find(name);
      return value == run.values.end() ? nullptr : &value->second;
    });
  }
  return rows;
}

// The last value of each metric; an error where the runs have none in common.
StatusOr<std::vector<Row>> FinalValues(const std::vector<RunRecord>& records) {
  std::set<std::string> names;
  for (const RunRecord& record : records) {
    for (const std::string& key : record.Keys()) names.insert(key);
  }
  std::vector<Row> rows;
  bool shared = false;
  for (const std::string& name : names) {
    Row row{absl::StrCat("final ", name), {}, {}};
    bool all = true;
    for (const RunRecord& record : records) {
      const auto values = record.values.find(name);
      const bool has = values != record.values.end();
      all = all && has;
      const std::optional<double> last = has ? std::optional<double>(values->second.rbegin()->second) : std::nullopt;
      row.texts.push_back(NumberText(last));
      row.jsons.push_back(NumberJson(last));
    }
    shared = shared || all;
    rows.push_back(std::move(row));
  }
  if (shared) return rows;
  std::vector<std::string> has;
  for (const RunRecord& record : records) {
    const std::string keys = absl::StrJoin(record.Keys(), ", ");
    has.push_back(absl::StrCat(record.folder, " has ", keys.empty() ? "none" : keys));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the runs have no metric in common: ", absl::StrJoin(has, "; "), "; compare runs of one kind"));
}

Status Compare(const std::vector<std::string>& runs, bool json) {
  ASSIGN_OR_RETURN(const std::vector<RunRecord> records, ReadRunRecords(runs));
  ASSIGN_OR_RETURN(std::vector<Row> rows, Differences(records));
  const size_t differences = rows.size();
  ASSIGN_OR_RETURN(std::vector<Row> values, FinalValues(records));
  std::move(values.begin(), values.end(), std::back_inserter(rows));
  std::vector<std::string> titles = {""};
  for (const RunRecord& record : records) titles.push_back(record.folder);
  if (json) {
    for (size_t run = 0; run < records.size(); ++run) {
      std::string line = absl::StrCat("{\"run\":", JsonString(records[run].folder));
      for (const Row& row : rows) absl::StrAppend(&line, ",", JsonString(row.name), ":", row.jsons[run]);
      std::printf("%s}\n", line.c_str());
    }
    return absl::OkStatus();
  }
  TextTable table(titles);
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.name};
    cells.insert(cells.end(), row.texts.begin(), row.texts.end());
    table.Add(cells);
  }
  if (differences == 0) std::fprintf(stderr, "mslua: the runs have the same parameters\n");
  std::fputs(table.Text().c_str(), stdout);
  return absl::OkStatus();
}

// Whether the user at the terminal says yes; without a terminal there is nobody to ask.
bool Confirm(const std::vector<std::string>& folders) {
  if (isatty(STDIN_FILENO) == 0) return true;
  std::fprintf(stderr, "mslua: remove %s for good? [y/N] ", Printable(absl::StrJoin(folders, ", ")).c_str());
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y';
}

// The folder that `run` means; a recipe's name means one where the recipe has one run.
StatusOr<std::string> FolderToRemove(const std::string& run) {
  struct stat info;
  if (run.empty() || run == "last" || stat(run.c_str(), &info) == 0) return repl::FolderOfRun(run, kRunLock);
  const std::vector<std::string> folders = RunFoldersOf(run, kRunLock);
  if (folders.empty()) return repl::FolderOfRun(run, kRunLock);
  if (folders.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("runs rm: ", run, " has ", folders.size(), " runs: ",
                                                   SomeOf(folders, 5), "; give a folder; nothing was removed"));
  }
  std::fprintf(stderr, "mslua: %s\n", Printable(folders[0]).c_str());
  return folders[0];
}

// Removes all of them, or none where one is no run or is being written.
Status Remove(const std::vector<std::string>& runs) {
  std::vector<std::string> folders;
  std::vector<std::unique_ptr<FileLock>> locks;
  for (const std::string& run : runs) {
    ASSIGN_OR_RETURN(std::string folder, FolderToRemove(run));
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    struct stat info;
    const bool link = lstat(folder.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
    if (link || !IsRunFolder(folder)) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder, link ? " is a symbolic link" : absl::StrCat(" is no run folder: it has no ", kRunLock, " and record"),
          "; nothing was removed (`mslua runs ls` lists runs)"));
    }
    RETURN_IF_ERROR(CheckOnlyARun(folder));
    if (std::find(folders.begin(), folders.end(), folder) != folders.end()) continue;
    auto lock = FileLock::Acquire(absl::StrCat(folder, "/", kRunLock), absl::ZeroDuration());
    if (absl::IsUnavailable(lock.status())) {
      return WithExitCode(
          absl::UnavailableError(absl::StrCat(folder, " is ", lock.status().message(), ": end it first (mslua stop ",
                                              folder, "); nothing was removed")),
          kExitStorage);
    }
    RETURN_IF_ERROR(lock.status());
    folders.push_back(std::move(folder));
    locks.push_back(*std::move(lock));
  }
  if (!Confirm(folders)) {
    std::fprintf(stderr, "mslua: nothing was removed\n");
    return absl::OkStatus();
  }
  for (const std::string& folder : folders) {
    const int64_t bytes = Summarize(folder).bytes;
    RETURN_IF_ERROR(RemoveAtomically(folder));
    std::printf("removed %s (%s)\n", Printable(folder).c_str(), SizeText(bytes).c_str());
  }
  return absl::OkStatus();
}

int RunRuns(const cli::CommandLine& command) {
  const std::string action = command.positional[0];
  const std::vector<std::string> names(command.positional.begin() + 1, command.positional.end());
  if (action == "ls") return Report(List(names.empty() ? kRuns : names[0], command.Bool("json")));
  return Report(action == "compare" ? Compare(names, command.Bool("json")) : Remove(names));
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(runs) {
  VerbDef verb;
  verb.name = "runs";
  verb.usage = "ACTION [argument ...] [flags]";
  verb.doc = "run folders: list, compare, remove";
  verb.flags = {Json().Of({"ls", "compare"})};
  verb.actions = {
      {"ls", "[FOLDER]", 0, 1}, {"compare", "RUN RUN ...", 2, kUnlimited}, {"rm", "RUN ...", 1, kUnlimited}};
  verb.examples = {"mslua runs ls", "mslua runs compare runs/b runs/c", "mslua runs rm runs/saved"};
  verb.place = 400;
  verb.run = RunRuns;
  return verb;
}

}  // namespace mslua::cli
