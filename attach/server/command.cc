#include "attach/server/command.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text.h"

namespace mslua::endpoint {
namespace {

constexpr int kMany = 64;

// clang-format off
std::vector<CommandDef> MakeCommands() {
  constexpr auto kHub = CommandDef::Plane::kHub, kOneRank = CommandDef::Plane::kOneRank,
                 kEachRank = CommandDef::Plane::kEachRank, kBoundary = CommandDef::Plane::kBoundary;
  // name, usage, doc, fewest and most arguments, who answers, writes, Lua name
  return {
      {"help", "", "these commands", 0, 0, kHub, false},
      {"ranks", "", "each rank: process, phase, step, speed, memory", 0, 0, kEachRank, false},
      {"params", "[PATTERN]", "parameters and state: type, size", 0, 1, kOneRank, false},
      {"layout", "P", "which rank holds which part of a parameter", 1, 1, kEachRank, false},
      {"mem", "", "memory of the rank", 0, 0, kEachRank, false},
      {"comm", "[N]", "the last N collective calls of each rank, joined (default 10)", 0, 1, kEachRank, false},
      {"graph", "[PATTERN]", "the compiled graph, or its nodes that match", 0, 1, kOneRank, false},
      {"plan", "", "what compiling came to", 0, 0, kOneRank, false},
      {"diag", "", "what the rank does, for how long, and where", 0, 0, kEachRank, false},
      {"stack", "", "native and Lua stack of the training thread", 0, 0, kEachRank, false},
      {"plot", "[loss]", "the curve of the last 4096 steps", 0, 1, kOneRank, false},
      {"tail", "[N]", "the last N losses (default 10)", 0, 1, kOneRank, false},
      {"status", "", "epoch, step, running or paused", 0, 0, kHub, false},
      {"who", "", "attached clients", 0, 0, kHub, false},
      {"rw", "", "take the writer lock, to steer", 0, 0, kHub, false},
      {"ro", "", "give it back", 0, 0, kHub, false},
      {"watches", "", "what is watched and which breaks wait", 0, 0, kOneRank, false},
      {"stat", "NAME", "mean, extremes, zeros, NaN of a parameter, activation or grad(P)", 1, 1, kBoundary, false},
      {"grad", "P", "the same of the gradient of P at the next step", 1, 1, kBoundary, false},
      {"dump", "NAME [FILE.safetensors]", "the value: printed, or written beside the run", 1, 2, kBoundary, false},
      {"watch", "NAME [every N] [limit M]", "its statistics every N steps", 1, 5, kBoundary, false},
      {"unwatch", "[NAME]", "ends that watch, or all", 0, 1, kBoundary, false},
      {"prof", "[N]", "a trace of the next N steps of all ranks, for Perfetto (default 1)", 0, 1, kBoundary, false},
      {"pause", "", "stop between two steps", 0, 0, kBoundary, true},
      {"step", "[N]", "make N steps (default 1), then pause again", 0, 1, kBoundary, true},
      {"resume", "", "continue", 0, 0, kBoundary, true},
      {"set", "lr=V|lr=schedule [at STEP]", "override a scheduled scalar", 1, 3, kBoundary, true},
      {"save", "[NAME]", "a checkpoint now", 0, 1, kBoundary, true},
      {"eval", "", "evaluate now", 0, 0, kBoundary, true},
      {"break", "nan | loss>V | loss<V | step N", "pause when that happens", 1, 2, kBoundary, true, "breakpoint"},
      {"clear", "", "forget all breaks", 0, 0, kBoundary, true},
      {"stop", "[now]", "end training after a checkpoint, or without one", 0, 1, kBoundary, true},
  };
}
// clang-format on

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

const std::vector<CommandDef>& Commands() {
  static const auto* commands = new std::vector<CommandDef>(MakeCommands());
  return *commands;
}

StatusOr<Command> ParseCommand(absl::string_view line) {
  if (line.empty() || line[0] != '.') return absl::InvalidArgumentError("a command begins with a point (.help)");
  if (line.size() > 4096) return absl::InvalidArgumentError("a command has at most 4096 bytes");
  for (const unsigned char c : line) {
    if (c < 0x20 && c != '\t') return absl::InvalidArgumentError("a command holds no control characters");
  }
  std::vector<std::string> words;
  if (!Split(line.substr(1), &words)) return absl::InvalidArgumentError("a quote is not closed");
  if (words.empty()) return absl::InvalidArgumentError("a command begins with a point and a name (.help)");
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
  if (command.def->name == "set" && command.args.size() == 3 && command.args[1] == "at") {
    ASSIGN_OR_RETURN(command.at, ParseCount(command.args[2], 0, "at"));
    command.args.resize(1);
  }
  const int given = static_cast<int>(command.args.size());
  const int most = command.def->name == "set" ? 1 : command.def->max_args;
  if (given < command.def->min_args || given > most || given > kMany)
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

std::string CommandHelp() {
  std::string text;
  for (const CommandDef& def : Commands()) {
    const std::string call = absl::StrCat(".", def.name, def.usage.empty() ? "" : " ", def.usage);
    absl::StrAppendFormat(&text, "  %-36s %s%s\n", call, def.doc, def.writes ? " (.rw)" : "");
  }
  return text;
}

}  // namespace mslua::endpoint
