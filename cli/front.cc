#include "cli/front.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/topics.h"
#include "core/base/text.h"

namespace mslua::cli {
namespace {

constexpr size_t kQuotedBytes = 80;

// What the user typed, safe to print: control characters as ?, shortened when long.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text.substr(0, kQuotedBytes)) out += absl::ascii_iscntrl(c) ? '?' : c;
  return out + (text.size() > kQuotedBytes ? "...'" : "'");
}

template <class Defs>
std::vector<std::string> Names(const Defs& defs) {
  std::vector<std::string> names;
  for (const auto& def : defs) names.push_back(def.name);
  return names;
}

// The key of key=value: names joined by dots. Empty when `argument` is not an override.
std::string OverrideKey(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return "";
  bool name_starts = true;
  for (size_t i = 0; i < equals; ++i) {
    const char c = argument[i];
    if (c == '.' && !name_starts) {
      name_starts = true;
    } else if (absl::ascii_isalpha(c) || c == '_' || (absl::ascii_isdigit(c) && !name_starts)) {
      name_starts = false;
    } else {
      return "";
    }
  }
  return name_starts ? "" : argument.substr(0, equals);
}

// A number, true or false: what may be the value of a parameter, and is no file.
bool LooksLikeValue(const std::string& text) {
  double number;
  return text == "true" || text == "false" || absl::SimpleAtod(text, &number);
}

// One pass over the arguments of a verb.
class Parser {
 public:
  Parser(const VerbDef& verb, const std::vector<std::string>& arguments) : verb_(verb), arguments_(arguments) {
    command_.verb = verb.name;
  }

  StatusOr<CommandLine> Parse() {
    for (; at_ < arguments_.size(); ++at_) {
      const std::string& argument = arguments_[at_];
      const std::string after_bare = std::exchange(after_bare_, "");
      if (argument == "--") {
        command_.positional.insert(command_.positional.end(), arguments_.begin() + at_ + 1, arguments_.end());
        break;
      }
      if (argument.size() > 1 && argument[0] == '-') {
        RETURN_IF_ERROR(ParseFlag(argument));
      } else if (const std::string key = OverrideKey(argument); !key.empty()) {
        if (!verb_.overrides) return Error("takes no key=value, but got ", Quoted(argument));
        command_.overrides.emplace_back(key, argument.substr(key.size() + 1));
      } else {
        if (!after_bare.empty() && meant_value_.empty()) meant_value_ = absl::StrCat(after_bare, "=", argument);
        command_.positional.push_back(argument);
      }
    }
    RETURN_IF_ERROR(CheckPositional());
    RETURN_IF_ERROR(CheckActions());
    for (const FlagDef& flag : verb_.flags) {
      if (flag.initial && command_.given.count(flag.name) == 0) command_.flags[flag.name] = {*flag.initial};
    }
    return std::move(command_);
  }

 private:
  template <class... Args>
  Status Error(const Args&... args) const {
    return absl::InvalidArgumentError(absl::StrCat(verb_.name, ": ", args...));
  }

  // Takes the flag at arguments_[at_], and the next argument when that is its value.
  Status ParseFlag(const std::string& argument) {
    const bool is_long = absl::StartsWith(argument, "--");
    const size_t equals = argument.find('=');
    // `-n4` is `-n=4`.
    const size_t name_end = is_long ? std::min(equals, argument.size()) : 2;
    const std::string name = argument.substr(is_long ? 2 : 1, name_end - (is_long ? 2 : 1));
    const FlagDef* flag = FindFlag(verb_, name);
    const bool negated = flag == nullptr && is_long && (flag = FindNegated(name)) != nullptr;
    if (flag == nullptr) return UnknownFlag(is_long ? argument.substr(0, name_end) : argument);
    const std::string spelling = negated ? argument.substr(0, name_end) : flag->Typed();

    std::string text;
    if (negated) {
      if (name_end < argument.size()) return Error(spelling, " takes no value, got ", Quoted(argument));
      text = "false";
    } else if (name_end < argument.size()) {
      if (!is_long && flag->kind == FlagKind::kBool && argument[name_end] != '=') return UnknownFlag(argument);
      text = argument.substr(name_end + (argument[name_end] == '=' ? 1 : 0));
    } else if (flag->kind == FlagKind::kBool) {
      text = "true";
    } else if (!flag->bare.empty()) {
      text = flag->bare;
      after_bare_ = spelling;
    } else {
      const bool more = at_ + 1 < arguments_.size();
      // A value may be -1; what looks like a flag is one.
      const std::string next = more ? arguments_[at_ + 1] : "";
      if (!more || (next.size() > 1 && next[0] == '-' && !absl::ascii_isdigit(next[1]) && next[1] != '.')) {
        return Error(spelling, " needs a value: ", spelling, " ", flag->value);
      }
      text = next;
      ++at_;
    }
    const std::optional<FlagValue> value = SetFlag(*flag, text);
    if (!value) {
      return Error(spelling, " expects ", flag->Expected(), ", got ", Quoted(text), DidYouMean(text, flag->Words()));
    }
    if (!flag->repeated && command_.given.count(flag->name) > 0) return Error(spelling, " is given twice");
    command_.flags[flag->name].push_back(*value);
    command_.given[flag->name] = spelling;
    return absl::OkStatus();
  }

  // The boolean that `--no-json` (gflags: `--nojson`) turns off; null when there is none.
  const FlagDef* FindNegated(const std::string& name) const {
    for (const char* prefix : {"no-", "no_", "no"}) {
      if (!absl::StartsWith(name, prefix)) continue;
      const FlagDef* flag = FindFlag(verb_, name.substr(std::strlen(prefix)));
      if (flag != nullptr && flag->kind == FlagKind::kBool) return flag;
    }
    return nullptr;
  }

  Status UnknownFlag(const std::string& spelling) const {
    std::vector<std::string> known = {"--help"};
    for (const FlagDef& flag : verb_.flags) known.push_back(flag.Spelling());
    std::string hint = DidYouMean(spelling, known);
    if (hint.empty()) {
      std::vector<std::string> owners;
      for (const VerbDef& other : Verbs()) {
        for (const FlagDef& flag : other.flags) {
          if (flag.Spelling() == spelling) owners.push_back(other.name);
        }
      }
      hint = owners.empty() ? absl::StrCat("; `mslua help ", verb_.name, "` lists its flags")
                            : absl::StrCat("; it belongs to ", absl::StrJoin(owners, ", "));
      absl::StrAppend(&hint, ParameterHint(spelling));
    }
    return Error("unknown flag ", Quoted(spelling), hint);
  }

  // "--lr=0.1" and "--lr 0.1" were meant to be "lr=0.1", a parameter of the recipe.
  std::string ParameterHint(const std::string& spelling) const {
    if (!verb_.overrides || !absl::StartsWith(spelling, "--")) return "";
    const std::string key = absl::StrReplaceAll(spelling.substr(2), {{"-", "_"}});
    if (OverrideKey(key + "=").empty()) return "";
    const std::string& argument = arguments_[at_];
    std::string value = "VALUE";
    if (argument.size() > spelling.size()) {
      value = argument.substr(spelling.size() + 1);
    } else if (at_ + 1 < arguments_.size() && LooksLikeValue(arguments_[at_ + 1])) {
      value = arguments_[at_ + 1];
    }
    return absl::StrCat("; a parameter of the recipe has no dashes: write ", Quoted(absl::StrCat(key, "=", value)));
  }

  Status CheckPositional() const {
    size_t begin = 0;
    int least = verb_.min_positional, most = verb_.max_positional;
    std::string usage = absl::StrCat("mslua ", verb_.name, " ", verb_.usage);
    if (!verb_.actions.empty()) {
      const std::vector<std::string> names = Names(verb_.actions);
      if (command_.positional.empty()) return Error("needs one of: ", absl::StrJoin(names, " "));
      const std::string& name = command_.positional[0];
      const ActionDef* action = FindAction(verb_, name);
      if (action == nullptr) {
        return Error("expects one of: ", absl::StrJoin(names, " "), "; got ", Quoted(name), DidYouMean(name, names));
      }
      begin = 1;
      least = action->min_positional;
      most = action->max_positional;
      usage = absl::StrCat("mslua ", verb_.name, " ", name, " ", action->usage);
    }
    const int count = static_cast<int>(command_.positional.size() - begin);
    if (count < least) return Error("too few arguments: ", usage);
    if (count > most) {
      const std::string& extra = command_.positional[begin + most];
      return Error("unexpected argument ", Quoted(extra), ExtraHint(extra), ": ", usage);
    }
    return absl::OkStatus();
  }

  // Flags of another action.
  Status CheckActions() const {
    for (const FlagDef& flag : verb_.flags) {
      if (flag.actions.empty() || command_.given.count(flag.name) == 0) continue;
      const std::string& action = command_.positional[0];
      if (std::find(flag.actions.begin(), flag.actions.end(), action) != flag.actions.end()) continue;
      return Error(flag.Spelling(), " has no effect on ", action, ": it belongs to ", verb_.name, " ",
                   absl::StrJoin(flag.actions, ", "));
    }
    return absl::OkStatus();
  }

  // `--resume runs/a` was meant to be `--resume=runs/a`, `max-steps=3` to be a flag, `lr` an override.
  std::string ExtraHint(const std::string& extra) const {
    if (!meant_value_.empty()) return absl::StrCat(" (did you mean ", Quoted(meant_value_), "?)");
    const std::string name = extra.substr(0, extra.find('='));
    if (const FlagDef* flag = FindFlag(verb_, name)) {
      return absl::StrCat(" (did you mean '", flag->Spelling(), extra.substr(name.size()), "'?)");
    }
    return verb_.overrides ? " (parameters are written key=value)" : "";
  }

  const VerbDef& verb_;
  const std::vector<std::string>& arguments_;
  CommandLine command_;
  size_t at_ = 0;
  std::string after_bare_;   // the flag that stands just before without its value, which it may do
  std::string meant_value_;  // `--resume=runs/a` for `--resume runs/a`, the first of the line; empty: none
};

StatusOr<const VerbDef*> KnownVerb(const std::string& name) {
  const VerbDef* verb = FindVerb(name);
  if (verb != nullptr) return verb;
  std::string hint = DidYouMean(name, Names(Verbs()));
  if (absl::EndsWith(name, ".lua")) hint = absl::StrCat("; to train it: mslua train ", name);
  if (absl::StartsWith(name, "-")) hint = "; the verb comes first: mslua VERB [flags]";
  if (hint.empty()) hint = "; `mslua help` lists them";
  return absl::InvalidArgumentError(absl::StrCat("unknown verb ", Quoted(name), hint));
}

}  // namespace

std::vector<std::string> CommandLine::Ignored() const {
  std::vector<std::string> names;
  for (const auto& flag : given) {
    if (read.count(flag.first) == 0) names.push_back(flag.second);
  }
  return names;
}

std::vector<std::string> CommandLine::Strings(const std::string& flag) const {
  read.insert(flag);
  std::vector<std::string> texts;
  if (const auto found = flags.find(flag); found != flags.end()) {
    for (const FlagValue& value : found->second) {
      if (const std::string* text = std::get_if<std::string>(&value)) texts.push_back(*text);
    }
  }
  return texts;
}

StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return absl::InvalidArgumentError("needs a verb; `mslua help` lists them");
  std::string name = arguments[0];
  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  bool help = name == "help";
  for (auto it = arguments.begin(); it != end_of_flags; ++it) help = help || *it == "--help" || *it == "-h";
  if (help) {
    CommandLine command;
    command.verb = "help";
    for (const std::string& argument : arguments) {
      if (argument == "help" || argument[0] == '-') continue;
      name = argument;
      break;
    }
    if (name == "help" || name[0] == '-') return command;
    command.positional = {name};
    if (FindTopic(name) == nullptr) RETURN_IF_ERROR(KnownVerb(name).status());
    return command;
  }
  if (name == "--version") name = "version";
  ASSIGN_OR_RETURN(const VerbDef* verb, KnownVerb(name));
  ASSIGN_OR_RETURN(CommandLine command, ParseVerb(*verb, {arguments.begin() + 1, arguments.end()}));
  command.words = arguments;
  return command;
}

StatusOr<CommandLine> ParseVerb(const VerbDef& verb, const std::vector<std::string>& arguments) {
  // The result has the values; gflags keeps none of them for the next command line.
  const gflags::FlagSaver saver;
  return Parser(verb, arguments).Parse();
}

std::string HelpFor(const CommandLine& command) {
  if (command.positional.empty()) return OverviewText();
  if (const Topic* topic = FindTopic(command.positional[0])) return TopicText(*topic);
  return HelpText(*FindVerb(command.positional[0]));
}

}  // namespace mslua::cli
