// mslua: one program, one verb for each use (verbs/).
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/completion.h"
#include "cli/front.h"
#include "cli/topics.h"
#include "cli/verbs.h"
#include "core/base/exit_code.h"
#include "core/kernels/select/kernel_verdicts.h"
#include "launch/output.h"
#include "launch/process.h"
#include "lua/complete_line.h"
#include "repl/name_help.h"
#include "repl/session_lua.h"
#include "verbs/support/report.h"

namespace {

using mslua::cli::CommandLine;

int Help(const CommandLine& command) {
  std::fputs(mslua::cli::HelpFor(command).c_str(), stdout);
  return 0;
}

// `mslua help NAME` of a name of the library: the exit code. None where it has none, and a verb may be meant.
std::optional<int> HelpOfName(const std::vector<std::string>& words) {
  if (words.size() != 2 || words[0] != "help" || mslua::cli::FindTopic(words[1]) != nullptr ||
      mslua::cli::FindVerb(words[1]) != nullptr)
    return std::nullopt;
  const auto text = mslua::repl::HelpOfName(words[1]);
  if (text.ok()) {
    std::printf("%s\n", text->c_str());
    return 0;
  }
  const bool dotted = absl::StrContains(words[1], '.') && !absl::EndsWith(words[1], ".lua");
  return dotted ? std::optional<int>(mslua::Report(text.status())) : std::nullopt;
}

int RunVerb(const std::vector<std::string>& words) {
  if (const std::optional<int> code = HelpOfName(words)) return *code;
  const auto command = mslua::cli::ParseCommandLine(words);
  if (!command.ok()) return mslua::Report(command.status());
  if (command->verb == "help") return Help(*command);
  const mslua::cli::VerbDef* const verb = mslua::cli::FindVerb(command->verb);
  if (verb == nullptr || verb->run == nullptr)
    return mslua::Report(absl::UnimplementedError(command->verb + " is not part of this build"));
  const int code = verb->run(*command);
  const std::vector<std::string> ignored = code == 0 ? command->Ignored() : std::vector<std::string>();
  if (ignored.empty()) return code;
  return mslua::Report(absl::InvalidArgumentError(
      absl::StrCat(command->verb, ": ", absl::StrJoin(ignored, ", "), " had no effect on this command")));
}

int Run(int argc, char** argv) {
  // A rank starts this program for the Lua of attached people; it is no verb.
  if (const auto code = mslua::RunSessionLua(argc, argv)) return *code;
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // The scripts of `mslua completion` start it; it is no verb either.
  if (!words.empty() && words[0] == mslua::cli::kCompleteArgument)
    return mslua::CompleteLine({words.begin() + 1, words.end()});
  const int code = RunVerb(words);
  const mslua::Status printed = mslua::FlushStandardOutput();
  return code != 0 ? code : mslua::Report(printed);
}

// Before the constructors of other files, which may find no memory.
__attribute__((constructor(101))) void SetUp() { mslua::SetUpProcess(); }

}  // namespace

int main(int argc, char** argv) {
  // A rank that starts itself again by /proc/self/exe would be listed as "exe".
  prctl(PR_SET_NAME, "mslua");
  mslua::OfferKernelChecks(argc, argv);
  try {
    return Run(argc, argv);
  } catch (const std::exception&) {
    const mslua::Status status = mslua::StatusOfException();
    const bool limit = absl::IsResourceExhausted(status);
    return mslua::Report(status, limit ? mslua::kExitEnvironment : mslua::kExitInternal);
  }
}
