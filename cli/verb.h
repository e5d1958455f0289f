// The definition of a verb of the command line. The verbs are the files of verbs/.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace mslua::cli {

struct CommandLine;

// A verb takes any number of arguments.
inline constexpr int kUnlimited = 1 << 20;

// What a verb such as `data` is asked to do: its first argument.
struct ActionDef {
  std::string name;
  std::string usage;       // the arguments after it
  int min_positional = 0;  // counted without the action itself
  int max_positional = 0;
};

// One verb. `usage` is what follows `mslua VERB`.
struct VerbDef {
  std::string name;
  std::string usage;
  std::string doc;  // one line, begins in lower case, without a full stop
  int min_positional = 0;
  int max_positional = 0;
  bool overrides = false;  // takes key=value
  std::vector<FlagDef> flags;
  std::vector<std::string> examples;    // three command lines
  std::vector<ActionDef> actions = {};  // not empty: the first argument is one of these, and their limits hold
  int place = 0;                        // in the help: hundreds are the group (kGroups in verbs.cc), the rest the order
  // Does what is asked for; gives the exit code. Null: the program's own affair (completion, help).
  int (*run)(const CommandLine& command) = nullptr;
};

}  // namespace mslua::cli
