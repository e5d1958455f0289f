#include "core/step/trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/sharding/stages.h"
#include "core/step/prints.h"

namespace mslua {

void Trace::Locate(Location line) {
  line.scope = absl::StrJoin(scopes_, "/");
  line.instance = std::exchange(instance_, "");
  builder_.SetLocation(std::make_shared<Location>(std::move(line)));
}

Status Trace::Check() const {
  RETURN_IF_ERROR(builder_.status());
  if (builder_.graph().nodes.size() > kMaxTraceNodes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the traced graph has more than ", kMaxTraceNodes,
        " nodes: loops and recursion in Lua run while the graph is traced; use operators over whole tensors"));
  }
  return absl::OkStatus();
}

Value Trace::Constant(const Tensor& tensor) {
  return builder_.Literal(
      tensor.type, std::string(static_cast<const char*>(tensor.data.get()), static_cast<size_t>(tensor.type.bytes())));
}

Value Trace::TensorValue(const Tensor& tensor) {
  if (!captures_) return Constant(tensor);
  for (size_t i = 0; i < captured_.size(); ++i) {
    if (captured_[i].data == tensor.data && captured_[i].type == tensor.type) return captured_values_[i];
  }
  captured_.push_back(tensor);
  captured_values_.push_back(DataInput(absl::StrCat("captured", captured_.size()), tensor.type));
  return captured_values_.back();
}

Value Trace::Input(absl::string_view name, absl::string_view kind, const TensorType& type) {
  const auto location = builder_.location();
  builder_.SetLocation(nullptr);
  const Value value = builder_.Input(name, kind, type);
  builder_.SetLocation(location);
  return value;
}

Value Trace::ScalarInput(const std::string& name, DType dtype) {
  const auto found = scalars_.find(name);
  if (found != scalars_.end()) return found->second;
  return scalars_[name] = Input(name, kScalar, {dtype, {}});
}

StatusOr<Value> Trace::ParameterInput(const std::shared_ptr<ParameterData>& parameter) {
  const auto found = inputs_.find(parameter.get());
  if (found != inputs_.end()) return found->second;
  if (!sharded_) RETURN_IF_ERROR(CheckWhole(state_, *parameter));
  const Value value = Input(KeyOf(state_, *parameter), parameter->kind, parameter->type);
  RETURN_IF_ERROR(builder_.status());
  used_.push_back(parameter);
  inputs_.emplace(parameter.get(), value);
  return value;
}

StatusOr<Value> Trace::ParameterValue(const std::shared_ptr<ParameterData>& parameter) {
  const auto found = values_.find(parameter.get());
  if (found != values_.end()) return found->second;
  const std::shared_ptr<ParameterData> instead = instead_ ? instead_(*parameter) : nullptr;
  if (instead != nullptr) {
    ASSIGN_OR_RETURN(const Value other, ParameterInput(instead));
    return Cast(builder_, other, parameter->type.dtype);
  }
  ASSIGN_OR_RETURN(const Value input, ParameterInput(parameter));
  return by_stage_ && !stages_.empty() ? OfStage(*parameter, input) : input;
}

Value Trace::OfStage(const ParameterData& parameter, Value input) {
  std::vector<std::pair<int, Value>>& stages = read_by_[&parameter];
  for (const auto& [stage, value] : stages) {
    if (stage == stages_.back()) return value;
  }
  stages.emplace_back(stages_.back(), stages.empty() ? input : builder_.Op("stop_gradient", {input}));
  return stages.back().second;
}

std::vector<Value> Trace::StageCopies(const ParameterData& parameter) const {
  std::vector<Value> copies;
  const auto found = read_by_.find(&parameter);
  for (size_t i = 1; found != read_by_.end() && i < found->second.size(); ++i)
    copies.push_back(found->second[i].second);
  return copies;
}

Status Trace::Assign(const std::shared_ptr<ParameterData>& parameter, Value value) {
  const TensorType type = builder_.TypeOf(value);
  if (type != parameter->type) {
    return absl::InvalidArgumentError(absl::StrCat("assign: parameter '", parameter->name, "' is ",
                                                   ToString(parameter->type), ", the value is ", ToString(type)));
  }
  RETURN_IF_ERROR(ParameterInput(parameter).status());
  values_[parameter.get()] = value;
  if (training_) parameter->assigned = true;
  if (std::find(assigned_.begin(), assigned_.end(), parameter) == assigned_.end()) assigned_.push_back(parameter);
  return absl::OkStatus();
}

void Trace::Advance(const std::vector<std::shared_ptr<ParameterData>>& parameters, const std::vector<Value>& next) {
  for (const auto& p : assigned_) values_[p.get()] = builder_.Op("stop_gradient", {values_[p.get()]});
  for (size_t i = 0; i < parameters.size(); ++i) values_[parameters[i].get()] = builder_.Op("stop_gradient", {next[i]});
}

void Trace::Print(Value value, std::string what) {
  if (what.empty()) what = scopes_.empty() ? "value" : absl::StrJoin(scopes_, "/");
  prints_.emplace_back(std::move(what), value);
}

void Trace::OutputAssigned() {
  for (size_t i = 0; i < prints_.size(); ++i) builder_.Output(PrintName(i, prints_[i].first), prints_[i].second);
  prints_.clear();
  for (const auto& p : assigned_) {
    for (const GraphOutput& o : builder_.graph().outputs) {
      if (o.updates == p->key)
        builder_.Fail(absl::InvalidArgumentError(
            absl::StrCat("parameter '", p->name,
                         "' is assigned in the network, and the optimizer updates it too: one "
                         "of the two would be lost; assign to it after the step, or leave it out of the optimizer")));
    }
    builder_.Output(p->key, values_[p.get()], p->key);
  }
  assigned_.clear();
}

void Trace::PushStage(int stage) {
  stages_.push_back(stage);
  stage_changes_.emplace_back(static_cast<int32_t>(builder_.graph().nodes.size()), stage);
}

void Trace::PopStage() {
  if (!stages_.empty()) stages_.pop_back();
  stage_changes_.emplace_back(static_cast<int32_t>(builder_.graph().nodes.size()),
                              stages_.empty() ? kNoStage : stages_.back());
}

std::vector<int> Trace::Stages() const {
  std::vector<int> stages(builder_.graph().nodes.size(), kNoStage);
  for (size_t c = 0; c < stage_changes_.size(); ++c) {
    const size_t end = c + 1 < stage_changes_.size() ? static_cast<size_t>(stage_changes_[c + 1].first) : stages.size();
    for (size_t i = static_cast<size_t>(stage_changes_[c].first); i < end; ++i) stages[i] = stage_changes_[c].second;
  }
  return stages;
}

StageScope::StageScope(Trace& trace, int stage) : trace_(stage == kNoStage ? nullptr : &trace) {
  if (trace_ != nullptr) trace_->PushStage(stage);
}
StageScope::~StageScope() {
  if (trace_ != nullptr) trace_->PopStage();
}

Trace::Place Trace::place() const { return {scopes_, stages_.empty() ? kNoStage : stages_.back(), training_, amp_}; }

GradientScope::GradientScope(Trace& trace, const Trace::Place& place)
    : trace_(trace), before_(trace.place()), stage_(trace, place.stage) {
  trace.scopes_ = {absl::StrCat("grad(", absl::StrJoin(place.scopes, "/"), ")")};
  trace.training_ = place.training;
  trace.amp_ = place.amp;
}
GradientScope::~GradientScope() {
  trace_.scopes_ = before_.scopes;
  trace_.training_ = before_.training;
  trace_.amp_ = before_.amp;
}

void Trace::PushRegion() {
  regions_.push_back(next_region_++);
  builder_.SetRegion(regions_.back());
}

void Trace::PopRegion() {
  if (!regions_.empty()) regions_.pop_back();
  builder_.SetRegion(regions_.empty() ? 0 : regions_.back());
}

}  // namespace mslua
