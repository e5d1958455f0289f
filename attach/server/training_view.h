// What an endpoint sees of a training. The code that sets up the training fills it in.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/part.h"
#include "core/files/record_file.h"
#include "core/runtime/executable.h"
#include "core/runtime/store.h"
#include "core/train/trainer.h"

namespace mslua {
struct RecordedCall;
}

namespace mslua::endpoint {

// What endpoints of different ranks tell one another.
using RankMessage = std::map<std::string, std::string>;

struct TensorPlace {
  Part part;           // that the rank has; without dimensions: the whole
  bool own = false;    // each rank has a value of its own
  std::string layout;  // in the words of core/sharding; may be empty
};

struct TrainingView {
  std::string name;                // of the recipe
  std::string folder;              // of the run; empty: nothing is saved
  RecordHealth* health = nullptr;  // of the files in the folder
  int rank = 0, ranks = 1;
  int64_t job_epoch = 1;  // how often the job's ranks have met: more than once where it has started again
  bool recovers = false;  // it starts again when a process of it has ended

  // Of use from any thread while the endpoint is open.
  Trainer* trainer = nullptr;
  pthread_t thread = {};                   // that trains
  std::function<std::string()> lua_at;     // "recipe.lua:14" of the Lua that the training thread has called; or empty
  std::function<std::string()> lua_stack;  // asks the Lua that runs for its stack; empty when it does not answer
  // The last collective calls, at most so many, oldest first; null: no collectives.
  std::function<std::vector<RecordedCall>(int most)> calls;
  // How what the store of this rank has under a name lies in the whole; null: it is the whole.
  std::function<TensorPlace(const std::string& name)> place;

  // Between ranks that train together, beside their collectives. Any thread. Null for one rank.
  std::function<void(int rank, const RankMessage& message)> tell;
  std::function<void(std::function<void(int from, const RankMessage& message)>)> listen;  // null ends it

  // For the training thread, at boundaries.
  const Store* store = nullptr;
  // Every rank's text, in rank order. Called by all ranks at one boundary; null for one rank.
  std::function<StatusOr<std::vector<std::string>>(const std::string& mine)> gather;
  // The running graph with more outputs, compiled with the same decisions: no passes.
  std::function<StatusOr<std::unique_ptr<Executable>>(const Graph& graph)> compile;
  std::function<StatusOr<std::string>(const std::string& name)> save;  // gives the checkpoint's path; null: cannot
  std::function<StatusOr<std::string>()> evaluate;                     // gives the line; null: no eval_dataset
  std::function<void()> skip_last_save;                                // training that ends saves nothing; null: as is
  // What a command has changed outlives this process from then on, where the job starts again; null: nothing is kept.
  std::function<Status()> keep;
  std::function<void(const std::string& line)> print;  // a line on the console, and what waits before it
};

}  // namespace mslua::endpoint
