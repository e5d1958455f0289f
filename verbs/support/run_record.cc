#include "verbs/support/run_record.h"

#include <sys/stat.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/input_file.h"
#include "core/base/printable.h"
#include "core/json/json.h"
#include "core/train/summaries.h"
#include "train/run_folder.h"
#include "verbs/support/run_argument.h"

namespace mslua {
namespace {

constexpr char kEpochKey[] = "epoch";
constexpr char kAtKey[] = "at";  // of a summary: the training's step
constexpr int64_t kLargestRecord = int64_t{1} << 31;

// The lines that a training writes are objects of numbers: reads such a one, many times faster than ParseJson. False
// where it is anything else, JSON or not; `*numbers` then has a part of it.
bool ReadNumbers(absl::string_view line, std::vector<std::pair<absl::string_view, double>>* numbers) {
  numbers->clear();
  if (!absl::ConsumePrefix(&line, "{")) return false;
  do {
    if (!absl::ConsumePrefix(&line, "\"")) return false;
    const size_t end = line.find('"');
    const absl::string_view key = line.substr(0, end);
    if (end == absl::string_view::npos || key.find('\\') != key.npos) return false;
    line.remove_prefix(end + 1);
    if (!absl::ConsumePrefix(&line, ":")) return false;
    const size_t digits = absl::StartsWith(line, "-") ? 1 : 0;
    if (digits >= line.size() || !absl::ascii_isdigit(static_cast<unsigned char>(line[digits]))) return false;
    double value = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc()) return false;
    numbers->emplace_back(key, value);
    line.remove_prefix(static_cast<size_t>(rest - line.data()));
  } while (absl::ConsumePrefix(&line, ","));
  return line == "}" && (*numbers)[0].first == kStepKey;
}

// Adds what ReadNumbers has found; false where its step is no whole number.
bool AddNumbers(const std::vector<std::pair<absl::string_view, double>>& numbers, RunRecord* record) {
  const double step = numbers[0].second;
  constexpr double kLargest = int64_t{1} << 53;
  if (step != std::floor(step) || std::abs(step) > kLargest) return false;
  for (const auto& [key, value] : numbers) {
    std::map<int64_t, double>& curve = record->values[std::string(key)];
    curve.insert_or_assign(curve.end(), static_cast<int64_t>(step), value);
  }
  return true;
}

// Whether `line` was a record, which is then added.
bool AddLine(absl::string_view line, RunRecord* record) {
  std::vector<std::pair<absl::string_view, double>> numbers;
  if (ReadNumbers(line, &numbers) && AddNumbers(numbers, record)) return true;
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

void AddSummaries(const std::string& text, RunRecord* record) {
  RunRecord scalars;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StrContains(line, "\":{"))
      record->summaries.emplace_back(line);
    else
      AddLine(line, &scalars);
  }
  // The training's own numbers count where a file that users changed has a scalar of that name.
  scalars.values.erase(kAtKey);
  record->values.insert(scalars.values.begin(), scalars.values.end());
  record->undefined.insert(scalars.undefined.begin(), scalars.undefined.end());
}

StatusOr<RunRecord> ReadRunRecord(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kRunMetrics);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(folder, " has no ", kRunMetrics,
                                            ": expected the folder of a training, as `mslua runs ls` lists them"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestRecord));
  RunRecord record = ParseRunRecord(folder, text);
  const std::string summaries = absl::StrCat(folder, "/", kSummaries);
  if (stat(summaries.c_str(), &info) != 0) return record;
  ASSIGN_OR_RETURN(const std::string lines, ReadFile(summaries, kLargestRecord));
  AddSummaries(lines, &record);
  return record;
}

StatusOr<std::vector<RunRecord>> ReadRunRecords(const std::vector<std::string>& runs) {
  std::vector<RunRecord> records;
  for (const std::string& run : runs) {
    ASSIGN_OR_RETURN(const std::string folder, repl::FolderOfRun(run, kRunMetrics));
    ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(folder));
    const std::string path = Printable(absl::StrCat(folder, "/", kRunMetrics));
    if (record.broken > 0) {
      std::fprintf(stderr, "mslua: note: %s: %lld %s JSON with a step and left out\n", path.c_str(),
                   static_cast<long long>(record.broken), record.broken == 1 ? "line is not" : "lines are not");
    }
    if (record.half_written)
      std::fprintf(stderr, "mslua: note: %s: the last line is half-written and is left out\n", path.c_str());
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace mslua
