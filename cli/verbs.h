// The verbs of mslua: one table that parsing, help and completion read. A verb is a file in cli/verbs/ and a line in
// cli/verbs.cc, for its place in the help.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace mslua::cli {

// What a verb such as `data` is asked to do: its first argument.
struct ActionDef {
  std::string name;
  std::string usage;       // the arguments after it
  int min_positional = 0;  // counted without the action itself
  int max_positional = 0;
  bool built = true;
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
  bool built = true;                    // false: named in the help, refused with one error
};

// Every verb, in the order of the help.
const std::vector<VerbDef>& Verbs();
// Null when there is no such verb, flag or action.
const VerbDef* FindVerb(const std::string& name);
const FlagDef* FindFlag(const VerbDef& verb, const std::string& name);
const ActionDef* FindAction(const VerbDef& verb, const std::string& name);

// The page of `mslua help`: the verbs, under 40 lines.
std::string OverviewText();
// The page of `mslua help VERB`: usage, flags, three examples, under 40 lines.
std::string HelpText(const VerbDef& verb);

}  // namespace mslua::cli
