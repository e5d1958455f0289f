#include "cli/verbs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/topics.h"
#include "cli/usage.h"

namespace mslua::cli {
namespace {

// Headings of the help, by the hundreds of VerbDef::place.
constexpr absl::string_view kGroups[] = {"",
                                         "train and use a network",
                                         "recipes, data and scripts",
                                         "running jobs",
                                         "finished runs",
                                         "time and memory of a step",
                                         "jobs on several hosts",
                                         "this program"};

absl::string_view GroupOf(const VerbDef& verb) { return kGroups[verb.place / 100]; }

std::string FlagNotes(const FlagDef& flag) {
  std::string notes;
  if (!flag.actions.empty()) absl::StrAppend(&notes, " (", absl::StrJoin(flag.actions, ", "), ")");
  if (!flag.bare.empty()) absl::StrAppend(&notes, " (bare: ", flag.bare, ")");
  if (!flag.default_value.empty()) absl::StrAppend(&notes, " (default ", flag.default_value, ")");
  return notes;
}

}  // namespace

const VerbDef* FindVerb(const std::string& name) {
  for (const VerbDef& verb : Verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

const FlagDef* FindFlag(const VerbDef& verb, const std::string& name) {
  // gflags reads --max_steps as --max-steps.
  const std::string dashed = absl::StrReplaceAll(name, {{"_", "-"}});
  for (const FlagDef& flag : verb.flags) {
    if (flag.name == dashed) return &flag;
  }
  return nullptr;
}

const ActionDef* FindAction(const VerbDef& verb, const std::string& name) {
  for (const ActionDef& action : verb.actions) {
    if (action.name == name) return &action;
  }
  return nullptr;
}

std::string FlagUsage(const FlagDef& flag) {
  if (flag.kind == FlagKind::kBool) return flag.Spelling();
  if (!flag.bare.empty()) return absl::StrCat(flag.Spelling(), "[=", flag.value, "]");
  return absl::StrCat(flag.Spelling(), " ", flag.value);
}

std::string OverviewText() {
  std::string text = "usage: mslua VERB [argument ...] [key=value ...] [flags]\n";
  absl::string_view group;
  for (const VerbDef& verb : Verbs()) {
    if (GroupOf(verb) != group) {
      group = GroupOf(verb);
      absl::StrAppend(&text, "\n", group, "\n");
    }
    absl::StrAppend(&text, absl::StrFormat("  %-11s %s\n", verb.name, verb.doc));
  }
  absl::StrAppend(&text, "\ntopics of help\n");
  for (const Topic& topic : Topics()) absl::StrAppend(&text, absl::StrFormat("  %-11s %s\n", topic.name, topic.doc));
  absl::StrAppend(&text, "\nexamples\n", "  mslua train recipes/quickstart.lua\n", "  mslua help train\n",
                  "  mslua help nn.Dense\n", "  mslua repl recipes/quickstart.lua\n");
  return text;
}

std::string HelpText(const VerbDef& verb) {
  std::string text = absl::StrCat("usage: mslua ", verb.name, " ", verb.usage, "\n  ", verb.doc, "\n");
  if (!verb.actions.empty()) {
    absl::StrAppend(&text, "\nactions\n");
    for (const ActionDef& action : verb.actions) {
      absl::StrAppend(&text, absl::StripSuffix(absl::StrCat("  ", action.name, " ", action.usage), " "), "\n");
    }
  }
  size_t width = 0;
  for (const FlagDef& flag : verb.flags) width = std::max(width, FlagUsage(flag).size());
  if (!verb.flags.empty()) absl::StrAppend(&text, "\nflags\n");
  for (const FlagDef& flag : verb.flags) {
    absl::StrAppend(&text, absl::StrFormat("  %-*s  %s%s\n", width, FlagUsage(flag), flag.help, FlagNotes(flag)));
  }
  absl::StrAppend(&text, "\nexamples\n");
  for (const std::string& example : verb.examples) absl::StrAppend(&text, "  ", example, "\n");
  return text;
}

}  // namespace mslua::cli
