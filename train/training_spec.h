// What a training is of, and the rank that runs it: all that class Training reads. The Lua library fills it in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "collectives/groups.h"
#include "core/data/loader.h"
#include "core/runtime/executable.h"
#include "core/schedule/declare/schedule.h"
#include "core/step/rank_state.h"
#include "core/step/train_graph.h"
#include "core/train/checkpoint_hook.h"
#include "core/train/eval_hook.h"
#include "core/train/histograms_hook.h"
#include "core/train/metrics.h"
#include "core/train/plateau_hook.h"
#include "core/train/trainer.h"
#include "launch/job.h"

namespace mslua {

// A data set, opened.
struct TrainingData {
  std::shared_ptr<const data::Pipeline> pipeline;
  data::LoaderOptions loader;
  std::string source;     // its kind, for messages: "MnistDataset"
  bool divided = false;   // each of `feeds` ranks gets a part of a global batch
  bool repeated = false;  // every rank gets the same samples: a sequence, of which nobody can take a part
  int64_t feeds = 1;
  data::Sharding sharding;  // by hand
};

// The values of an evaluation's metrics, and those that are tables of numbers, as JSON.
struct FinishedMetrics {
  Numbers values;
  std::vector<std::pair<std::string, std::string>> matrices;
};

struct EvaluationSpec {
  std::shared_ptr<const StepGraph> graph;
  std::function<StatusOr<TrainingData>()> open;
  std::vector<MetricInfo> metrics;
  std::vector<std::string> matrices;  // metrics whose value is a table of numbers
  std::vector<std::string> labels;    // of classes; may be empty
  SampleForm samples;                 // how the worst ones are shown
  // Of the sums of the graph's outputs and the number of samples; empty: each metric is its sum by sample.
  std::function<StatusOr<FinishedMetrics>(const std::vector<MetricSums>& sums, int64_t samples)> finish;
  int64_t every_epochs = 1, every_steps = 0;
};

// A learning rate.
struct RateSpec {
  std::string input = "lr";  // of the graph; "lr.<step>" where there are several steps
  Schedule schedule;
  // A user's function instead: of the step from 0, with those of the optimizer's history, and the epoch from 1.
  std::function<StatusOr<double>(int64_t step, int64_t epoch)> function;
};

// A user's own callbacks.
class UserHook : public TrainHook {
 public:
  // The run folder; before the loop, where there is one.
  virtual void InFolder(const std::string& path) = 0;
  // An error of what ran when the loop had ended, which the loop cannot return.
  virtual const Status& late() const = 0;
};

struct TrainingSpec {
  std::string name, config;                // of the run folder, and the text of its config.lua
  std::string recipe_hash;                 // of the file that runs; empty: there is none
  std::shared_ptr<const StepGraph> graph;  // of the step
  std::function<StatusOr<TrainingData>()> open;
  // The network's parameters and states, and what its checkpoints call them.
  std::vector<std::shared_ptr<ParameterData>> parameters;
  std::vector<std::string> parameter_names;
  TrainerOptions options;
  std::vector<RateSpec> rates = {RateSpec()};  // of each optimizer
  std::shared_ptr<OptimizerHistory> history;   // of the optimizers, which make as many updates
  std::string loss_scale_kind;                 // "", "fixed", "dynamic"
  double loss_scale = 1, loss_scale_factor = 2;
  int64_t loss_scale_window = 1000;
  int64_t log_every = 0;
  int64_t metrics_limit = MetricsOptions().limit;
  bool log_epochs = false;
  HistogramsHook::Options histograms;
  int64_t time_every = 0, time_steps = 0;
  bool has_checkpoint = false, has_eval = false;
  CheckpointOptions checkpoint;
  std::string checkpoint_directory;  // empty: in the run folder
  EvaluationSpec eval;
  struct Watch {  // of a callback that watches a number
    std::string monitor, mode;
    double min_delta = 0;
    int64_t patience = 0;
  };
  absl::optional<Watch> early_stopping, plateau;
  PlateauHook::Options plateau_options;
  std::function<std::unique_ptr<UserHook>(Progress*)> user_hook;  // empty, or gives null: there are none
  Groups* together = nullptr;  // ranks that train one network; null: this one trains by itself
  bool broadcast = false;      // rank 0's parameters are everybody's in the beginning
  Progress progress;
  checkpoint::Companions companions;  // of each checkpoint

  // Whether this rank writes what is the same on all ranks.
  bool first() const { return together == nullptr || together->rank() == 0; }
};

// What the command line asks of every training.
struct TrainingFlags {
  std::string out;          // the run folder; empty: a new one
  std::string resume;       // "last", "best", a path; empty: from the beginning
  bool may_resume = true;   // false: the verb has no --resume
  std::string progress;     // of the status line: "on", "off"; else where there is a terminal
  bool saves = true;        // false: nothing of the run is kept
  bool keeps_turns = true;  // in memory, in a job that starts again
  bool few_steps = false;   // --max-steps: who asks for a few steps wants those alone
  bool json = false;        // lines of the console are objects
  bool tune = false;        // kernels are measured
  bool may_attach = true;
  std::string profile;    // "S:N": N steps from step S on; empty: none
  double peak_flops = 0;  // operations a second that this rank can do, as `doctor --calibrate` measured; 0: not known
};

// The rank that trains. Everything outlives the training.
struct TrainingRank {
  RankState* state = nullptr;
  Job* job = nullptr;  // what this process is part of; null in tests
  bool prints = true;  // this rank's loss lines go to the console too
  std::string prefix;  // before them
  PassOptions dumps;   // where graphs are saved
  TrainingFlags flags;
  std::set<std::string>* written = nullptr;  // run folders that trainings of this process have written into
  Status* records = nullptr;                 // of the trainings: not OK where metrics or log lines were lost
  // Makes the parameters' values where they are not there yet, and compiles. `share`: all ranks compile it together;
  // `decisions`: as in CompileOptions.
  std::function<StatusOr<std::unique_ptr<Executable>>(const StepGraph& graph, bool share, Decisions* decisions)>
      compile;
  // A graph as it is, for what clients ask of a running training.
  std::function<StatusOr<std::unique_ptr<Executable>>(const Graph& graph, Decisions* decisions)> compile_as_is;
  // What computes the steps: ProcessorText(), or a device and its libraries.
  std::function<StatusOr<std::string>()> machine;
  std::function<std::string()> device_text;  // " on device 0 (NVIDIA H200)"; empty: on the CPU
  // "recipe.lua:14" of the user's code that the training thread has called, and its stack; or empty.
  std::function<std::string()> user_code_at, user_code_stack;
};

}  // namespace mslua
