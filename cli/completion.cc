#include "cli/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/verbs.h"

namespace mslua::cli {
namespace {

std::vector<std::string> VerbNames() {
  std::vector<std::string> names = {"help"};
  for (const VerbDef& verb : Verbs()) {
    if (verb.built) names.push_back(verb.name);
  }
  return names;
}

// What may follow `mslua VERB`: actions, then flags.
std::string WordsOf(const VerbDef& verb) {
  std::vector<std::string> words;
  for (const ActionDef& action : verb.actions) {
    if (action.built) words.push_back(action.name);
  }
  for (const FlagDef& flag : verb.flags) {
    if (flag.built) words.push_back(flag.Spelling());
  }
  words.push_back("--help");
  return absl::StrJoin(words, " ");
}

// One `VERB) WORDS` branch a verb, of a shell's case.
std::string Branches(const std::string& before, const std::string& after) {
  std::string text = absl::StrCat("    help) ", before, absl::StrJoin(VerbNames(), " "), after, " ;;\n");
  for (const VerbDef& verb : Verbs()) {
    if (verb.built) absl::StrAppend(&text, "    ", verb.name, ") ", before, WordsOf(verb), after, " ;;\n");
  }
  return text;
}

std::string Bash() {
  return absl::StrCat("# mslua completion for bash\n_mslua() {\n", "  local words=\n", "  case ${COMP_WORDS[1]} in\n",
                      Branches("words='", "'"), "  esac\n", "  if [ \"$COMP_CWORD\" = 1 ]; then words='",
                      absl::StrJoin(VerbNames(), " "), "'; fi\n",
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n", "}\n",
                      "complete -o default -F _mslua mslua ./mslua\n");
}

std::string Zsh() {
  return absl::StrCat("#compdef mslua\n_mslua() {\n", "  local -a known\n", "  case $words[2] in\n",
                      Branches("known=(", ")"), "  esac\n", "  if (( CURRENT == 2 )); then\n    compadd -- ",
                      absl::StrJoin(VerbNames(), " "), "\n  else\n    compadd -- $known\n    _files\n  fi\n}\n",
                      // zsh loads the file as the function on first use; otherwise it was sourced.
                      "if [ \"$funcstack[1]\" = _mslua ]; then _mslua \"$@\"; else compdef _mslua mslua; fi\n");
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string Fish() {
  std::string text = "# mslua completion for fish\n";
  for (const VerbDef& verb : Verbs()) {
    if (!verb.built) continue;
    absl::StrAppend(&text, "complete -c mslua -n __fish_use_subcommand -f -a ", verb.name, " -d ", FishQuoted(verb.doc),
                    "\n");
    const std::string seen = absl::StrCat("complete -c mslua -n '__fish_seen_subcommand_from ", verb.name, "' ");
    for (const ActionDef& action : verb.actions) {
      if (action.built) absl::StrAppend(&text, seen, "-f -a ", action.name, "\n");
    }
    for (const FlagDef& flag : verb.flags) {
      if (!flag.built) continue;
      const bool needs_value = flag.kind != FlagKind::kBool && flag.bare.empty();
      absl::StrAppend(&text, seen, flag.name.size() == 1 ? "-s " : "-l ", flag.name, needs_value ? " -r" : "", " -d ",
                      FishQuoted(flag.help), "\n");
    }
  }
  return text;
}

}  // namespace

StatusOr<std::string> CompletionScript(const std::string& shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  return absl::InvalidArgumentError(absl::StrCat("completion: expects bash, zsh or fish, got '", shell, "'"));
}

}  // namespace mslua::cli
