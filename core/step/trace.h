// A graph while it is made: from operators that are called one by one, over the parameters of a rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/autodiff/custom_gradient.h"
#include "core/base/tensor.h"
#include "core/graph/builder.h"
#include "core/step/rank_state.h"

namespace mslua {

// More nodes than this are a mistake in the recipe: a loop that should be a tensor operation.
inline constexpr size_t kMaxTraceNodes = 100000;

class Trace {
 public:
  // `id` tells the values of one trace from those of another. `state` outlives it.
  Trace(RankState& state, uint64_t id, std::string name, bool training)
      : state_(state), id_(id), training_(training), builder_(std::move(name)) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  GraphBuilder& g() { return builder_; }
  const GraphBuilder& g() const { return builder_; }
  uint64_t id() const { return id_; }
  bool training() const { return training_; }
  // Whether each cell that is called says if it trains (Cell:set_train), as it does where nothing is traced; else
  // training() holds for all.
  void FollowCells() { follows_cells_ = true; }
  bool follows_cells() const { return follows_cells_; }
  void SetTraining(bool training) { training_ = training; }
  // From here on cells that are said to evaluate do so in a training graph too.
  void HeedCells() { heeds_cells_ = true; }
  bool heeds_cells() const { return heeds_cells_; }
  void SetCellEvaluates(bool evaluates) { cell_evaluates_ = evaluates; }
  bool cell_evaluates() const { return cell_evaluates_; }
  // Whether the rank's view shards the graph: operators keep their strategies, and parameters may be parts.
  void SetSharded(bool sharded) { sharded_ = sharded; }
  bool sharded() const { return sharded_; }

  // What a parameter is at this place: the graph input on first use, or what was assigned to it.
  StatusOr<Value> ParameterValue(const std::shared_ptr<ParameterData>& parameter);
  // From here on ParameterValue gives what `instead` says, in the parameter's type; null: the parameter.
  using Instead = std::function<std::shared_ptr<ParameterData>(const ParameterData&)>;
  void ReadInstead(Instead instead) { instead_ = std::move(instead); }
  // The graph input of a parameter, whatever has been assigned to it since.
  StatusOr<Value> ParameterInput(const std::shared_ptr<ParameterData>& parameter);
  Value DataInput(absl::string_view name, const TensorType& type) { return Input(name, kData, type); }
  // The scalar input of that name; the same one each time.
  Value ScalarInput(const std::string& name, DType dtype);
  // The number of the training step, i64, from 0; in other graphs, of the run.
  Value Step() { return ScalarInput("step", DType::kI64); }
  Value Constant(const Tensor& tensor);
  // From here on tensors that are read become inputs of kind data, in the order of first use, instead of constants: the
  // graph is then the same for other values. Captured() are those tensors.
  void CaptureTensors() { captures_ = true; }
  const std::vector<Tensor>& captured() const { return captured_; }
  // A tensor that is read at this place.
  Value TensorValue(const Tensor& tensor);

  // From here on `parameter` is `value`; the graph gets an output that replaces it (Finish).
  Status Assign(const std::shared_ptr<ParameterData>& parameter, Value value);
  // What follows belongs to a later step: it reads these parameters as `next`, for which the graph has outputs, and
  // what was assigned as it is now. No gradient flows back through either.
  void Advance(const std::vector<std::shared_ptr<ParameterData>>& parameters, const std::vector<Value>& next);
  // An output that is printed when the graph has run (core/step/prints.h), named by `what`, else by the scope path.
  void Print(Value value, std::string what);
  // Appends the printed outputs, and one for each assigned parameter.
  void OutputAssigned();

  // The line of the nodes that follow; they get the scope path too, and the name that NameInstance gave.
  void Locate(Location line);
  // The name of the operator that is called next: the cell's field that holds it.
  void NameInstance(std::string name) { instance_ = std::move(name); }
  // The builder's error, or one for too many nodes.
  Status Check() const;

  void PushScope(std::string name) { scopes_.push_back(std::move(name)); }
  void PopScope() {
    if (!scopes_.empty()) scopes_.pop_back();
  }
  size_t scopes() const { return scopes_.size(); }
  // Matrix products and convolutions of f32 that follow compute in this type; none: in f32.
  void SetAmp(absl::optional<DType> dtype) { amp_ = dtype; }
  absl::optional<DType> amp() const { return amp_; }

  // The pipeline stage of the nodes that follow, and what was before.
  void PushStage(int stage);
  void PopStage();
  // From now on every stage that reads a parameter has a node of its own for it, but the first one, which reads the
  // input. No gradient flows through such a node: it is asked for by itself.
  void SplitParametersByStage() { by_stage_ = true; }
  // Those nodes of a parameter.
  std::vector<Value> StageCopies(const ParameterData& parameter) const;
  // By node: the stage that was pushed last when it was made, or kNoStage.
  std::vector<int> Stages() const;

  void PushRegion();
  void PopRegion();

  // Parts of the graph whose gradients users give, for Gradients().
  const CustomGradients& custom_gradients() const { return custom_gradients_; }
  void AddCustomGradient(CustomGradient custom) {
    custom_gradients_.push_back(std::make_shared<const CustomGradient>(std::move(custom)));
  }

  // What nodes get from the calls of cells that make them.
  struct Place {
    std::vector<std::string> scopes;
    int stage = -1;  // kNoStage
    bool training = false;
    absl::optional<DType> amp;
  };
  Place place() const;

  // Parameters and states that the graph reads, in the order of first use.
  const std::vector<std::shared_ptr<ParameterData>>& used() const { return used_; }

 private:
  friend class GradientScope;
  Value Input(absl::string_view name, absl::string_view kind, const TensorType& type);
  // The parameter, which is `input`, as the stage that was pushed last reads it.
  Value OfStage(const ParameterData& parameter, Value input);

  RankState& state_;
  const uint64_t id_;
  bool training_;
  bool follows_cells_ = false, heeds_cells_ = false, cell_evaluates_ = false, captures_ = false, sharded_ = false;
  std::vector<Tensor> captured_;
  std::vector<Value> captured_values_;
  absl::optional<DType> amp_;
  Instead instead_;
  GraphBuilder builder_;
  std::vector<std::string> scopes_;
  std::string instance_;  // of the next Locate
  std::vector<int32_t> regions_;
  std::vector<int> stages_;
  std::vector<std::pair<int32_t, int>> stage_changes_;  // from that node on
  bool by_stage_ = false;
  absl::flat_hash_map<const ParameterData*, std::vector<std::pair<int, Value>>> read_by_;  // stages, in order
  int32_t next_region_ = 1;
  std::vector<std::shared_ptr<ParameterData>> used_, assigned_;
  absl::flat_hash_map<const ParameterData*, Value> inputs_, values_;  // as read at the start, and as they are now
  absl::flat_hash_map<std::string, Value> scalars_;
  std::vector<std::pair<std::string, Value>> prints_;
  CustomGradients custom_gradients_;
};

// Nodes that are made while it lives are of a pipeline stage; kNoStage: as they would be.
class StageScope {
 public:
  StageScope(Trace& trace, int stage);
  ~StageScope();
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  Trace* const trace_;  // null: nothing to undo
};

// Nodes that are made while it lives are the gradient of what was made at `place`: their scope is "grad(Net/sign)".
class GradientScope {
 public:
  GradientScope(Trace& trace, const Trace::Place& place);
  ~GradientScope();
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  Trace& trace_;
  const Trace::Place before_;
  const StageScope stage_;
};

}  // namespace mslua
