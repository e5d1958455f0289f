#include "core/checkpoint/strict_json.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace mslua::checkpoint {
namespace {

constexpr int kMaxDepth = 16;

Status Wrong(const char* key, absl::string_view expected) {
  return absl::DataLossError(absl::StrCat("'", key, "' is missing or not ", expected));
}

// Before parsing, since a tree of millions of levels costs a hundred times its text.
bool TooDeep(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

bool GetSize(const Json& value, int64_t* out) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  *out = static_cast<int64_t>(value.get<uint64_t>());
  return true;
}

}  // namespace

StatusOr<Json> ParseJsonObject(absl::string_view text) {
  if (TooDeep(text)) return absl::DataLossError(absl::StrCat("JSON nested deeper than ", kMaxDepth));
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return absl::DataLossError("not a JSON object");
  if (!twice.empty()) return absl::DataLossError(absl::StrCat("'", twice, "' is given twice"));
  return json;
}

StatusOr<std::string> DumpJson(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("a name or text is not UTF-8");
  }
}

Status GetInt(const Json& object, const char* key, int64_t* out) {
  const auto it = object.find(key);
  if (it == object.end() || !GetSize(*it, out)) return Wrong(key, "an integer from 0 to 2^63 - 1");
  return absl::OkStatus();
}

Status GetString(const Json& object, const char* key, std::string* out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return Wrong(key, "a string");
  *out = it->get<std::string>();
  return absl::OkStatus();
}

Status GetSizes(const Json& object, const char* key, Shape* out) {
  const auto it = object.find(key);
  bool good = it != object.end() && it->is_array();
  out->clear();
  for (size_t i = 0; good && i < it->size(); ++i) good = GetSize((*it)[i], &out->emplace_back(0));
  return good ? absl::OkStatus() : Wrong(key, "an array of integers from 0 to 2^63 - 1");
}

StatusOr<const Json*> GetArray(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return Wrong(key, "an array");
  return &*it;
}

StatusOr<const Json*> GetObject(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_object()) return Wrong(key, "an object");
  return &*it;
}

StatusOr<int64_t> CheckedBytes(const TensorType& type) {
  int64_t bytes = SizeOf(type.dtype);
  bool overflow = false, empty = false;
  for (int64_t d : type.shape) {
    if (d < 0) overflow = true;
    if (d == 0) empty = true;
    // Zeros aside, so that no product of some of the sizes overflows either.
    if (d > 0) overflow = __builtin_mul_overflow(bytes, d, &bytes) || overflow;
  }
  if (overflow) return absl::InvalidArgumentError(absl::StrCat(ToString(type), " is no possible tensor"));
  return empty ? 0 : bytes;
}

}  // namespace mslua::checkpoint
