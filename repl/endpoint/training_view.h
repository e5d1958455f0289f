// What an endpoint sees of a training. Whoever puts the training together fills it in.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/executable.h"
#include "core/runtime/store.h"
#include "core/train/trainer.h"

namespace mslua::endpoint {

struct TrainingView {
  std::string name;    // of the recipe
  std::string folder;  // of the run; empty: nothing is saved
  int rank = 0, ranks = 1;

  // Of use from any thread while the endpoint is open.
  Trainer* trainer = nullptr;
  pthread_t thread = {};                   // that trains
  std::function<std::string()> lua_at;     // "recipe.lua:14" of the Lua that the training thread has called; or empty
  std::function<std::string()> lua_stack;  // asks the Lua that runs for its stack; empty when it does not answer
  std::function<std::string()> calls;      // the last collective calls, one a line; null: no collectives

  // For the training thread, at boundaries.
  const Store* store = nullptr;
  // The running graph with more outputs, compiled with the same decisions: no passes.
  std::function<StatusOr<std::unique_ptr<Executable>>(const Graph& graph)> compile;
  std::function<StatusOr<std::string>(const std::string& name)> save;  // gives the checkpoint's path; null: cannot
  std::function<StatusOr<std::string>()> evaluate;                     // gives the line; null: no eval_dataset
  std::function<void()> skip_last_save;                                // training that ends saves nothing; null: as is
  std::function<void(const std::string& line)> print;  // a line on the console, and what waits before it
};

}  // namespace mslua::endpoint
