// From argv to one checked, typed command line.
//
//   verb [argument ...] [key=value ...] [flags]      in any order after the verb
//
// - `--out DIR`, `--out=DIR`, `-n 4`, `-n4`; a flag whose value is optional takes it only after `=`.
// - key=value overrides are kept in order; a later one of the same key wins when they are applied.
// - `--` ends flags and overrides: what follows are arguments as they stand.
// - `--help`, `-h` and `help VERB` become the verb `help`; `--version` becomes `version`.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/verbs.h"
#include "core/base/status.h"

namespace mslua::cli {

struct CommandLine {
  std::string verb;                                            // of the table, or "help"
  std::vector<std::string> positional;                         // an action stands first; of `help`: the verb, if any
  std::vector<std::pair<std::string, std::string>> overrides;  // key and unparsed value, in order
  std::map<std::string, std::vector<FlagValue>> flags;         // by name; given ones and defaults, never empty
  std::map<std::string, std::string> given;                    // by name: how each given flag is spelled
  std::vector<std::string> words;                              // all of it as it came, the verb first

  bool Given(const std::string& flag) const {
    read.insert(flag);
    return given.count(flag) > 0;
  }
  // The value of a flag, its default when not given; false, 0 or "" when it has none. The flag has to be in the
  // verb's table with that kind. Int reads kInt and kIntOrEnum (0 for a word), String also the words of the enums.
  bool Bool(const std::string& flag) const { return Get<bool>(flag); }
  int64_t Int(const std::string& flag) const { return Get<int64_t>(flag); }
  double Float(const std::string& flag) const { return Get<double>(flag); }
  std::string String(const std::string& flag) const { return Get<std::string>(flag); }
  // All values of a repeated string flag, in order.
  std::vector<std::string> Strings(const std::string& flag) const;

  // The flags that were given and that nothing has asked for, spelled: what the verb ignored.
  std::vector<std::string> Ignored() const;
  // Other processes read the flags.
  void HandOn() const {
    for (const auto& flag : given) read.insert(flag.first);
  }

 private:
  template <class T>
  T Get(const std::string& flag) const {
    read.insert(flag);
    const auto found = flags.find(flag);
    const T* value = found == flags.end() ? nullptr : std::get_if<T>(&found->second.back());
    return value == nullptr ? T() : *value;
  }

  mutable std::set<std::string> read;  // the flags that somebody asked for
};

// Checks `arguments` (argv without the program) against the table. kInvalidArgument, for exit code 2: the message is
// one line without "mslua: error: ", with what was expected and the nearest name.
StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// The same for the arguments after `verb`.
StatusOr<CommandLine> ParseVerb(const VerbDef& verb, const std::vector<std::string>& arguments);

// What the verb `help` prints: the page of `command.positional[0]`, or the overview.
std::string HelpFor(const CommandLine& command);

}  // namespace mslua::cli
