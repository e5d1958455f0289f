// The commands of attach. Each is one file of commands/: parsing, help, completion, the Lua functions ms.run.* and the
// reference read the list of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/status.h"

namespace mslua {
struct TrainState;
}

namespace mslua::endpoint {

class Hub;
class Snapshots;
class Steering;
struct Caller;
struct Command;
struct Request;

// What a command came to: text for people and, where there is one, a JSON object for programs.
struct Answer {
  std::string text, json;
};
using Answers = std::map<int, StatusOr<Answer>>;  // by rank

struct CommandDef {
  CommandDef(std::string name, std::string usage, std::string doc, int min_args = 0, int max_args = 0)
      : name(std::move(name)), usage(std::move(usage)), doc(std::move(doc)), min_args(min_args), max_args(max_args) {}

  std::string name;   // "pause": typed as .pause
  std::string usage;  // what follows the name
  std::string doc;    // one line
  int min_args, max_args;
  int place = 1000;      // in .help: the least first
  std::string lua = "";  // the function of ms.run, where it is not called as the command is

  // Who carries it out: one of these is set.
  // The hub, on rank 0, at once.
  StatusOr<Answer> (*by_hub)(Hub& hub, const Caller& caller) = nullptr;
  // Rank 0, or the ranks that "@ranks" names, or with `each_rank` all of them: at once, from what other threads than
  // the training's may read, whatever the rank is doing.
  StatusOr<Answer> (*at_once)(const Snapshots& rank, const Command& command) = nullptr;
  // All ranks after the same step, on their training threads. With `*later` it answers when it is done.
  StatusOr<Answer> (*between_steps)(Steering& steering, const Request& request, const TrainState& state,
                                    bool* later) = nullptr;

  bool each_rank = false;
  bool names_rank = false;  // its text says which rank speaks
  // Changes the training, so that only the holder of the writer lock may give it.
  bool writes = false;
  // What it changes is kept, where the job starts again, before it is answered.
  bool kept = false;
  bool takes_step = false;       // "at STEP" may follow: after so many steps
  bool until_leave = false;      // leaves something behind until its client has gone
  const char* named_with = " ";  // what stands between name and value of a named argument of ms.run
  // One answer out of those of the ranks, of which at least one is OK - all of them, between steps. Null: as Combine
  // does (combine.h).
  StatusOr<Answer> (*combine)(const Command& command, const Answers& answers, absl::Duration took) = nullptr;

  bool snapshot() const { return between_steps == nullptr; }
};

// In the order of .help.
const std::vector<CommandDef>& Commands();

struct Command {
  const CommandDef* def = nullptr;
  std::vector<std::string> args;
  std::string text;  // as it was typed
  int64_t at = -1;   // ".set lr=0.1 at 460": the number of steps done before it has effect; -1: as soon as possible
};

struct Request {
  uint64_t seq = 0;  // the hub's name for it
  uint64_t client = 0;
  Command command;
  std::string who;         // "process 4102": for the record
  std::vector<int> ranks;  // whose values are asked for: "@ranks", or the rank whose Lua asks; empty: nobody said
  bool reports = true;     // what is watched or dumped is this rank's to tell
  bool told = false;       // the client has its answer already, and what comes is an event

  bool Names(int rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
};

// Splits at blanks ("..." keeps them) and looks the name up. InvalidArgument: an unknown name, with the nearest one, or
// the wrong number of arguments, with the usage.
StatusOr<Command> ParseCommand(absl::string_view line);

// A number of steps, at least `least`. InvalidArgument otherwise.
StatusOr<int64_t> ParseCount(absl::string_view text, int64_t least, absl::string_view what);
// The first argument, or `value` where there is none.
StatusOr<int64_t> CountOf(const Command& command, int64_t value);

// What .help answers: a line for each command.
std::string CommandHelp();

}  // namespace mslua::endpoint
