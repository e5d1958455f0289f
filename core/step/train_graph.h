// The graph of a whole training step: forward, backward, what ranks add up, the optimizer's update. And of its parts:
// an update alone, an evaluation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/optim/declare/update.h"
#include "core/step/aggregation.h"
#include "core/step/optimizer_shards.h"
#include "core/step/rank_state.h"
#include "core/step/trace.h"

namespace mslua {

// A column of a batch; all of its rows, or one feed of them.
struct InputSpec {
  std::string name;
  TensorType type;
};

// The network and its loss on columns of a batch, as nodes of the trace at hand: the loss, a float scalar, then further
// results. Called once for each micro-batch.
using ForwardFn = std::function<StatusOr<std::vector<Value>>(const std::vector<Value>& columns)>;

using ParameterHandle = std::shared_ptr<ParameterData>;

struct TrainSpec {
  std::string name = "train";
  std::vector<InputSpec> inputs;
  std::vector<ParameterHandle> parameters;
  absl::optional<std::vector<ParameterHandle>> network;  // all that it owns
  OptimizerRule rule;
  std::map<const ParameterData*, OptimizerRule> groups;
  std::shared_ptr<const OptimizerHistory> history;  // of the optimizer: graphs with the same one share its state
  int64_t accumulate = 1;
  std::string clip;  // "", "norm" or "value"
  double clip_value = 0;
  bool grad_norm = false;  // output "grad_norm" also without clip "norm"
  bool gradients = false;  // an output for each gradient
  double ema = 0;          // above 0: the step keeps an average of each parameter, with this decay (optimizer_state.h)
  bool loss_scale = false;
  absl::optional<DType> amp;  // products and convolutions of f32 compute in this type
  bool sharded = false;       // the rank's view shards it
  std::string context;        // settings that must be the same on all ranks, a line each
  Aggregation aggregation;
  OptimizerShards shards;

  // The type of numbers that all parameters share, as exact as the most exact of them: rates, the norm of the
  // gradients, the scale of the loss.
  DType shared_type() const {
    const auto is_f64 = [](const ParameterHandle& p) { return p->type.dtype == DType::kF64; };
    return std::any_of(parameters.begin(), parameters.end(), is_f64) ? DType::kF64 : DType::kF32;
  }
};

// A graph and what it reads of the rank's store.
struct StepGraph {
  Graph graph;
  std::vector<ParameterHandle> parameters;  // also optimizer state
  // For a training step of several ranks: what was traced, before it was partitioned for this rank, and its options.
  // One item per line, with the recipe's line behind "  # ". It must be equal on all ranks.
  std::string common;
  bool sharded = false;     // by the rank's view
  bool clips_norm = false;  // a training step scales gradients down by their norm, the output "grad_norm"
  double ema = 0;           // the decay of the averages that a training step updates; 0: it has none
  // Where the data has batches of several shapes, this graph is for the first of them, and these for the others; with
  // the same parameters and updates. `share`: which part of the batches has a graph's shape.
  std::vector<StepGraph> other_shapes;
  double share = 1;

  // Those of all shapes, this one first.
  std::vector<const StepGraph*> shapes() const {
    std::vector<const StepGraph*> all = {this};
    for (const StepGraph& other : other_shapes) all.push_back(&other);
    return all;
  }
};

struct TrainGraph {
  StepGraph step;
  std::vector<std::string> idle;  // names of the parameters that no gradient reaches
};

// Outputs "loss", "out1", ... (further results of `forward`), with a loss scale "finite", with clip "norm" or
// grad_norm "grad_norm" (of the unclipped gradients, without the loss scale; one number over all ranks that train
// together), with `gradients` "gradient.<key>" of each parameter (likewise unclipped and without the scale), and the
// next value of each parameter and state, which replaces it. `trace` is new, and what `forward` adds to.
// InvalidArgument says what a recipe has done wrong: a loss that is no scalar, a parameter that the network uses
// without owning it, no parameter with a gradient.
StatusOr<TrainGraph> BuildTrainGraph(RankState& state, Trace& trace, const TrainSpec& spec, const ForwardFn& forward);

// One of several steps that are made on each batch, one after the other: a loss, and what its optimizer updates.
struct NamedStep {
  std::string name;
  TrainSpec spec;  // the inputs are those of the first step
  ForwardFn forward;
};

// All of the steps as one graph. Each reads the parameters and states as those before it have left them; no gradient
// flows back into an earlier step. Output 0, "loss", is the sum of the losses "loss.<name>"; the other outputs are as
// BuildTrainGraph's, "grad_norm.<name>". InvalidArgument also where two steps update one parameter, and where ranks
// shard the graph.
StatusOr<TrainGraph> BuildStepsGraph(RankState& state, Trace& trace, const std::vector<NamedStep>& steps);

// The update alone, of gradients that are the inputs "gradient.<parameter>".
StatusOr<StepGraph> BuildUpdateGraph(RankState& state, Trace& trace, const TrainSpec& spec);

// `forward` without gradients; its results are called `outputs`, further ones "out<i>". `sharded`: the rank's view
// shards it.
struct EvalGraphSpec {
  std::string name = "eval";
  std::vector<InputSpec> inputs;
  std::vector<std::string> outputs;
  bool sharded = false;
  absl::optional<DType> amp;
  // Of the optimizer whose averages are read instead of the parameters; null: the parameters are.
  std::shared_ptr<const OptimizerHistory> averages;
};
StatusOr<StepGraph> BuildEvalGraph(RankState& state, Trace& trace, const EvalGraphSpec& spec, const ForwardFn& forward);

// What was traced, as a graph of its own.
StatusOr<StepGraph> FinishTrace(Trace& trace);

}  // namespace mslua
