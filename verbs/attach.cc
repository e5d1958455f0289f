// mslua attach
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attach/client/connection.h"
#include "attach/client/output.h"
#include "attach/server/command.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "lua/open_session.h"
#include "repl/help.h"
#include "repl/interrupt.h"
#include "repl/loop.h"
#include "repl/run_lua.h"
#include "verbs/define.h"
#include "verbs/support/attach_client.h"
#include "verbs/support/report.h"

DEFINE_bool(rw, false, "take the writer lock, to steer");

namespace mslua {
namespace {

using repl::Connection;

// "c7d01a e1:s441 run"; "!" holds the writer lock.
std::string Prompt(const Connection& connection, const StatusOr<std::string>& status, bool writer) {
  return absl::StrCat(connection.job().id, " ",
                      status.ok()                            ? Printable(*status)
                      : absl::IsUnavailable(status.status()) ? "ended"
                                                             : "no answer",
                      writer ? "!" : "");
}

// What a client has asked for that a job forgets with the connection: the lock, watches, breaks.
class Wishes {
 public:
  bool writer() const { return writer_; }
  // Whether the job is paused for this client: by it, or at a break of it.
  bool paused() const { return paused_; }
  // A command that was carried out.
  void Done(absl::string_view line) {
    const std::vector<std::string> words = WordsOf(line);
    if (words.empty()) return;
    if (words[0] == ".rw" || words[0] == ".ro") writer_ = words[0] == ".rw";
    if (words[0] == ".pause" || words[0] == ".step" || words[0] == ".resume") paused_ = words[0] != ".resume";
    if (words[0] == ".watch" || words[0] == ".break") lines_.emplace_back(line);
    if (words[0] == ".clear") Forget(".break", "");
    if (words[0] == ".unwatch") Forget(".watch", words.size() > 1 ? words[1] : "");
  }
  // An event: a break is over when it was hit.
  void Happened(absl::string_view event) {
    const auto hit = std::find_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return absl::StartsWith(line, ".break") && absl::StartsWith(event, absl::StrCat(line.substr(1), ":"));
    });
    if (hit == lines_.end()) return;
    lines_.erase(hit);
    paused_ = true;
  }
  // Commands that ask for it again.
  std::vector<std::string> lines() const {
    std::vector<std::string> all = lines_;
    if (writer_) all.insert(all.begin(), ".rw");
    return all;
  }

 private:
  // Without the ranks that the line is for.
  static std::vector<std::string> WordsOf(absl::string_view line) {
    std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!words.empty() && words[0][0] == '@') words.erase(words.begin());
    return words;
  }
  // All lines of that command, or those of that name.
  void Forget(const std::string& command, const std::string& name) {
    const auto is_meant = [&](const std::string& line) {
      const std::vector<std::string> words = WordsOf(line);
      return words[0] == command && (name.empty() || (words.size() > 1 && words[1] == name));
    };
    lines_.erase(std::remove_if(lines_.begin(), lines_.end(), is_meant), lines_.end());
  }

  bool writer_ = false, paused_ = false;
  std::vector<std::string> lines_;
};

// Takes a lost connection up again and asks for what there was. False: the job has ended.
bool ComeBack(Connection& connection, Wishes* wishes, const std::function<void(const std::string&)>& note) {
  constexpr absl::Duration kLimit = absl::Seconds(60);
  if (!connection.TakeUpAgain(kLimit).ok()) return false;
  note(absl::StrCat("the job has started again (job epoch ", Printable(connection.greeting().at("job_epoch")),
                    "): attached to ", connection.job().id, " again"));
  for (const std::string& line : std::exchange(*wishes, Wishes()).lines()) {
    const auto answer = connection.Call(line, false, absl::Seconds(30));
    if (answer.ok()) wishes->Done(line);
    note(absl::StrCat(line, ": ", Printable(answer.ok() ? *answer : std::string(answer.status().message()))));
  }
  return true;
}

// At the end of a session: a job that is paused for this client continues.
void Leave(Connection& connection, const Wishes& wishes) {
  if (!wishes.writer() && !wishes.paused()) return;
  const auto status = connection.Call(".status", false);
  if (!status.ok()) return;
  Status resumed;
  if (absl::StrContains(*status, "PAUSED")) {
    if (!wishes.writer()) resumed = connection.Call(".rw", false).status();
    if (resumed.ok()) resumed = connection.Call(".resume", false).status();
  }
  if (resumed.ok())
    std::printf("detached; training continues\n");
  else
    std::printf("detached; the job stays paused: %s\n", Printable(resumed.message()).c_str());
}

// After a line of -e that failed: those behind it, which might have resumed the job, were not sent.
int Failed(Connection& connection) {
  const auto status = connection.Call(".status", false);
  if (status.ok() && absl::StrContains(*status, "PAUSED")) {
    std::fflush(stdout);
    std::fprintf(stderr, "mslua: the job is paused, and stays so: mslua attach %s --rw -e .resume\n",
                 connection.job().id.c_str());
  }
  return kExitUsage;
}

// Commands that this program carries out, besides those of the REPL.
constexpr const char* kOwnCommands[] = {".detach", ".mode", ".output"};

// With --rw: the lock, before the first command.
Status TakeLock(Connection& connection, bool rw) {
  return rw ? connection.Call(".rw", false).status() : absl::OkStatus();
}

// The prompt, or the lines of -e, which take the same commands.
int RunLoop(Connection& connection, Session& session, bool rw, std::vector<std::string> lines) {
  const bool prompt = lines.empty();
  Wishes wishes;
  repl::Output output;
  const auto send = [&](absl::string_view line) -> Status {
    ASSIGN_OR_RETURN(const bool own, output.Command(line));
    if (own) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string answer, connection.Call(line, output.wants_json()));
    wishes.Done(line);
    return output.Print(answer);
  };
  const repl::RunCall call = [&](const std::string& line) {
    auto answer = connection.Call(line, true);
    if (answer.ok()) wishes.Done(line);
    return answer;
  };
  if (const Status opened = repl::OpenRun(session, &call); !opened.ok()) return Report(opened);
  connection.interrupted = [] { return repl::TakeInterrupt(); };
  repl::Loop::Extension extension;
  std::function<void(const std::string&)> note = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  extension.prompt = [&] {
    auto status = connection.Call(".status", false);
    if (absl::IsUnavailable(status.status()) && ComeBack(connection, &wishes, note))
      status = connection.Call(".status", false);
    return Prompt(connection, status, wishes.writer());
  };
  extension.command = [&](absl::string_view line) -> Status {
    if (line == ".detach") return absl::CancelledError("");
    const Status sent = send(line);
    if (sent.ok() || prompt) return sent;
    const bool named = absl::StartsWith(sent.message(), line.substr(0, line.find(' ')));
    return named ? sent : Status(sent.code(), absl::StrCat(line, ": ", sent.message()));
  };
  for (const auto& def : endpoint::Commands()) extension.commands.push_back("." + def.name);
  for (const char* own : kOwnCommands) extension.commands.emplace_back(own);
  extension.help = absl::StrCat(endpoint::CommandHelp(), repl::AttachHelp());
  extension.parameters = [&] {
    std::vector<std::string> names;
    const auto text = connection.Call(".params", false);
    if (!text.ok()) return names;
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) names.emplace_back(line.substr(0, line.find(' ')));
    return names;
  };
  bool ended = false;
  extension.background = {connection.fd(), [&] {
                            ended = !connection.Poll() && !ComeBack(connection, &wishes, note);
                            return !ended;
                          }};
  if (!prompt) extension.report = [](absl::string_view message) { Report(absl::InvalidArgumentError(message)); };
  extension.lines = std::move(lines);
  repl::Loop loop(session, std::move(extension));
  note = [&](const std::string& line) { loop.Note(line); };
  connection.on_event = [&](const std::string& line) {
    wishes.Happened(line);
    loop.Note(Printable(line));
  };
  if (!prompt) {
    if (const Status taken = TakeLock(connection, rw); !taken.ok()) return Report(taken);
    return loop.Run() == 0 ? kExitOk : Failed(connection);
  }
  const auto& g = connection.greeting();
  std::printf("attached to %s %s (%s %s, started %s, %s; .help, Ctrl-D detaches)\n", g.at("job").c_str(),
              Printable(g.at("name")).c_str(), g.at("ranks").c_str(), g.at("ranks") == "1" ? "rank" : "ranks",
              g.at("started").c_str(), rw ? "you steer" : "you are an observer; .rw to steer");
  if (rw) {
    if (const Status taken = send(".rw"); !taken.ok()) return Report(taken);
  }
  loop.Run();
  std::fflush(stdout);
  if (ended) std::fprintf(stderr, "mslua: the job has ended\n");
  Leave(connection, wishes);
  return kExitOk;
}

// Lines whose answers are objects: the job's commands alone.
Status CheckJsonLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const std::string name = line.substr(0, line.find(' '));
    const bool lua = line[0] != '.' && line[0] != '@';
    const bool own = std::find(std::begin(kOwnCommands), std::end(kOwnCommands), name) != std::end(kOwnCommands) ||
                     name == ".timer" || name == ".quit" || name == ".exit";
    if (lua || own)
      return absl::InvalidArgumentError(
          absl::StrCat("attach: --json takes commands of the job, got -e '", line, "': leave --json out"));
  }
  return absl::OkStatus();
}

int RunAttach(const cli::CommandLine& command) {
  const bool json = command.Bool("json"), rw = command.Bool("rw");
  const std::vector<std::string> lines = command.Strings("e");
  if (json && lines.empty())
    return Report(absl::InvalidArgumentError("attach: --json needs -e CMD; at the prompt, .mode json"));
  if (const Status objects = json ? CheckJsonLines(lines) : absl::OkStatus(); !objects.ok()) return Report(objects);
  auto connection = AttachTo(command);
  if (!connection.ok()) return Report(connection.status(), kExitEnvironment);
  if (json) {
    if (const Status taken = TakeLock(**connection, rw); !taken.ok()) return Report(taken);
    const int code = RunCommands(**connection, lines, true);
    return code == kExitOk ? code : Failed(**connection);
  }
  SessionOptions options;
  options.verb = "repl";
  auto session = OpenSession(options);
  if (!session.ok()) return Report(session.status());
  const Status opened = (*session)->RunText("ms = require 'mslua' nn, ops = ms.nn, ms.ops", "=mslua/repl");
  if (!opened.ok()) return Report(opened);
  return RunLoop(**connection, **session, rw, lines);
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(attach) {
  VerbDef verb;
  verb.name = "attach";
  verb.usage = "[RUN] [flags]";
  verb.doc = "look into a running job: its folder, id, or last";
  verb.max_positional = 1;
  verb.flags = {Switch(FLAGS_rw), Commands(), Json()};
  verb.examples = {"mslua attach", "mslua attach last -e .ranks", "mslua attach runs/a --rw -e .pause -e .save"};
  verb.place = 305;
  verb.run = RunAttach;
  return verb;
}

}  // namespace mslua::cli
