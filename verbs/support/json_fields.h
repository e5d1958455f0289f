// Fields of JSON from files of other runs, which may be damaged: of another type than they should be, they are missing.
#pragma once

#include <string>

#include "core/json/json.h"

namespace mslua {

// The text of that name, else "".
inline std::string TextIn(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The number of that name, else `otherwise`.
inline double NumberIn(const Json& json, const char* name, double otherwise) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

// The list of that name, else an empty one.
inline Json ListIn(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_array() ? *found : Json::array();
}

}  // namespace mslua
