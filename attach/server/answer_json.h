// The JSON in other ranks' answers. A rank may run another build or be damaged: no field of it is used unchecked.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "attach/server/command.h"
#include "core/json/json.h"

namespace mslua::endpoint {

enum class Field { kText, kNumber, kInteger, kFlag, kShape, kList, kObject };

using Fields = std::initializer_list<std::pair<const char*, Field>>;

// Whether `json` is an object that has each of `fields`, of its kind. A shape is a list of integers from 0 to 2^53.
bool HasFields(const Json& json, Fields fields);

// The object that `text` holds, if it has `fields`.
std::optional<Json> ReadObject(const std::string& text, Fields fields);

// The objects of the ranks whose answers have `fields`.
std::map<int, Json> ReadObjects(const Answers& answers, Fields fields);

// On one line; bytes that are no UTF-8 are replaced.
std::string Dump(const Json& json);
// {"ranks":[...]} of these.
std::string JsonOfRanks(const std::map<int, Json>& objects);
// The same of the answers that have an object; a rank without an answer says so.
std::string JsonOfRanks(const Answers& answers);

}  // namespace mslua::endpoint
