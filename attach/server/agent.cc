#include "attach/server/agent.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/clock.h"

namespace mslua::endpoint {
std::string TextOf(const RankMessage& message, const char* name) {
  const auto found = message.find(name);
  return found == message.end() ? "" : found->second;
}

int64_t NumberOf(const RankMessage& message, const char* name) {
  int64_t n = 0;
  return absl::SimpleAtoi(TextOf(message, name), &n) ? n : 0;
}

std::vector<int> NumbersOf(const RankMessage& message, const char* name) {
  std::vector<int> numbers;
  for (const absl::string_view text : absl::StrSplit(TextOf(message, name), ',', absl::SkipEmpty())) {
    if (int n = 0; absl::SimpleAtoi(text, &n)) numbers.push_back(n);
  }
  return numbers;
}

const CommandDef& ForgetCommand() {
  static const auto* const def = [] {
    auto* const forget = new CommandDef("forget", "", "");
    forget->between_steps = [](Steering& steering, const Request& request, const TrainState&,
                               bool*) -> StatusOr<Answer> {
      steering.Forget(request.client);
      return Answer();
    };
    return forget;
  }();
  return *def;
}

Agent::Agent(const TrainingView& view, std::function<void(RankMessage message)> send)
    : view_(view),
      send_(std::move(send)),
      boundary_(view_, {[this](const Request& r, const StatusOr<Answer>& a) {
                          if (!r.told) return SendAnswer(absl::StrCat(r.seq), a);
                          const absl::string_view text = a.ok() ? absl::string_view(a->text) : a.status().message();
                          if (r.reports) SendEvent(r.client, std::string(absl::StripSuffix(text, "\n")));
                        },
                        [this](uint64_t client, const std::string& line) { SendEvent(client, line); },
                        [this](int64_t step) {
                          send_({{"op", "leaves"}, {"step", absl::StrCat(step)}});
                        }}),
      snapshots_(view_, boundary_),
      helper_(view_.rank, view_.ranks,
              {[this](uint64_t, const std::string& id, const StatusOr<std::string>& answer) {
                 if (answer.ok())
                   SendAnswer(id, Answer{*answer, ""});
                 else
                   SendAnswer(id, answer.status());
               },
               [this](const std::string& line) { CommandOfLua(line); }}) {}

MonotonicTime Agent::OnWake() {
  helper_.OnDeadline();
  return helper_.deadline();
}

void Agent::SendEvent(uint64_t client, const std::string& line) {
  send_({{"op", "event"}, {"client", absl::StrCat(client)}, {"text", line.substr(0, kMostText)}});
}

// A long JSON goes to rank 0 only where it is whole; the text is for people, and may be shortened.
void Agent::SendAnswer(const std::string& seq, const StatusOr<Answer>& answer) {
  RankMessage message = {{"op", "answer"}, {"seq", seq}};
  if (answer.ok()) {
    const bool fits = view_.rank == 0 || answer->text.size() + answer->json.size() <= kMostText + kMostJson;
    message["text"] = view_.rank == 0 ? answer->text : answer->text.substr(0, kMostText);
    if (fits) message["json"] = answer->json;
  } else {
    message["error"] = std::string(answer.status().message().substr(0, kMostText));
  }
  send_(std::move(message));
}

void Agent::OnMessage(int from, const RankMessage& message) {
  if (from != 0) return;
  const std::string op = TextOf(message, "op");
  if (op == "ask") return Ask(message);
  if (op == "propose") return Propose(message);
  if (op == "decide") return boundary_.Decide(static_cast<uint64_t>(NumberOf(message, "seq")), true);
  if (op == "drop") return boundary_.Decide(static_cast<uint64_t>(NumberOf(message, "seq")), false);
  if (op == "release") return boundary_.Release(NumberOf(message, "step"));
  if (op != "lua") return;
  if (message.count("error") > 0)
    helper_.Reply(absl::FailedPreconditionError(TextOf(message, "error")));
  else
    helper_.Reply(TextOf(message, "text"));
}

void Agent::Ask(const RankMessage& message) {
  const std::string line = TextOf(message, "line"), seq = TextOf(message, "seq");
  if (!absl::StartsWith(line, ".")) return helper_.Evaluate(0, seq, line);
  const auto command = ParseCommand(line);
  if (!command.ok()) return SendAnswer(seq, command.status());
  SendAnswer(seq, Snapshot(*command));
}

StatusOr<Answer> Agent::Snapshot(const Command& command) {
  if (command.def->at_once == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(".", command.def->name, " is not answered at once by a rank"));
  return command.def->at_once(snapshots_, command);
}

void Agent::Propose(const RankMessage& message) {
  Request request;
  request.seq = static_cast<uint64_t>(NumberOf(message, "seq"));
  request.client = static_cast<uint64_t>(NumberOf(message, "client"));
  request.who = TextOf(message, "who");
  request.ranks = NumbersOf(message, "ranks");
  request.reports = request.ranks.empty() ? view_.rank == 0 : request.Names(view_.rank);
  const int64_t step = NumberOf(message, "step");
  Ack ack{false, 0, ""};
  if (TextOf(message, "forget") == "1") {
    request.command.def = &ForgetCommand();
    ack = boundary_.Propose(std::move(request), step);
  } else if (auto command = ParseCommand(TextOf(message, "line")); !command.ok()) {
    ack.why = std::string(command.status().message());
  } else if (command->def->between_steps == nullptr) {
    ack.why = absl::StrCat(".", command->def->name, " is not carried out between steps");
  } else {
    request.command = *std::move(command);
    ack = boundary_.Propose(std::move(request), step);
  }
  send_({{"op", "ack"},
         {"seq", TextOf(message, "seq")},
         {"for", absl::StrCat(step)},
         {"accepted", ack.accepted ? "1" : "0"},
         {"step", absl::StrCat(ack.step)},
         {"why", ack.why}});
}

// What Lua asks about its rank is answered here; what all ranks do, by the hub.
void Agent::CommandOfLua(const std::string& line) {
  const auto command = ParseCommand(line);
  if (!command.ok()) return helper_.Reply(command.status());
  if (command->def->at_once == nullptr) return send_({{"op", "lua"}, {"line", line}});
  const auto answer = Snapshot(*command);
  if (answer.ok())
    helper_.Reply(answer->json.empty() ? answer->text : answer->json);
  else
    helper_.Reply(answer.status());
}

}  // namespace mslua::endpoint
