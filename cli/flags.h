// Flags of the command line. Each is a gflags flag, defined with DEFINE_* in the file of its verb (verbs/train.cc)
// or, when several verbs take it, in cli/common_flags.cc. gflags holds name, default and help text, and converts and
// checks values. The functions below add what gflags does not know: how help calls the value, and which values are
// allowed.
//
//   DEFINE_int64(max_steps, 0, "stop after N steps");
//   verb.flags = {Integer(FLAGS_max_steps, "N", 1)};       // --max-steps N, N >= 1
//
// A default outside the allowed values ("", a number below the minimum) means that the flag has no default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gflags/gflags.h"

namespace mslua::cli {

using FlagValue = std::variant<bool, int64_t, double, std::string>;

enum class FlagKind { kBool, kInt, kFloat, kString, kEnum, kIntOrEnum };

// One flag of a verb. A name of one letter is written `-n`, a longer one `--out`.
struct FlagDef {
  std::string gflag;  // name in gflags, "max_steps"
  std::string name;   // name on the command line, "max-steps"
  FlagKind kind = FlagKind::kBool;
  std::string value;                 // how help calls the value: "N", "DIR"; for enums the words, "cpu|cuda"
  std::string help;                  // one line, without a full stop
  std::string default_value;         // text of the default; empty: none
  std::optional<FlagValue> initial;  // the default; a boolean always has one
  std::string bare;                  // not empty: the value may be left out and is this then; given it stands after `=`
  double minimum = 0;                // of numbers
  bool repeated = false;             // every value counts, in order; otherwise a second one is an error
  // The actions of the verb that it belongs to; empty: all. With another one it is an error.
  std::vector<std::string> actions = {};
  const void* storage = nullptr;  // the FLAGS_ variable, of the type that gflags knows

  // Another spelling on the command line, for a flag that means something else in another verb.
  FlagDef As(std::string spelling) &&;
  // Another help text in this verb.
  FlagDef Help(std::string text) &&;
  FlagDef Bare(std::string text) &&;
  FlagDef Repeated() &&;
  FlagDef Of(std::vector<std::string> names) &&;

  // "-n", "--out".
  std::string Typed() const;
  // How help names it: as Typed, but "--no-attach" for a boolean that is true by default.
  std::string Spelling() const;
  // The words of an enum; empty for other kinds.
  std::vector<std::string> Words() const;
  // What an error says it takes: "an integer from 1".
  std::string Expected() const;
};

// The argument must be a variable of DEFINE_bool, DEFINE_int64, DEFINE_double or DEFINE_string itself, not a copy.
FlagDef Switch(const bool& flag);
FlagDef Integer(const gflags::int64& flag, std::string value, int64_t minimum);
FlagDef Number(const double& flag, std::string value, double minimum);  // finite
FlagDef Text(const std::string& flag, std::string value);               // not empty
FlagDef OneOf(const std::string& flag, std::string words);              // "cpu|cuda"
FlagDef IntegerOrWord(const std::string& flag, std::string value);      // "N|epoch": an integer from 1, or a word

// Has gflags convert, check and store `text`. Returns the stored value, nothing when the flag does not take it.
std::optional<FlagValue> SetFlag(const FlagDef& flag, const std::string& text);

}  // namespace mslua::cli
