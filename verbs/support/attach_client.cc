#include "verbs/support/attach_client.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/json/json_string.h"
#include "verbs/support/report.h"

namespace mslua {

using repl::Connection;

StatusOr<std::unique_ptr<Connection>> AttachTo(const cli::CommandLine& command) {
  ASSIGN_OR_RETURN(const endpoint::Job job, endpoint::FindJob(command.positional.empty() ? "" : command.positional[0]));
  return Connection::Attach(job, 0, absl::Seconds(3));
}

void PrintAnswer(absl::string_view text) {
  text = absl::StripSuffix(text, "\n");
  if (!text.empty()) std::printf("%s\n", Printable(text).c_str());
  std::fflush(stdout);
}

namespace {

// One line of `-e`: {"command":".save","ok":true,"answer":...}, or the text.
void PrintScripted(const std::string& line, const StatusOr<std::string>& answer, bool json) {
  if (!json) {
    if (answer.ok())
      PrintAnswer(*answer);
    else
      Report(Status(answer.status().code(), absl::StrCat(line, ": ", Printable(answer.status().message()))));
    return;
  }
  const std::string text = answer.ok() ? *answer : std::string(answer.status().message());
  const bool object = answer.ok() && !text.empty() && text[0] == '{';
  std::printf("{\"command\":%s,\"ok\":%s,\"answer\":%s}\n", JsonString(line).c_str(), answer.ok() ? "true" : "false",
              object ? text.c_str() : JsonString(absl::StripSuffix(text, "\n")).c_str());
  std::fflush(stdout);
}

}  // namespace

int RunCommands(Connection& connection, const std::vector<std::string>& lines, bool json) {
  connection.on_event = [json](const std::string& line) {
    if (json)
      std::printf("{\"event\":%s}\n", JsonString(line).c_str());
    else
      PrintAnswer(line);
    std::fflush(stdout);
  };
  for (const std::string& line : lines) {
    const auto answer = connection.Call(line, json);
    PrintScripted(line, answer, json);
    if (!answer.ok()) return kExitUsage;
  }
  return kExitOk;
}

}  // namespace mslua
