// A Session is a rank: its Lua state, its store of parameters, its seed and the options of the command line.
// All state of mslua that changes is in it. One thread uses a session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/step/rank_state.h"
#include "lua/allocator.h"

struct lua_State;
struct lua_Debug;

namespace mslua {

class Device;
class Job;
class NcclWorld;
class Program;
struct Progress;
class Trace;

// What the command line asked for; Lua reads it as core.options.
struct SessionOptions {
  std::string verb = "run";
  std::string file;                                            // recipe or script; empty: none
  std::vector<std::string> args;                               // of a script
  std::vector<std::pair<std::string, std::string>> overrides;  // key=value, in order
  std::string preset;
  std::string device = "cpu";
  int rank = 0, ranks = 1;
  std::shared_ptr<Groups> groups;  // null: a job of one rank
  bool has_seed = false;           // --seed was given: the recipe's does not count
  uint64_t seed = 1;
  bool traceback = false;  // --traceback: errors come with the user's frames
  // Flags that the library reads as core.options.NAME: "out", "resume", "log_every", "max_steps", ...
  std::vector<std::pair<std::string, std::variant<bool, double, std::string>>> flags;
};

class Session {
 public:
  // A state with the embedded library on its path; OpenSession (open_session.h) gives it the module mslua.core too.
  static StatusOr<std::unique_ptr<Session>> Create(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The session of a state.
  static Session& Of(lua_State* L);

  // The state, or the coroutine that is running.
  lua_State* lua() const { return current_; }
  // Makes L the running one and gives what was before.
  lua_State* Enter(lua_State* L) { return std::exchange(current_, L); }
  const SessionOptions& options() const { return options_; }
  // Place among the ranks, parameters, optimizers' state.
  RankState& state() { return state_; }
  const RankState& state() const { return state_; }
  // What collectives run in; null in a job of one rank.
  Groups* groups() const { return state_.groups.get(); }
  // The ranks are joined from now on: what Lua reads as core.options.rank and ranks follows.
  void SetGroups(std::shared_ptr<Groups> groups);
  // This rank is alone after all.
  void SetPlace(int rank, int ranks);
  TensorAllocator& allocator() { return *allocator_; }

  // Runs a file, or text under a name for messages ("=stdin"). Its results stay on the Lua stack.
  Status RunFile(const std::string& path);
  Status RunText(absl::string_view code, const std::string& chunk_name);
  // Calls the function below `arguments` values on the stack: lua_pcall whose errors are a Status that already
  // names the user's line.
  Status Call(int arguments, int results);

  // The nearest caller outside the embedded library. Where that one has left no frame, for `return f(x)` is a tail
  // call, the line of that call. Where only cells of the library run, the line that made the innermost one. The file is
  // empty when there is none of these.
  std::shared_ptr<const Location> Where() const { return FindCaller(/*ask_frames=*/true); }
  // While `on`, remembers the user's line that runs: `return ops.relu(x)` is a tail call, which leaves no frame for
  // Where() to find. Costs speed, so it is on while a graph is traced.
  void FollowLines(bool on);
  // What FollowLines remembers, until another line runs.
  void SetLine(std::string file, int line);

  // Remembers an error that Lua is about to get as text: where it leaves Lua again, it has its exit code.
  void NoteRaised(const Status& status);

  // "recipe.lua:12: " before the message, unless it is there.
  std::string Located(const Status& status) const;

  int64_t feeds = 1, feed = 0;           // core.set_feed
  bool training = false;                 // what the cell that is called says, eagerly (core.set_training)
  absl::optional<bool> training_of_all;  // core.force_training
  Trace* trace = nullptr;                // the innermost trace; null: eager
  uint64_t next_trace_id = 1;
  uint64_t random_tensors = 0;  // streams handed out to unnamed rand/randn, and to eager random operators
  int64_t gradient_calls = 0;   // of what value_and_grad makes: each draws other numbers
  // Compiled graphs of one operator, by operator, attributes and types; and those that make values whole, by types and
  // layout (lua/whole_value.h).
  absl::flat_hash_map<std::string, std::shared_ptr<Program>> eager_programs;
  Progress* training_progress = nullptr;  // of the training that runs; null: none
  // The parameters and states of its network; null: none.
  const std::vector<std::shared_ptr<ParameterData>>* training_parameters = nullptr;
  Status records;                    // of the trainings: not OK where metrics or log lines were lost
  std::set<std::string> written;     // run folders that trainings of this process have written into
  Job* job = nullptr;                // what this process is part of; null in tests
  bool prints = true;                // this rank's loss lines go to the console too
  std::string prefix;                // before them
  double hang_timeout_s = 0;         // --hang-timeout, for the groups that are joined; 0: theirs
  Device* device = nullptr;          // of lua/device.h, once it is open
  std::string backend;               // that the user has named for the ranks; empty: none
  std::shared_ptr<NcclWorld> nccl;   // of lua/device.h, once it is made
  std::shared_ptr<Block> workspace;  // of the eager programs: one runs at a time
  // The last error of Lua as Call's handler has written it, which an outer call leaves as it is.
  std::string explained;

 private:
  explicit Session(SessionOptions options);
  Status Open();

  static void OnLine(lua_State* L, lua_Debug* frame);
  static int OnError(lua_State* L);
  // As Where; without ask_frames it calls no Lua, and finds no line of tail calls.
  std::shared_ptr<const Location> FindCaller(bool ask_frames) const;
  // The message of an error in Lua as users read it.
  std::string Explain(lua_State* L, std::string message);

  SessionOptions options_;
  Status raised_;          // the last one with an exit code that Lua got
  std::string traceback_;  // the user's frames at the error `explained`; empty without --traceback
  bool following_ = false;
  std::string followed_file_;
  int followed_line_ = 0;  // 0: none yet
  lua_State* lua_ = nullptr;
  lua_State* current_ = nullptr;
  RankState state_;
  std::shared_ptr<TensorAllocator> allocator_;
};

// A C function of the module: the number of values it pushed, or an error. It must not raise Lua errors itself
// (no luaL_check*, no lua_call): destructors of its frame would be skipped.
using ApiFunction = StatusOr<int> (*)(lua_State* L, Session& session);

// The user's frames at the error, one a line; empty when there are none or nobody asked for them (--traceback).
std::string TracebackOf(const Status& status);

// Leaves the error of `status` on the stack for lua_error.
void PushError(lua_State* L, Session& session, const Status& status);

// An error when a function that takes at most `most` arguments, self included, got more, other than nil.
Status CheckArgumentCount(lua_State* L, int most);

// f(L, session), with an exception of it as an error that has an exit code.
StatusOr<int> CallGuarded(ApiFunction f, lua_State* L, Session& session);

// What Lua calls: the error is raised when every C++ object of `f` is gone. `most`: how many arguments it takes, self
// included; users' functions say it, so that none is dropped in silence.
template <ApiFunction f, int most = -1>
int Entry(lua_State* L);

}  // namespace mslua

#include "lua/session_inl.h"
