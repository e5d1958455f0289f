// A rank's part in what attached clients ask for: it carries out what the hub (hub.h) on rank 0 tells it, and answers.
//
// Messages to an agent ("op"): ask (a snapshot or Lua: "line"), propose and decide (a command of a boundary), release,
// lua (the answer to a command of its Lua). Messages from it: answer, ack, event, lua (such a command), leaves, bye.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "attach/server/boundary.h"
#include "attach/server/lua_helper.h"
#include "attach/server/snapshot.h"
#include "attach/server/training_view.h"
#include "core/base/clock.h"

namespace mslua::endpoint {

// Of one answer of another rank than 0, whose text is truncated there: a message between ranks holds 64 KiB.
inline constexpr size_t kMostText = 50 << 10, kMostJson = 12 << 10;

// Fields of messages; "", 0 and no numbers where there is none.
std::string TextOf(const RankMessage& message, const char* name);
int64_t NumberOf(const RankMessage& message, const char* name);
std::vector<int> NumbersOf(const RankMessage& message, const char* name);  // "1,3"

// The command that ends the watches, the breaks and the pause to come of a client that has gone; nobody types it.
const CommandDef& ForgetCommand();

class Agent {
 public:
  // On the training thread, before the first step. `send`, from any thread: a message for the hub.
  Agent(const TrainingView& view, std::function<void(RankMessage message)> send);

  // All on one thread.
  // What rank 0 asks for: its clients have proved who they are. Messages of other ranks are ignored.
  void OnMessage(int from, const RankMessage& message);
  // A command that a rank answers at once.
  StatusOr<Answer> Snapshot(const Command& command);
  int helper_fd() const { return helper_.fd(); }
  void OnHelper() { helper_.OnReadable(); }
  // Gives the time at which it is to be called next.
  MonotonicTime OnWake();

  Boundary& boundary() { return boundary_; }

 private:
  void Ask(const RankMessage& message);
  void Propose(const RankMessage& message);
  void CommandOfLua(const std::string& line);
  void SendAnswer(const std::string& seq, const StatusOr<Answer>& answer);
  void SendEvent(uint64_t client, const std::string& line);

  const TrainingView& view_;
  const std::function<void(RankMessage message)> send_;
  Boundary boundary_;
  Snapshots snapshots_;
  LuaHelper helper_;
};

}  // namespace mslua::endpoint
