// Evaluation: an executable of sums over a dataset, so that the result depends on neither batch size nor ranks (R6).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/data/loader.h"
#include "core/runtime/executable.h"

namespace mslua {

// The graph's data inputs are fed from the loader's columns in order. A scalar input "valid" gets the number of rows of
// the batch that come from the dataset; outputs are scalars: sums over those rows, named as the metrics.
class Evaluator {
 public:
  static StatusOr<std::unique_ptr<Evaluator>> Create(Executable* executable, data::Loader* loader);

  // Each output's sum over the dataset divided by its samples. The loader's epoch 0, from its beginning.
  StatusOr<std::vector<std::pair<std::string, double>>> Run();
  int64_t samples() const { return samples_; }

 private:
  Evaluator(Executable* executable, data::Loader* loader) : executable_(executable), loader_(loader) {}

  Executable* const executable_;
  data::Loader* const loader_;
  std::vector<int> column_positions_;
  int valid_position_ = -1;
  int64_t samples_ = 0;
};

}  // namespace mslua
