// Completion of the shell. The scripts of bash, zsh and fish ask the program on each Tab: `mslua __complete WORD...`.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua::cli {

// The first argument with which the scripts start the program; it is no verb.
inline constexpr char kCompleteArgument[] = "__complete";

// The script that teaches `shell` (bash, zsh, fish) to ask the program. kInvalidArgument for another shell.
StatusOr<std::string> CompletionScript(const std::string& shell);

struct Candidate {
  std::string word;
  std::string doc;  // one line, may be empty
};

// What can be typed at the end of a command line.
struct Slot {
  std::string typed;                  // the part of the last word that is there already, "sm" of "--preset=sm"
  std::string before;                 // the part that stays, "--preset="
  std::vector<Candidate> candidates;  // from the table: verbs, actions, flags, words of a flag; not filtered
  bool recipe = false;                // a recipe of the library, a Lua file or a folder
  bool run = false;                   // a running job or a run folder
  bool file = false;                  // any file
  // Of the recipe that the line names (`recipe_file`): the names of its presets, its parameters.
  bool preset = false;
  bool parameter = false;
  std::string recipe_file;
};

// The slot of the last of `words`, which are what follows `mslua` up to the cursor; the last may be empty.
Slot SlotOf(const std::vector<std::string>& words);

// The lines `WORD` or `WORD<TAB>DOC` for candidates that begin with `slot.typed`. A word that ends in / or = wants
// more.
std::string CompletionLines(const Slot& slot, const std::vector<Candidate>& more);

}  // namespace mslua::cli
