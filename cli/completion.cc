#include "cli/completion.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/topics.h"
#include "cli/verbs.h"

namespace mslua::cli {
namespace {

// ./mslua of a clone builds first: its completion asks the program that was built last, if there is one.
constexpr char kBash[] = R"(# mslua completion for bash
_mslua() {
  local program=$1 line=${COMP_LINE:0:COMP_POINT} found
  case $program in
    \~*) program=$HOME${program#\~} ;;
  esac
  if [[ $program == */* && -e ${program%/*}/tools/build.sh ]]; then
    program=${program%/*}/.build/mslua
    [ -x "$program" ] || return
  fi
  local words
  read -ra words <<< "$line"
  case $line in *[[:space:]]) words+=('') ;; esac
  # bash splits words at = and :, and replaces the last part only.
  local part=${COMP_WORDS[COMP_CWORD]} full=${words[${#words[@]}-1]}
  [ "$part" = = ] && part=
  local kept=${full%"$part"}
  COMPREPLY=()
  compopt -o nospace
  while IFS= read -r found; do
    found=${found%%$'\t'*}
    case $found in */ | *=) ;; *) found="$found " ;; esac
    COMPREPLY+=("${found#"$kept"}")
  done < <("$program" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _mslua mslua ./mslua
)";

constexpr char kZsh[] = R"zsh(#compdef mslua
_mslua() {
  local program=${~words[1]} line
  if [[ $program == */* && -e ${program:h}/tools/build.sh ]]; then
    program=${program:h}/.build/mslua
    [ -x "$program" ] || return
  fi
  local -a whole open
  for line in ${(f)"$($program __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
    line=${line%%$'\t'*}
    if [[ $line == */ || $line == *= ]]; then open+=($line); else whole+=($line); fi
  done
  compadd -- $whole
  compadd -S '' -- $open
}
# zsh loads the file as the function on first use; otherwise it was sourced.
if [ "$funcstack[1]" = _mslua ]; then _mslua "$@"; else compdef _mslua mslua; fi
)zsh";

constexpr char kFish[] = R"(# mslua completion for fish
function __mslua_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l program $words[1]
  set -l clone (dirname $program)
  if string match -q '*/*' $program; and test -e $clone/tools/build.sh
    set program $clone/.build/mslua
    test -x $program; or return
  end
  $program __complete $words[2..-1] 2>/dev/null
end
complete -c mslua -f -a '(__mslua_complete)'
)";

bool TakesValue(const FlagDef& flag) { return flag.kind != FlagKind::kBool && flag.bare.empty(); }

void AddVerbs(Slot* slot) {
  slot->candidates.push_back({"help", "the verbs, or the page of one"});
  for (const VerbDef& verb : Verbs()) slot->candidates.push_back({verb.name, verb.doc});
}

void AddFlags(const VerbDef& verb, const std::string& action, Slot* slot) {
  for (const FlagDef& flag : verb.flags) {
    const bool fits =
        flag.actions.empty() || std::find(flag.actions.begin(), flag.actions.end(), action) != flag.actions.end();
    if (fits) slot->candidates.push_back({flag.Spelling(), flag.help});
  }
  slot->candidates.push_back({"--help", "this verb's page"});
}

// What a flag's value, or an argument, may be: words such as `cpu|cuda`, and what its upper-case names stand for.
void AddValues(const std::string& usage, Slot* slot) {
  const std::vector<std::string> words = absl::StrSplit(usage, '|');
  for (const std::string& word : words) {
    if (word == "RECIPE") {
      slot->recipe = true;
    } else if (word == "RUN") {
      slot->run = true;
    } else if (word == "P") {
      slot->preset = true;
    } else if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos) {
      slot->candidates.push_back({word, ""});
    } else if (word == "DIR" || word == "PATH" || word == "FILE" || absl::StartsWith(word, "FILE.") ||
               word == "SCRIPT" || word == "CKPT" || word == "OUT" || absl::StartsWith(word, "OUT.")) {
      slot->file = true;
    }
  }
}

// The usage of the argument at `index`, without brackets; empty where none may stand.
std::string ArgumentUsage(const std::string& usage, size_t index) {
  size_t i = 0;
  absl::string_view last;
  for (absl::string_view word : absl::StrSplit(usage, ' ', absl::SkipEmpty())) {
    if (word == "[flags]" || absl::StartsWith(word, "[key=value") || word == "...]") continue;
    if (word == "...") return std::string(last);
    word = absl::StripSuffix(absl::StripPrefix(word, "["), "]");
    if (i++ == index) return std::string(word);
    last = word;
  }
  return "";
}

}  // namespace

StatusOr<std::string> CompletionScript(const std::string& shell) {
  if (shell == "bash") return std::string(kBash);
  if (shell == "zsh") return std::string(kZsh);
  if (shell == "fish") return std::string(kFish);
  return absl::InvalidArgumentError(absl::StrCat("completion: expects bash, zsh or fish, got '", shell, "'"));
}

Slot SlotOf(const std::vector<std::string>& words) {
  Slot slot;
  slot.typed = words.empty() ? "" : words.back();
  if (words.size() < 2) {
    AddVerbs(&slot);
    return slot;
  }
  if (words[0] == "help") {
    if (words.size() == 2) {
      AddVerbs(&slot);
      for (const Topic& topic : Topics()) slot.candidates.push_back({topic.name, topic.doc});
    }
    return slot;
  }
  const VerbDef* verb = FindVerb(words[0]);
  if (verb == nullptr) return slot;
  // The arguments that stand before the last word, and the flag that waits for its value.
  std::vector<std::string> arguments;
  const FlagDef* waits = nullptr;
  for (size_t i = 1; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (waits != nullptr) {
      waits = nullptr;
    } else if (word == "--") {
      slot.file = true;
      return slot;
    } else if (word.size() > 1 && word[0] == '-') {
      const FlagDef* flag = FindFlag(*verb, word.substr(word.find_first_not_of('-') == 2 ? 2 : 1));
      if (flag != nullptr && TakesValue(*flag)) waits = flag;
    } else if (word.find('=') == std::string::npos) {
      arguments.push_back(word);
    }
  }
  const std::string action = verb->actions.empty() || arguments.empty() ? "" : arguments[0];
  const ActionDef* found = FindAction(*verb, action);
  const size_t first = verb->actions.empty() ? 0 : 1;
  const std::string& usage = found != nullptr ? found->usage : verb->usage;
  for (size_t i = first; i < arguments.size(); ++i) {
    if (absl::StrContains(ArgumentUsage(usage, i - first), "RECIPE")) slot.recipe_file = arguments[i];
  }
  const size_t equals = slot.typed.find('=');
  if (waits == nullptr && absl::StartsWith(slot.typed, "--") && equals != std::string::npos) {
    waits = FindFlag(*verb, slot.typed.substr(2, equals - 2));
    if (waits == nullptr) return slot;
    slot.before = slot.typed.substr(0, equals + 1);
    slot.typed = slot.typed.substr(equals + 1);
  }
  if (waits != nullptr) {
    AddValues(waits->value, &slot);
    slot.preset = slot.preset && waits->name == "preset";
    return slot;
  }
  if (absl::StartsWith(slot.typed, "-")) {
    AddFlags(*verb, action, &slot);
    return slot;
  }
  if (equals != std::string::npos) {  // the value of a parameter
    slot.before = slot.typed.substr(0, equals + 1);
    slot.typed = slot.typed.substr(equals + 1);
    slot.file = true;
    return slot;
  }
  if (!verb->actions.empty() && found == nullptr) {
    for (const ActionDef& one : verb->actions) slot.candidates.push_back({one.name, one.usage});
    return slot;
  }
  AddValues(ArgumentUsage(usage, arguments.size() - first), &slot);
  slot.preset = false;
  slot.parameter = verb->overrides && !slot.recipe_file.empty();
  return slot;
}

std::string CompletionLines(const Slot& slot, const std::vector<Candidate>& more) {
  std::string lines;
  for (const auto* list : {&slot.candidates, &more}) {
    for (const Candidate& candidate : *list) {
      if (!absl::StartsWith(candidate.word, slot.typed)) continue;
      absl::StrAppend(&lines, slot.before, candidate.word, candidate.doc.empty() ? "" : "\t", candidate.doc, "\n");
    }
  }
  return lines;
}

}  // namespace mslua::cli
