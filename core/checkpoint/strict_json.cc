#include "core/checkpoint/strict_json.h"

#include "absl/strings/str_cat.h"

namespace mslua::checkpoint {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;  // a manifest, or a header, of millions of tensors

Status Wrong(const char* key, absl::string_view expected) {
  return absl::DataLossError(absl::StrCat("'", key, "' is missing or not ", expected));
}

bool GetSize(const Json& value, int64_t* out) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  *out = static_cast<int64_t>(value.get<uint64_t>());
  return true;
}

}  // namespace

StatusOr<Json> ParseJsonObject(absl::string_view text) {
  JsonLimits limits;
  limits.bytes = kMaxBytes;
  ASSIGN_OR_RETURN(Json json, ParseJson(text, limits));
  if (!json.is_object()) return absl::DataLossError("not a JSON object");
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

Status GetCount(const Json& object, const char* key, int64_t* out) {
  const auto it = object.find(key);
  if (it == object.end() || !GetSize(*it, out) || *out > kMaxCount) return Wrong(key, "an integer from 0 to 2^53");
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
