#include "verbs/support/run_page.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/input_file.h"
#include "core/checkpoint/checkpoint.h"
#include "core/json/json.h"
#include "train/run_folder.h"
#include "train/run_settings.h"
#include "verbs/support/json_fields.h"
#include "verbs/support/run_page_template.h"
#include "verbs/support/run_pictures.h"
#include "verbs/support/run_summary.h"

namespace mslua {
namespace {

constexpr size_t kPointsOfPage = 50000, kMostOfCurve = 8000, kLeastOfCurve = 64;
// Bytes of all runs of a page.
constexpr size_t kSamplesOfPage = 400000, kPicturesOfPage = 400000, kTextsOfPage = 50000, kHistogramsOfPage = 250000;
constexpr size_t kTextOfRun = 200000;  // bytes of settings and of interventions that a page has

// Rounded to what a page shows.
Json Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Json CurveJson(const std::map<int64_t, double>& curve, size_t most, double base = 0) {
  Json steps = Json::array(), values = Json::array();
  for (const auto& [step, value] : Decimate(curve, most)) {
    steps.push_back(step);
    values.push_back(base == 0 ? Rounded(value) : Json(value - base));
  }
  return Json::array({steps, values});
}

// Name, type and shape of each tensor in the newest checkpoint of the run, or why there is none.
Json TensorsOf(const std::string& folder) {
  const auto all = checkpoint::ListCheckpoints(checkpoint::CheckpointsOfRun(folder));
  if (!all.ok() || all->empty()) return "The run folder has no checkpoint, so its tensors are not known.";
  const auto text = ReadFile(absl::StrCat(all->front().path, "/MANIFEST.json"), 64 << 20);
  JsonLimits limits;
  limits.bytes = 64 << 20;
  const auto manifest = text.ok() ? ParseJson(*text, limits) : StatusOr<Json>(text.status());
  if (!manifest.ok()) return std::string(manifest.status().message());
  Json rows = Json::array();
  const Json tensors = ListIn(*manifest, "tensors");
  for (const Json& t : tensors) {
    if (t.is_object() && t.contains("name") && t.contains("dtype") && t.contains("shape"))
      rows.push_back({t["name"], t["dtype"], t["shape"]});
  }
  return rows;
}

// The lines of events.jsonl, as far as they are JSON.
Json InterventionsOf(const std::string& folder) {
  Json events = Json::array();
  const auto text = ReadFile(absl::StrCat(folder, "/events.jsonl"), int64_t{1} << 30);
  if (!text.ok()) return events;
  size_t bytes = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const auto event = ParseJson(line);
    if (!event.ok()) continue;
    bytes += line.size();
    if (bytes > kTextOfRun) {
      events.push_back("further ones are in events.jsonl");
      break;
    }
    events.push_back(*event);
  }
  return events;
}

// What the newest evaluation has left, or why there is nothing.
Json MatricesOf(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kRunMatrices);
  if (access(path.c_str(), F_OK) != 0) {
    return "None: with \"confusion_matrix\" among eval.metrics of the recipe, each evaluation of a training records "
           "it.";
  }
  const auto text = ReadFile(path, 16 << 20);
  const auto found = text.ok() ? ParseJson(*text) : StatusOr<Json>(text.status());
  if (!found.ok()) return std::string(found.status().message());
  return found->is_object() && found->contains("matrices") ? *found : Json(absl::StrCat(path, " is damaged"));
}

// The newest of the run's traces (`train --profile`, .prof); empty: there is none.
std::string NewestTrace(const std::string& folder) {
  std::string newest;
  int64_t latest = -1;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/trace", ignored)) {
    const std::string name = entry.path().filename().string();
    int64_t step = -1;
    absl::string_view number = name;
    if (!absl::ConsumePrefix(&number, "step_") || !absl::ConsumeSuffix(&number, ".json") ||
        !absl::SimpleAtoi(number, &step) || step <= latest)
      continue;
    latest = step;
    newest = entry.path().string();
  }
  return newest;
}

// Of rank 0 in the newest trace: operator, kernel, calls and milliseconds a step, share of the time of all; or why
// there is nothing.
Json OperatorsOf(const std::string& folder) {
  constexpr int64_t kMostBytes = 64 << 20;
  const std::string path = NewestTrace(folder);
  if (path.empty())
    return "None: `mslua train --profile S:N`, or .prof in mslua attach, records the time of each operator.";
  const auto text = ReadFile(path, kMostBytes);
  JsonLimits limits;
  limits.bytes = kMostBytes;
  const auto trace = text.ok() ? ParseJson(*text, limits) : StatusOr<Json>(text.status());
  if (!trace.ok()) return std::string(trace.status().message());
  struct Work {
    int64_t calls = 0;
    double microseconds = 0;
  };
  std::map<std::pair<std::string, std::string>, Work> work;
  double all = 0;
  int64_t steps = 0;
  const Json events = ListIn(*trace, "traceEvents");
  for (const Json& event : events) {
    if (TextIn(event, "ph") != "X" || NumberIn(event, "pid", -1) != 0) continue;
    const std::string kernel = TextIn(event, "cat");
    steps += kernel == "step";
    if (kernel == "step" || kernel.empty()) continue;  // the wait for data has no kernel
    Work& w = work[{TextIn(event, "name"), kernel}];
    ++w.calls;
    w.microseconds += NumberIn(event, "dur", 0);
    all += NumberIn(event, "dur", 0);
  }
  if (steps == 0 || all <= 0) return path + " has no step";
  std::vector<std::pair<double, Json>> rows;
  for (const auto& [key, w] : work) {
    const double milliseconds = w.microseconds / 1e3 / static_cast<double>(steps);
    rows.emplace_back(
        -w.microseconds,
        Json::array({key.first, key.second, Rounded(static_cast<double>(w.calls) / static_cast<double>(steps)),
                     Rounded(milliseconds), absl::StrFormat("%.1f%%", 100 * w.microseconds / all)}));
  }
  std::sort(rows.begin(), rows.end());
  Json list = Json::array();
  for (auto& [order, row] : rows) list.push_back(std::move(row));
  return list;
}

Json SettingsOf(const std::string& folder) {
  const auto settings = ReadRunSettings(folder);
  if (!settings.ok()) return std::string(settings.status().message());
  Json rows = Json::array();
  size_t bytes = 0;
  for (const auto& [name, value] : settings->values) {
    const auto origin = settings->origins.find(name);
    bytes += name.size() + value.size();
    if (bytes > kTextOfRun) {
      rows.push_back({"...", "further ones are in config.lua", ""});
      break;
    }
    rows.push_back({name, value, origin == settings->origins.end() ? "" : origin->second});
  }
  return rows;
}

// One of `runs` runs.
Json RunJson(const RunRecord& record, size_t points, size_t runs) {
  const RunSummary summary = Summarize(record.folder, record);
  Json run = {{"name", record.folder},
              {"recipe", summary.recipe},
              {"state", summary.state},
              {"cause", summary.cause},
              {"started", summary.started},
              {"steps", summary.steps},
              {"best_key", summary.best_key},
              {"settings", SettingsOf(record.folder)},
              {"tensors", TensorsOf(record.folder)},
              {"events", InterventionsOf(record.folder)},
              {"operators", OperatorsOf(record.folder)},
              {"matrices", MatricesOf(record.folder)},
              {"worst", WorstSamplesOf(record.folder, kSamplesOfPage / runs)},
              {"pictures", PicturesOf(record, kPicturesOfPage / runs)},
              {"texts", TextsOf(record, kTextsOfPage / runs)},
              {"histograms", HistogramsOf(record, kHistogramsOfPage / runs)}};
  if (summary.best) run["best"] = *summary.best;
  Json curves = Json::object(), undefined = Json::object();
  for (const std::string& key : record.Keys()) curves[key] = CurveJson(record.values.at(key), points);
  for (const auto& [key, count] : record.undefined) undefined[key] = count;
  run["curves"] = std::move(curves);
  run["undefined"] = std::move(undefined);
  constexpr size_t kMarks = 500;
  if (const auto times = record.values.find(kTimeKey); times != record.values.end())
    run["time"] = CurveJson(times->second, kMarks, times->second.begin()->second);
  if (const auto samples = record.values.find(kSamplesKey); samples != record.values.end())
    run["samples"] = CurveJson(samples->second, kMarks);
  return run;
}

}  // namespace

std::vector<std::pair<int64_t, double>> Decimate(const std::map<int64_t, double>& curve, size_t most) {
  std::vector<std::pair<int64_t, double>> all(curve.begin(), curve.end());
  if (all.size() <= most) return all;
  std::vector<std::pair<int64_t, double>> kept = {all.front()};
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const size_t buckets = most > 4 ? (most - 2) / 2 : 1, inner = all.size() - 2;
  for (size_t b = 0; b < buckets && most >= 4; ++b) {
    const auto begin = all.begin() + 1 + static_cast<std::ptrdiff_t>(inner * b / buckets);
    const auto end = all.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (b + 1) / buckets);
    if (begin == end) continue;
    auto [low, high] = std::minmax_element(begin, end, less);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  kept.push_back(all.back());
  return kept;
}

std::string ScriptText(const std::string& json) {
  std::string text;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&')
      absl::StrAppend(&text, "\\u00", absl::Hex(static_cast<int>(c), absl::kZeroPad2));
    else
      text += c;
  }
  return text;
}

std::string RunPage(const std::vector<RunRecord>& records) {
  size_t curves = 1;
  for (const RunRecord& record : records) curves += record.Keys().size();
  const size_t points = std::clamp(kPointsOfPage / curves, kLeastOfCurve, kMostOfCurve);
  Json runs = Json::array();
  for (const RunRecord& record : records) runs.push_back(RunJson(record, points, records.size()));
  // Names of files may be no UTF-8.
  return absl::StrCat(kRunPageHead, ScriptText(DumpJson(runs)), kRunPageTail);
}

}  // namespace mslua
