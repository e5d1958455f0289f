#include "attach/server/command.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text.h"

namespace mslua::endpoint {
namespace {

// Words; "..." keeps blanks. False: a quote is not closed.
bool Split(absl::string_view text, std::vector<std::string>* words) {
  bool quoted = false, open = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
      if (!open) words->emplace_back();
      open = true;
    } else if (absl::ascii_isspace(static_cast<unsigned char>(c)) && !quoted) {
      open = false;
    } else {
      if (!open) words->emplace_back();
      open = true;
      words->back().push_back(c);
    }
  }
  return !quoted;
}

}  // namespace

std::vector<CommandDef> AllCommands();  // generated: of each file of commands/

const std::vector<CommandDef>& Commands() {
  static const auto* const commands = [] {
    auto* const all = new std::vector<CommandDef>(AllCommands());
    std::stable_sort(all->begin(), all->end(), [](const auto& a, const auto& b) { return a.place < b.place; });
    return all;
  }();
  return *commands;
}

StatusOr<Command> ParseCommand(absl::string_view line) {
  if (line.empty() || line[0] != '.') return absl::InvalidArgumentError("a command begins with a dot (.help)");
  if (line.size() > 4096) return absl::InvalidArgumentError("a command has at most 4096 bytes");
  for (const unsigned char c : line) {
    if (c < 0x20 && c != '\t') return absl::InvalidArgumentError("a command holds no control characters");
  }
  std::vector<std::string> words;
  if (!Split(line.substr(1), &words)) return absl::InvalidArgumentError("a quote is not closed");
  if (words.empty()) return absl::InvalidArgumentError("a command begins with a dot and a name (.help)");
  Command command;
  command.text = std::string(line);
  std::vector<std::string> names;
  for (const CommandDef& def : Commands()) {
    if (def.name == words[0]) command.def = &def;
    names.push_back(def.name);
  }
  if (command.def == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown command .", words[0].substr(0, 64), DidYouMean(words[0].substr(0, 64), names)));
  }
  command.args.assign(words.begin() + 1, words.end());
  std::vector<std::string>& args = command.args;
  if (command.def->takes_step && args.size() > 2 && args[args.size() - 2] == "at") {
    ASSIGN_OR_RETURN(command.at, ParseCount(args.back(), 0, "at"));
    args.resize(args.size() - 2);
  }
  const int given = static_cast<int>(args.size());
  if (given < command.def->min_args || given > command.def->max_args)
    return absl::InvalidArgumentError(absl::StrCat("usage: .", command.def->name, " ", command.def->usage));
  return command;
}

StatusOr<int64_t> ParseCount(absl::string_view text, int64_t least, absl::string_view what) {
  int64_t n = 0;
  if (!absl::SimpleAtoi(text, &n) || n < least)
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected an integer of at least ", least, ", got '", text.substr(0, 64), "'"));
  return n;
}

StatusOr<int64_t> CountOf(const Command& command, int64_t value) {
  return command.args.empty() ? value : ParseCount(command.args[0], 1, "." + command.def->name);
}

std::string CommandHelp() {
  std::string text;
  for (const CommandDef& def : Commands()) {
    const std::string call = absl::StrCat(".", def.name, def.usage.empty() ? "" : " ", def.usage);
    absl::StrAppendFormat(&text, "  %-36s %s%s\n", call, def.doc, def.writes ? " (.rw)" : "");
  }
  return text;
}

}  // namespace mslua::endpoint
