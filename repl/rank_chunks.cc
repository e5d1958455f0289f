#include "repl/rank_chunks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collectives/communicator.h"
#include "collectives/groups.h"
#include "core/train/agreement.h"
#include "lua/object.h"
#include "lua/stop_together.h"
#include "luajit-2.1/lua.hpp"
#include "repl/chunk.h"
#include "repl/interrupt.h"
#include "repl/show.h"

namespace mslua::repl {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

constexpr size_t kMostText = 48 << 10;  // of one message (Membership::Tell)
constexpr auto kLook = std::chrono::milliseconds(50);
// From Ctrl-C until Lua is interrupted where ranks have not stopped together, and until collectives are given up.
constexpr auto kInterruptAfter = std::chrono::seconds(1), kInterruptTogether = std::chrono::seconds(5);
constexpr auto kBreakOffAfter = std::chrono::seconds(8);
// From the first rank's error until the others' collectives are given up.
constexpr auto kAloneAfter = std::chrono::seconds(5);

constexpr char kChannel[] = "repl";  // of Membership
constexpr char kKind[] = "kind", kText[] = "text", kSequence[] = "n";

std::string Shortened(std::string text) {
  if (text.size() > kMostText) text = absl::StrCat(text.substr(0, kMostText), "...");
  return text;
}

// Runs a line; its results stay on the stack above `*before`.
Status RunLine(Session& session, const std::string& text, const std::string& name, int* before) {
  lua_State* L = session.lua();
  bool complete = true;
  RETURN_IF_ERROR(Load(L, text, name, &complete));
  if (!complete) return absl::InvalidArgumentError("the statement is not complete");
  *before = lua_gettop(L) - 1;
  return session.Call(0, LUA_MULTRET);
}

StatusOr<std::string> Evaluated(Session& session, const std::string& text) {
  lua_State* L = session.lua();
  const StackGuard guard(L);
  int before = 0;
  RETURN_IF_ERROR(RunLine(session, text, "@", &before));
  std::string shown;
  for (int i = before + 1; i <= lua_gettop(L); ++i)
    absl::StrAppend(&shown, i > before + 1 ? "\t" : "", Show(session, L, i));
  return shown;
}

void BreakOff(Session& session, const std::string& why) {
  if (session.groups() != nullptr) session.groups()->world().Abort(absl::AbortedError(why));
}

// Of all ranks, once each has its listener.
Status MeetListening(Session& session) {
  return LargestOfRanks(*session.groups(), 0, "the ranks of the REPL").status();
}

}  // namespace

StatusOr<Addressed> ParseAddressed(absl::string_view line, int size) {
  const auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat("expected @RANKS EXPRESSION with ranks from 0 to ", size - 1,
                                                   ", such as @1 x, @0-2,5 x or @all x; got '", line, "'"));
  };
  if (!absl::ConsumePrefix(&line, "@")) return wrong();
  const size_t blank = line.find(' ');
  if (blank == absl::string_view::npos) return wrong();
  Addressed found;
  found.text = std::string(absl::StripAsciiWhitespace(line.substr(blank)));
  const absl::string_view list = line.substr(0, blank);
  if (found.text.empty()) return wrong();
  std::set<int> ranks;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = size - 1;
    if (list != "all" && !absl::SimpleAtoi(ends.first, &first)) return wrong();
    if (list != "all" && !absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second, &last)) return wrong();
    if (first < 0 || last >= size || first > last) return wrong();
    for (int r = first; r <= last; ++r) ranks.insert(r);
  }
  found.ranks.assign(ranks.begin(), ranks.end());
  return found;
}

RankChunks::RankChunks(Session& session, Membership& membership)
    : session_(session), membership_(membership), size_(membership.size()) {
  membership_.Listen(kChannel, [this](int from, const Membership::Texts& texts) { OnTold(from, texts); });
}

RankChunks::~RankChunks() {
  TellAll({{kKind, "leave"}});
  membership_.Listen(kChannel, nullptr);
}

Status RankChunks::Meet() { return MeetListening(session_); }

void RankChunks::TellAll(const Membership::Texts& texts) {
  for (int r = 1; r < size_; ++r) membership_.Tell(kChannel, r, texts);
}

void RankChunks::OnTold(int from, const Membership::Texts& texts) {
  const auto kind = texts.find(kKind), text = texts.find(kText), n = texts.find(kSequence);
  int64_t sequence = -1;
  if (kind == texts.end() || text == texts.end() || n == texts.end() || !absl::SimpleAtoi(n->second, &sequence)) return;
  const Lock lock(mutex_);
  if (sequence != sequence_) return;  // of a line that is over
  if (kind->second == "ended")
    ended_[from] = text->second;
  else if (kind->second == "answer")
    answers_[from] = text->second;
  changed_.notify_all();
}

Status RankChunks::Begin(const std::string& text) {
  if (text.size() > kMostText) return absl::InvalidArgumentError("more than 48 KiB at once: put it into a file");
  RETURN_IF_ERROR(membership_.Health());
  {
    const Lock lock(mutex_);
    ++sequence_;
    ended_.clear();
    running_ = true;
    over_ = false;
  }
  CurrentLineStop().wanted = false;
  CurrentLineStop().together = false;
  TellAll({{kKind, "run"}, {kText, text}, {kSequence, absl::StrCat(sequence_)}});
  watch_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

void RankChunks::Watch() {
  bool interrupted = false, raised = false, broke = false;
  Clock::time_point since, first_error;
  Lock lock(mutex_);
  while (!over_) {
    changed_.wait_for(lock, kLook);
    const auto now = Clock::now();
    if (InterruptPending() && !interrupted) {
      interrupted = true;
      since = now;
      CurrentLineStop().wanted = true;
      TellAll({{kKind, "stop"}, {kSequence, absl::StrCat(sequence_)}, {kText, ""}});
    }
    const auto limit = CurrentLineStop().together ? kInterruptTogether : kInterruptAfter;
    if (interrupted && !raised && now - since >= limit) {
      raised = true;
      if (running_) InterruptNow(session_.lua());
      TellAll({{kKind, "raise"}, {kSequence, absl::StrCat(sequence_)}, {kText, ""}});
    }
    const bool failed = std::any_of(ended_.begin(), ended_.end(), [](const auto& e) { return !e.second.empty(); });
    if (failed && first_error == Clock::time_point()) first_error = now;
    const bool alone = first_error != Clock::time_point() && now - first_error >= kAloneAfter;
    if (!broke && (alone || (interrupted && now - since >= kBreakOffAfter))) {
      broke = broken_ = true;
      BreakOff(session_, alone ? "a rank has ended this line with an error" : "interrupted");
    }
  }
}

std::vector<std::string> RankChunks::End(const Status& own) {
  std::vector<std::string> errors;
  Status health = absl::OkStatus();
  {
    Lock lock(mutex_);
    running_ = false;
    if (!own.ok()) ended_[0] = std::string(own.message());
    const auto all = [&] { return static_cast<int>(ended_.size()) - (ended_.count(0) > 0 ? 1 : 0) == size_ - 1; };
    while (!all() && health.ok()) {
      changed_.wait_for(lock, kLook);
      lock.unlock();
      health = membership_.Health();
      lock.lock();
    }
    over_ = true;
    changed_.notify_all();
    for (const auto& [rank, error] : ended_) {
      if (rank > 0 && !error.empty() && error != own.message())
        errors.push_back(absl::StrCat("rank ", rank, ": ", error));
    }
    if (broken_) {
      errors.emplace_back(
          "the ranks no longer wait for each other: collectives of this session fail from now on; leave and start "
          "again");
    }
  }
  watch_.join();
  CurrentLineStop().wanted = false;
  CurrentLineStop().together = false;
  if (!health.ok()) errors.push_back(std::string(health.message()));
  return errors;
}

StatusOr<std::string> RankChunks::Ask(absl::string_view line) {
  ASSIGN_OR_RETURN(const Addressed addressed, ParseAddressed(line, size_));
  if (addressed.text.size() > kMostText) return absl::InvalidArgumentError("more than 48 KiB at once");
  {
    const Lock lock(mutex_);
    ++sequence_;
    answers_.clear();
  }
  size_t others = 0;
  for (const int r : addressed.ranks) {
    if (r == 0) continue;
    membership_.Tell(kChannel, r, {{kKind, "ask"}, {kText, addressed.text}, {kSequence, absl::StrCat(sequence_)}});
    ++others;
  }
  std::map<int, std::string> answers;
  if (others < addressed.ranks.size()) {
    const auto own = Evaluated(session_, addressed.text);
    answers[0] = own.ok() ? *own : absl::StrCat("error: ", own.status().message());
  }
  bool told = false;
  Lock lock(mutex_);
  while (answers_.size() < others) {
    changed_.wait_for(lock, kLook);
    lock.unlock();
    const Status health = membership_.Health();
    if (InterruptPending() && !told) {
      told = true;
      TellAll({{kKind, "raise"}, {kSequence, absl::StrCat(sequence_)}, {kText, ""}});
    }
    lock.lock();
    RETURN_IF_ERROR(health);
  }
  answers.insert(answers_.begin(), answers_.end());
  std::string text;
  for (const auto& [rank, answer] : answers) {
    // A tensor's rows begin below its type.
    const bool rows = answer.find('\n') != std::string::npos;
    absl::StrAppend(&text, text.empty() ? "" : "\n", "[rank ", rank, "]", rows ? "\n" : " ", answer);
  }
  return text;
}

namespace {

// The other ranks' side: what rank 0 asks for, as it comes.
class Server {
 public:
  Server(Session& session, Membership& membership) : session_(session), membership_(membership) {
    membership_.Listen(kChannel, [this](int from, const Membership::Texts& texts) {
      if (from == 0) OnTold(texts);
    });
  }
  ~Server() { membership_.Listen(kChannel, nullptr); }

  Status Serve() {
    RETURN_IF_ERROR(MeetListening(session_));
    while (true) {
      Membership::Texts next;
      {
        Lock lock(mutex_);
        while (waiting_.empty()) {
          changed_.wait_for(lock, std::chrono::milliseconds(500));
          lock.unlock();
          RETURN_IF_ERROR(membership_.Health());
          lock.lock();
        }
        next = std::move(waiting_.front());
        waiting_.pop_front();
        running_ = next[kKind] != "leave";
        current_ = next[kSequence];
      }
      if (next[kKind] == "leave") return absl::OkStatus();
      Run(next);
      const Lock lock(mutex_);
      running_ = false;
    }
  }

 private:
  void OnTold(const Membership::Texts& texts) {
    const auto kind = texts.find(kKind), n = texts.find(kSequence);
    if (kind == texts.end()) return;
    const Lock lock(mutex_);
    if (kind->second == "run" || kind->second == "ask" || kind->second == "leave") {
      waiting_.push_back(texts);
      changed_.notify_all();
    } else if (running_ && n != texts.end() && n->second == current_) {
      CurrentLineStop().wanted = true;
      if (kind->second == "raise") InterruptNow(session_.lua());
    }
  }

  void Run(Membership::Texts& line) {
    CurrentLineStop().wanted = false;
    CurrentLineStop().together = false;
    lua_State* L = session_.lua();
    Membership::Texts answer = {{kSequence, line[kSequence]}};
    if (line[kKind] == "ask") {
      const auto shown = Evaluated(session_, line[kText]);
      answer[kKind] = "answer";
      answer[kText] = Shortened(shown.ok() ? *shown : absl::StrCat("error: ", shown.status().message()));
    } else {
      const StackGuard guard(L);
      int before = 0;
      const Status done = RunLine(session_, line[kText], "stdin", &before);
      if (done.ok() && lua_gettop(L) > before) {  // as at rank 0's prompt
        lua_pushliteral(L, "_");
        lua_pushvalue(L, before + 1);
        lua_rawset(L, LUA_GLOBALSINDEX);
      }
      answer[kKind] = "ended";
      answer[kText] = done.ok() ? "" : Shortened(std::string(done.message()));
    }
    std::fflush(stdout);
    lua_sethook(L, nullptr, 0, 0);
    membership_.Tell(kChannel, 0, answer);
  }

  Session& session_;
  Membership& membership_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Membership::Texts> waiting_;
  std::string current_;
  bool running_ = false;
};

}  // namespace

Status ServeChunks(Session& session, Membership& membership) { return Server(session, membership).Serve(); }

}  // namespace mslua::repl
