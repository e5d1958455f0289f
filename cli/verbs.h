// The commands of mslua: one table that parsing, help and completion read. A new verb, action or flag is a row here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mslua::cli {

enum class FlagKind { kBool, kInt, kFloat, kString, kEnum, kIntOrEnum };

// One flag of a verb. A name of one letter is written `-n`, a longer one `--out`.
struct FlagDef {
  std::string name;
  FlagKind kind = FlagKind::kBool;
  std::string value;          // how help calls the value: "N", "DIR"; for enums the words, "cpu|cuda"
  std::string help;           // one line, without a full stop
  std::string default_value;  // text of the value when the flag is not given; empty: none
  std::string bare;           // not empty: the value may be left out and is this then; given it stands after `=`
  double minimum = 0;         // of numbers
  bool repeated = false;      // every value counts, in order; otherwise a second one is an error
  bool built = true;          // false: named in the help, refused with one error
  // The actions of the verb that it belongs to; empty: all. With another one it is an error.
  std::vector<std::string> actions = {};

  FlagDef Default(std::string text) &&;
  FlagDef Bare(std::string text) &&;
  FlagDef Repeated() &&;
  FlagDef NotBuilt() &&;
  FlagDef Of(std::vector<std::string> names) &&;

  // "-n" or "--out".
  std::string Spelling() const;
  // The words of an enum; empty for other kinds.
  std::vector<std::string> Words() const;
};

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
