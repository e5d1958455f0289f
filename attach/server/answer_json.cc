#include "attach/server/answer_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua::endpoint {
namespace {

bool IsSize(const Json& json) { return json.is_number_integer() && json >= 0 && json <= int64_t{1} << 53; }

bool Is(Field field, const Json& json) {
  switch (field) {
    case Field::kText:
      return json.is_string();
    case Field::kNumber:
      return json.is_number();
    case Field::kInteger:
      return json.is_number_integer();
    case Field::kFlag:
      return json.is_boolean();
    case Field::kShape:
      return json.is_array() && std::all_of(json.begin(), json.end(), IsSize);
    case Field::kList:
      return json.is_array();
    case Field::kObject:
      return json.is_object();
  }
  return false;
}

}  // namespace

bool HasFields(const Json& json, Fields fields) {
  return json.is_object() && std::all_of(fields.begin(), fields.end(), [&](const auto& f) {
           const auto it = json.find(f.first);
           return it != json.end() && Is(f.second, *it);
         });
}

std::optional<Json> ReadObject(const std::string& text, Fields fields) {
  StatusOr<Json> json = ParseJson(text);
  if (!json.ok() || !HasFields(*json, fields)) return std::nullopt;
  return *std::move(json);
}

std::map<int, Json> ReadObjects(const Answers& answers, Fields fields) {
  std::map<int, Json> objects;
  for (const auto& [rank, answer] : answers) {
    if (!answer.ok()) continue;
    if (auto json = ReadObject(answer->json, fields)) objects.emplace(rank, *std::move(json));
  }
  return objects;
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string JsonOfRanks(const std::map<int, Json>& objects) {
  Json list = Json::array();
  for (const auto& o : objects) list.push_back(o.second);
  return Dump({{"ranks", list}});
}

std::string JsonOfRanks(const Answers& answers) {
  std::vector<std::string> objects;
  for (const auto& [rank, answer] : answers) {
    if (answer.ok() && ReadObject(answer->json, {}))
      objects.push_back(answer->json);
    else if (answer.ok())
      objects.push_back(absl::StrCat("{\"rank\":", rank, ",\"truncated\":true}"));
    else
      objects.push_back(absl::StrCat("{\"rank\":", rank, ",\"error\":true}"));
  }
  return objects.empty() ? "" : absl::StrCat("{\"ranks\":[", absl::StrJoin(objects, ","), "]}");
}

}  // namespace mslua::endpoint
