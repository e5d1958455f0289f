// The members of JSON objects in a checkpoint. Included by .cc files of this folder only: it brings in the JSON
// library.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/json/json.h"

namespace mslua::checkpoint {

// An object, read by ParseJson.
StatusOr<Json> ParseJsonObject(absl::string_view text);
// One line of text; strings that are not UTF-8 are an error.
StatusOr<std::string> DumpJson(const Json& json);

// The member `key` of `object`, of the right kind; an error that names the key otherwise.
Status GetInt(const Json& object, const char* key, int64_t* out);  // in [0, 2^63)
// A number of steps, epochs or saves, in [0, kMaxCount]: small enough to be counted on from, and to be a number of Lua.
inline constexpr int64_t kMaxCount = int64_t{1} << 53;
Status GetCount(const Json& object, const char* key, int64_t* out);
Status GetString(const Json& object, const char* key, std::string* out);
Status GetSizes(const Json& object, const char* key, Shape* out);  // an array of integers in [0, 2^63)
StatusOr<const Json*> GetArray(const Json& object, const char* key);
StatusOr<const Json*> GetObject(const Json& object, const char* key);

// The bytes of a dense tensor; an error when that overflows 63 bits, a negative size counting as such.
StatusOr<int64_t> CheckedBytes(const TensorType& type);

}  // namespace mslua::checkpoint
