#include "verbs/support/run_record.h"

#include <sys/stat.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/input_file.h"
#include "core/base/printable.h"
#include "core/json/json.h"
#include "lua/run_folder.h"
#include "verbs/support/run_argument.h"

namespace mslua {
namespace {

constexpr char kEpochKey[] = "epoch";
constexpr int64_t kLargestRecord = int64_t{1} << 31;

// Whether `line` was a record, which is then added.
bool AddLine(absl::string_view line, RunRecord* record) {
  const auto json = ParseJson(line);
  if (!json.ok() || !json->is_object()) return false;
  const auto step = json->find(kStepKey);
  if (step == json->end() || !step->is_number_integer()) return false;
  for (const auto& item : json->items()) {
    if (item.value().is_number())
      record->values[item.key()][step->get<int64_t>()] = item.value().get<double>();
    else if (item.value().is_null())
      ++record->undefined[item.key()];
  }
  return true;
}

}  // namespace

std::vector<std::string> RunRecord::Keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : values) {
    const std::string& key = entry.first;
    if (key != kStepKey && key != kEpochKey && key != kTimeKey && key != kSamplesKey) keys.push_back(key);
  }
  return keys;
}

RunRecord ParseRunRecord(const std::string& folder, const std::string& text) {
  RunRecord record;
  record.folder = folder;
  absl::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const bool last = end == absl::string_view::npos;
    const bool good = AddLine(rest.substr(0, end), &record);
    if (!good && last) record.half_written = true;
    if (!good && !last) ++record.broken;
    rest.remove_prefix(last ? rest.size() : end + 1);
  }
  return record;
}

StatusOr<RunRecord> ReadRunRecord(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kRunMetrics);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(folder, " has no ", kRunMetrics,
                                            ": expected the folder of a training, as `mslua runs ls` lists them"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestRecord));
  return ParseRunRecord(folder, text);
}

StatusOr<std::vector<RunRecord>> ReadRunRecords(const std::vector<std::string>& runs) {
  std::vector<RunRecord> records;
  for (const std::string& run : runs) {
    ASSIGN_OR_RETURN(const std::string folder, repl::FolderOfRun(run, kRunMetrics));
    ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(folder));
    const std::string path = Printable(absl::StrCat(folder, "/", kRunMetrics));
    if (record.broken > 0) {
      std::fprintf(stderr, "mslua: note: %s: %lld lines are not JSON with a step and are left out\n", path.c_str(),
                   static_cast<long long>(record.broken));
    }
    if (record.half_written)
      std::fprintf(stderr, "mslua: note: %s: the last line is half-written and is left out\n", path.c_str());
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace mslua
