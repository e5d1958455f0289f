// The tensors that an optimizer keeps for each parameter: graphs that train with one optimizer share them.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/optim/declare/update.h"
#include "core/step/rank_state.h"

namespace mslua {

// The key of a state tensor, "moments.Net/w"; "moments.Net/w#2" where another optimizer has that.
std::string StateKey(const RankState& state, const std::shared_ptr<const OptimizerHistory>& history,
                     const std::string& kind, const std::string& parameter);

// The state tensor of this key as the rank keeps it; made on first use.
std::shared_ptr<ParameterData>& StateOf(RankState& state, const std::shared_ptr<const OptimizerHistory>& history,
                                        const StateTensor& tensor, const ParameterData& parameter);

// The parameter's average over the updates that an optimizer has made: after update n, from 1,
//   average += (1 - decay) / (1 - decay^n) * (parameter - average)
// which is the exponential moving average divided by the sum of its weights (optax.ema with debias = true): the first
// average is the parameter. 16-bit parameters have averages of f32.
StateTensor AverageTensor(const ParameterData& parameter);
// The state tensor of the average; null where that optimizer keeps none.
std::shared_ptr<ParameterData> AverageOf(const RankState& state, const std::shared_ptr<const OptimizerHistory>& history,
                                         const ParameterData& parameter);

}  // namespace mslua
