// mslua chat
#include <unistd.h>

#include "cli/common_flags.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "repl/interrupt.h"
#include "repl/line_editor.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/sampling.h"

DEFINE_string(template, "", "the chat template: llama3, chatml, alpaca or FILE.lua; not given: its own");
DEFINE_string(system, "", "the first message, of the role system");

namespace mslua {
namespace {

using repl::LineEditor;

// Calls the function on top of the stack with a line; whether the person stays.
StatusOr<bool> Answer(Session& session, const std::string& line) {
  lua_State* L = session.lua();
  const StackGuard guard(L);
  lua_pushvalue(L, -1);
  PushString(L, line);
  repl::InterruptLua(L);
  const Status status = session.Call(1, 1);
  repl::InterruptLua(nullptr);
  RETURN_IF_ERROR(status);
  return lua_toboolean(L, -1) != 0;
}

// Until the end of the lines or .quit; gives the number of lines that failed.
int Talk(Session& session) {
  const repl::InterruptScope interrupts;
  const auto editor = LineEditor::Create([](const std::string&) { return repl::Completions(); }, {});
  int errors = 0;
  std::string line;
  while (true) {
    const auto result = editor->ReadLine("> ", &line);
    if (result == LineEditor::Result::kEnd) return errors;
    if (result == LineEditor::Result::kInterrupted) continue;
    const auto stays = Answer(session, line);
    if (!stays.ok()) {
      Report(stays.status());
      ++errors;
    } else if (!*stays) {
      return errors;
    }
  }
}

int RunChat(const cli::CommandLine& command) {
  SessionOptions options = SamplingOptionsOf(command);
  for (const char* flag : {"template", "system"}) {
    if (command.Given(flag)) options.flags.emplace_back(flag, command.String(flag));
  }
  auto session = OpenSession(std::move(options));
  if (!session.ok()) return Report(session.status());
  if (const Status status = CallForNetwork(**session, "chat"); !status.ok()) return Report(status);
  // Errors at a terminal's prompt were seen there.
  return Talk(**session) == 0 || isatty(STDIN_FILENO) ? 0 : 1;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(chat) {
  VerbDef verb;
  verb.name = "chat";
  verb.usage = "RECIPE|DIR [key=value ...] [flags]";
  verb.doc = "talk with a network; one line is one message";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = SamplingFlags({Text(FLAGS_template, "T"), Text(FLAGS_system, "TEXT")});
  verb.examples = {"mslua chat /models/llama", "mslua chat /models/llama --system terse --temperature 0.7",
                   "mslua chat /models/llama --max-new 200 --json"};
  verb.place = 130;
  verb.run = RunChat;
  return verb;
}

}  // namespace mslua::cli
