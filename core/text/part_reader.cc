#include "core/text/part_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"

namespace mslua::text {

int64_t CountOf(const Json& value) {
  constexpr int64_t kMost = int64_t{1} << 53;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost)) return -1;
  if (!value.is_number_integer()) return -1;
  const auto count = value.get<int64_t>();
  return count >= 0 && count <= kMost ? count : -1;
}

PartReader::PartReader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
  known_.insert("type");
  if (!json_.is_object()) Fail(Wrong("", absl::StrCat("expected an object, got ", ShowJson(json_))));
}

Status PartReader::Wrong(absl::string_view key, absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat(place_, key.empty() || place_.empty() ? "" : ".", key,
                                                 key.empty() && place_.empty() ? "" : ": ", why));
}

const Json* PartReader::Get(const std::string& key) {
  known_.insert(key);
  if (!json_.is_object()) return nullptr;
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool PartReader::Bool(const std::string& key, bool fallback) {
  const Json* value = Get(key);
  if (value != nullptr && !value->is_boolean())
    Fail(Wrong(key, absl::StrCat("expected true or false, got ", ShowJson(*value))));
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

int64_t PartReader::Int(const std::string& key, int64_t fallback) {
  const Json* value = Get(key);
  if (value == nullptr) return fallback;
  if (value->is_number_unsigned() ? value->get<uint64_t>() < uint64_t{1} << 53 : value->is_number_integer())
    return value->get<int64_t>();
  Fail(Wrong(key, absl::StrCat("expected an integer, got ", ShowJson(*value))));
  return fallback;
}

std::string PartReader::String(const std::string& key) {
  if (Get(key) == nullptr) Fail(Wrong(key, "expected a string, got nothing"));
  return String(key, "");
}

std::string PartReader::String(const std::string& key, const std::string& fallback) {
  const Json* value = Get(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  Fail(Wrong(key, absl::StrCat("expected a string, got ", ShowJson(*value))));
  return fallback;
}

std::string PartReader::Choice(const std::string& key, const std::vector<std::string>& words,
                               const std::string& fallback) {
  const std::string word = String(key, fallback);
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  Fail(Wrong(key, absl::StrCat("expected one of ", absl::StrJoin(words, ", "), ", got '", word, "'",
                               DidYouMean(word, words))));
  return fallback;
}

const Json& PartReader::List(const std::string& key) {
  static const Json* const empty = new Json(Json::array());
  const Json* value = Get(key);
  if (value == nullptr) return *empty;
  if (value->is_array()) return *value;
  Fail(Wrong(key, absl::StrCat("expected a list, got ", ShowJson(*value))));
  return *empty;
}

const Json& PartReader::Object(const std::string& key) {
  static const Json* const empty = new Json(Json::object());
  const Json* value = Get(key);
  if (value == nullptr) return *empty;
  if (value->is_object()) return *value;
  Fail(Wrong(key, absl::StrCat("expected an object, got ", ShowJson(*value))));
  return *empty;
}

std::pair<std::string, int64_t> PartReader::TokenAndId(const std::string& key) {
  const Json& pair = List(key);
  if (pair.size() == 2 && pair[0].is_string() && CountOf(pair[1]) >= 0)
    return {pair[0].get<std::string>(), CountOf(pair[1])};
  Fail(Wrong(key, absl::StrCat("expected a token and its id, got ", ShowJson(pair))));
  return {"", 0};
}

void PartReader::Ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }

Status PartReader::status() const {
  RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : json_.items()) {
    if (known_.count(key) != 0) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    return Wrong(key, absl::StrCat("this key is not built; built are ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace mslua::text
