// Histograms of parameters and gradients, every so many steps.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/runtime/store.h"
#include "core/train/progress.h"

namespace mslua {

// The output of a training step that is a parameter's gradient, before it is clipped and without the loss scale, is
// called so with the parameter's key behind it.
inline constexpr char kGradientOutput[] = "gradient.";

class HistogramsHook : public TrainHook {
 public:
  struct Options {
    int64_t every = 0;  // steps; 0: never
    bool parameters = true, gradients = false;
  };
  // Names of the parameters, by their keys in `store`; gradients are those that the step's executable gives.
  HistogramsHook(Progress* progress, const Store* store, std::vector<std::pair<std::string, std::string>> names,
                 const Options& options)
      : progress_(progress), store_(store), names_(std::move(names)), options_(options) {}

  int64_t NextStep(const TrainState& state) override;
  // Records parameters/NAME and gradients/NAME.
  Status AtStep(const TrainState& state) override;

 private:
  Progress* const progress_;
  const Store* const store_;
  const std::vector<std::pair<std::string, std::string>> names_;
  const Options options_;
  int64_t done_ = 0;
};

}  // namespace mslua
