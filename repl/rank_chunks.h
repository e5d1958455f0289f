// The ranks of `mslua repl -n N`: what is typed at rank 0 runs on all of them. Rank 0 sends each line through the
// ranks' control connections and waits until every rank has run it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "lua/session.h"
#include "rendezvous/membership.h"

namespace mslua::repl {

// "@1 EXPR", "@0-2,5 EXPR", "@all EXPR": the ranks and the text behind them. InvalidArgument: not of that form, or
// there is no such rank.
struct Addressed {
  std::vector<int> ranks;
  std::string text;
};
StatusOr<Addressed> ParseAddressed(absl::string_view line, int size);

// On rank 0, around what it runs itself.
class RankChunks {
 public:
  RankChunks(Session& session, Membership& membership);
  ~RankChunks();  // the other ranks leave
  RankChunks(const RankChunks&) = delete;
  RankChunks& operator=(const RankChunks&) = delete;

  // Waits until the other ranks listen: what is told before is lost. First.
  Status Meet();
  // Before and after rank 0 runs a line itself: the others run it meanwhile. From Begin on Ctrl-C stops the line on all
  // ranks: where they step together (m:step) after the same step, elsewhere in Lua. Ranks that then wait for one
  // another in a collective for some seconds, as after an error on one of them, are set free; collectives fail from
  // then on.
  Status Begin(const std::string& text);
  // Waits for all. The errors of other ranks, a line each, but for those that say the same as `own`.
  std::vector<std::string> End(const Status& own);
  // "@1 EXPR": the answers, "[rank 1] ..." each.
  StatusOr<std::string> Ask(absl::string_view line);

 private:
  void OnTold(int from, const Membership::Texts& texts);
  // Until the line has ended everywhere: passes Ctrl-C on, ends waits that nobody will end.
  void Watch();
  void TellAll(const Membership::Texts& texts);

  Session& session_;
  Membership& membership_;
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t sequence_ = 0;              // of the line
  bool running_ = false;              // rank 0 itself
  bool over_ = true;                  // everywhere
  std::map<int, std::string> ended_;  // rank -> its error, empty: none
  std::map<int, std::string> answers_;
  bool broken_ = false;  // collectives have ended
  std::thread watch_;
};

// On the other ranks: runs lines until rank 0 leaves, or the job is over.
Status ServeChunks(Session& session, Membership& membership);

}  // namespace mslua::repl
