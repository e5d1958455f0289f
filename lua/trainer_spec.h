// What a recipe says of its training, read from the table that core.trainer takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/schedule/declare/schedule.h"
#include "core/train/checkpoint_hook.h"
#include "core/train/eval_hook.h"
#include "core/train/metrics.h"
#include "core/train/plateau_hook.h"
#include "core/train/trainer.h"
#include "lua/callback.h"
#include "lua/dataset_lua.h"
#include "lua/graph_lua.h"

namespace mslua {

// The field `graph` of the table at `index`.
StatusOr<std::shared_ptr<TracedGraph>> FieldGraph(lua_State* L, int index, const std::string& what);

struct EvalSpec {
  std::shared_ptr<TracedGraph> graph;
  std::shared_ptr<DatasetHandle> dataset;
  std::vector<MetricInfo> metrics;
  std::vector<std::string> matrices;  // metrics whose value is a table of numbers
  std::vector<std::string> labels;    // of classes; may be empty
  Callback finish;  // of the sums of the graph's outputs, by name, and the number of samples: values by metric's name
  int64_t every_epochs = 1, every_steps = 0;
};

// Pushes a table: the list of each output's sums, by its name.
void PushSums(lua_State* L, const std::vector<MetricSums>& sums);

struct TrainerSpec {
  std::shared_ptr<TracedGraph> graph;
  std::shared_ptr<DatasetHandle> dataset;
  TrainerOptions options;
  Schedule schedule;
  Callback lr_function;
  std::shared_ptr<OptimizerHistory> history;  // of the optimizer
  std::string loss_scale_kind;                // "", "fixed", "dynamic"
  double loss_scale = 1, loss_scale_factor = 2;
  int64_t loss_scale_window = 1000;
  int64_t log_every = 0;
  int64_t metrics_limit = MetricsOptions().limit;
  bool log_epochs = false;
  int64_t time_every = 0, time_steps = 0;
  bool has_checkpoint = false, has_eval = false;
  CheckpointOptions checkpoint;
  std::string checkpoint_directory;
  EvalSpec eval;
  struct Watch {  // of a callback that watches a number
    std::string monitor, mode;
    double min_delta = 0;
    int64_t patience = 0;
  };
  absl::optional<Watch> early_stopping, plateau;
  PlateauHook::Options plateau_options;
  std::string name, config;
  std::string recipe_hash;     // of the file that runs: the first 16 digits of its BLAKE2b; empty: there is none
  Groups* together = nullptr;  // ranks that train one network; null: this one trains by itself
  bool broadcast = false;      // rank 0's parameters are everybody's in the beginning
  int hooks = LUA_NOREF;       // the table of Lua's hooks
  // The network's parameters and states, and what its checkpoints call them.
  std::vector<std::shared_ptr<ParameterData>> parameters;
  std::vector<std::string> parameter_names;
  Progress progress;

  Status Read(lua_State* L, Session& session);
  // Where this run's files go, the same on all ranks that train together; empty where nothing is saved. `*made`: this
  // call has made the folder.
  StatusOr<std::string> RunFolder(Session& session, const std::string& resume, bool* made) const;
  StatusOr<std::string> OwnRunFolder(Session& session, const std::string& resume, bool* made) const;
};

}  // namespace mslua
