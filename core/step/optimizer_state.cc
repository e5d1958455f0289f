#include "core/step/optimizer_state.h"

#include "absl/strings/str_cat.h"

namespace mslua {

std::string StateKey(const RankState& state, const std::shared_ptr<const OptimizerHistory>& history,
                     const std::string& kind, const std::string& parameter) {
  const std::string first = absl::StrCat(kind, ".", parameter);
  std::string key = first;
  for (int i = 2;; ++i) {
    const auto held = state.optimizer_states.find(key);
    if (held == state.optimizer_states.end() || held->second->state_for == history) return key;
    key = absl::StrCat(first, "#", i);
  }
}

std::shared_ptr<ParameterData>& StateOf(RankState& state, const std::shared_ptr<const OptimizerHistory>& history,
                                        const StateTensor& tensor, const ParameterData& parameter) {
  const std::string key = StateKey(state, history, tensor.name, parameter.key);
  std::shared_ptr<ParameterData>& held = state.optimizer_states[key];
  if (held != nullptr) return held;
  held = std::make_shared<ParameterData>();
  held->name = key;
  held->kind = kState;
  held->type = tensor.type;
  if (tensor.init != 0) {
    held->init.kind = "constant";
    held->init.value = tensor.init;
  }
  held->requires_grad = false;
  held->state_of = parameter.key;
  held->state_kind = tensor.name;
  held->state_for = history;
  held->made_at = parameter.made_at;
  return held;
}

StateTensor AverageTensor(const ParameterData& parameter) {
  return {kAverageState, {ArithmeticType(parameter.type.dtype), parameter.type.shape}, 0};
}

std::shared_ptr<ParameterData> AverageOf(const RankState& state, const std::shared_ptr<const OptimizerHistory>& history,
                                         const ParameterData& parameter) {
  const auto held = state.optimizer_states.find(StateKey(state, history, kAverageState, parameter.key));
  return held == state.optimizer_states.end() ? nullptr : held->second;
}

}  // namespace mslua
