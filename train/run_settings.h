// What a run was trained with, read from the first line of its config.lua.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

inline constexpr char kRunConfig[] = "config.lua";

struct RunSettings {
  std::string from;  // the recipe's file, or its name in the library
  std::string name;  // the recipe's name; empty in older runs
  // Parameters of ms.params by name ("lr"), fields of the recipe by path ("seed", "train.epochs"); as Lua text.
  std::map<std::string, std::string> values;
  // Where a value came from, by the same names: "recipe", "preset smoke", "command line"; empty in older runs.
  std::map<std::string, std::string> origins;
  std::string recipe;  // its text
};

// Reads `require("mslua.params").resolved {from = "...", leaves = {...}, params = {...}}` at the beginning of `text`,
// which is data: nothing of it is run. DataLoss: it begins with something else, with the column.
StatusOr<RunSettings> ParseRunSettings(absl::string_view text);
// Of a run folder. NotFound: it has no config.lua, as that of a training that a script began.
StatusOr<RunSettings> ReadRunSettings(const std::string& folder);

}  // namespace mslua
