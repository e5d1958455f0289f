#include "verbs/support/run_pictures.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/input_file.h"
#include "train/run_folder.h"
#include "verbs/support/json_fields.h"

namespace mslua {
namespace {

// What lines of summaries.jsonl hold under `kind`, by name and step; of a step that was recorded twice the later one.
using Records = std::map<std::string, std::map<int64_t, Json>>;

Records RecordsOf(const RunRecord& record, const char* kind) {
  Records records;
  const std::string key = absl::StrCat("\"", kind, "\":{");
  for (const std::string& line : record.summaries) {
    if (!absl::StrContains(line, key)) continue;
    const auto json = ParseJson(line);
    if (!json.ok() || !json->is_object()) continue;
    const auto step = json->find(kStepKey), value = json->find(kind);
    if (step == json->end() || !step->is_number_integer() || value == json->end() || !value->is_object()) continue;
    const auto name = value->find("name");
    if (name == value->end() || !name->is_string()) continue;
    Json item = *value;
    item[kStepKey] = *step;
    records[name->get<std::string>()][step->get<int64_t>()] = std::move(item);
  }
  return records;
}

// The pictures that SampleImages has drawn, as lines of summaries.jsonl have them.
void AddGenerated(const std::string& folder, Records* records) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/samples", ignored)) {
    const std::string file = entry.path().filename().string();
    absl::string_view number = file;
    int64_t epoch = 0;
    if (!absl::ConsumePrefix(&number, "epoch_") || !absl::ConsumeSuffix(&number, ".png") ||
        !absl::SimpleAtoi(number, &epoch))
      continue;
    (*records)["generated samples"][epoch] = {
        {"name", "generated samples"}, {"epoch", epoch}, {"file", absl::StrCat("samples/", file)}};
  }
}

// The newest of each name, then the ones before them, `most` of each name.
std::vector<Json> NewestFirst(const Records& records, size_t most) {
  std::vector<Json> list;
  for (size_t back = 0; back < most; ++back) {
    for (const auto& [name, by_step] : records) {
      if (back < by_step.size())
        list.push_back(std::prev(by_step.end(), static_cast<std::ptrdiff_t>(back) + 1)->second);
    }
  }
  return list;
}

}  // namespace

Json WorstSamplesOf(const std::string& folder, size_t bytes) {
  const std::string path = absl::StrCat(folder, "/", kRunSamples);
  if (access(path.c_str(), F_OK) != 0)
    return "None: an evaluation while training records the samples with the highest loss, where the loss has rows.";
  const auto text = ReadFile(path, 16 << 20);
  auto found = text.ok() ? ParseJson(*text) : StatusOr<Json>(text.status());
  if (!found.ok()) return std::string(found.status().message());
  if (!found->is_object() || !found->contains("samples") || !(*found)["samples"].is_array())
    return absl::StrCat(path, " is damaged");
  Json kept = Json::array();
  size_t used = 0;
  for (Json& sample : (*found)["samples"]) {
    used += DumpJson(sample).size();
    if (used > bytes) break;
    kept.push_back(std::move(sample));
  }
  (*found)["samples"] = std::move(kept);
  return *found;
}

Json PicturesOf(const RunRecord& record, size_t bytes) {
  constexpr size_t kMostOfName = 4;
  Records records = RecordsOf(record, "image");
  AddGenerated(record.folder, &records);
  Json list = Json::array();
  for (Json& item : NewestFirst(records, kMostOfName)) {
    const std::string file = TextIn(item, "file");
    // Nothing outside of the run folder.
    if (file.empty() || file[0] == '/' || absl::StrContains(file, "..")) continue;
    const auto png = ReadFile(absl::StrCat(record.folder, "/", file), static_cast<int64_t>(bytes));
    const std::string picture = png.ok() && absl::StartsWith(*png, "\x89PNG") ? absl::Base64Escape(*png) : "";
    if (!picture.empty() && picture.size() <= bytes) {
      bytes -= picture.size();
      item["picture"] = picture;
    }
    list.push_back(std::move(item));
  }
  return list;
}

Json TextsOf(const RunRecord& record, size_t bytes) {
  constexpr size_t kMostOfName = 3, kLongest = 4000;
  Json list = Json::array();
  for (Json& item : NewestFirst(RecordsOf(record, "text"), kMostOfName)) {
    std::string text = TextIn(item, "text");
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
    if (text.size() > bytes) break;
    bytes -= text.size();
    item["text"] = std::move(text);
    list.push_back(std::move(item));
  }
  return list;
}

Json HistogramsOf(const RunRecord& record, size_t bytes) {
  constexpr size_t kBytesOfOne = 350, kMostOfName = 40;
  const Records records = RecordsOf(record, "histogram");
  Json all = Json::object();
  if (records.empty()) return all;
  const size_t most = std::min(kMostOfName, bytes / kBytesOfOne / records.size());
  for (const auto& [name, by_step] : records) {
    // Evenly over the run, the newest among them.
    std::vector<const Json*> items;
    for (const auto& [step, item] : by_step) items.push_back(&item);
    const size_t n = std::min(most, items.size());
    Json chosen = Json::array();
    for (size_t i = 0; i < n; ++i) chosen.push_back(*items[(i + 1) * items.size() / n - 1]);
    if (n > 0) all[name] = std::move(chosen);
  }
  return all;
}

}  // namespace mslua
