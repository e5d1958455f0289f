// The commands of attach: one table, which parsing, help, completion and the Lua functions ms.run.* read.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::endpoint {

struct CommandDef {
  std::string name;   // "pause": typed as .pause
  std::string usage;  // what follows the name
  std::string doc;    // one line
  int min_args = 0, max_args = 0;
  // Snapshots are answered at once from what other threads may read, whatever the rank is doing: by the hub, by rank 0
  // (or the ranks that "@ranks" names), or by each rank. The others are carried out between two steps, by all ranks.
  enum class Plane { kHub, kOneRank, kEachRank, kBoundary } plane = Plane::kBoundary;
  // Changes the training, so that only the holder of the writer lock may give it.
  bool writes = false;
  std::string lua = "";  // the function of ms.run, where it is not called as the command is
  bool snapshot() const { return plane != Plane::kBoundary; }
};

const std::vector<CommandDef>& Commands();

struct Command {
  const CommandDef* def = nullptr;
  std::vector<std::string> args;
  std::string text;  // as it was typed
  int64_t at = -1;   // ".set lr=0.1 at 460": the number of steps done before it is applied; -1: as soon as possible
};

// Splits at blanks ("..." keeps them) and looks the name up. InvalidArgument: an unknown name, with the nearest one, or
// the wrong number of arguments, with the usage.
StatusOr<Command> ParseCommand(absl::string_view line);

// A number of steps, at least `least`. InvalidArgument otherwise.
StatusOr<int64_t> ParseCount(absl::string_view text, int64_t least, absl::string_view what);

std::string CommandHelp();

}  // namespace mslua::endpoint
