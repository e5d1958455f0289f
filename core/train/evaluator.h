// Evaluation: an executable of sums over a dataset. The result depends on neither batch size nor number of ranks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/executable.h"
#include "core/train/worst_samples.h"

namespace mslua {

class Groups;
class ShapedExecutable;
namespace data {
class Loader;
}

// The sums of one output of an evaluation over the samples of the dataset.
struct MetricSums {
  std::string name;
  std::vector<double> sums;  // of its elements
};

// The graph's data inputs are fed from the loader's columns in order. A scalar input "valid" gets the number of rows of
// the batch that come from the dataset; outputs are sums over those rows, named as the metrics.
class Evaluator {
 public:
  // With `groups` every rank runs its part of the dataset, and the result is that of all parts. `varying` then are
  // tensors of `store` that the executable reads and does not replace, and of which ranks may have values of their own
  // (running statistics): while it runs all ranks have rank 0's, as a checkpoint has them under their names.
  static StatusOr<std::unique_ptr<Evaluator>> Create(Executable* executable, data::Loader* loader,
                                                     Groups* groups = nullptr, Store* store = nullptr,
                                                     std::vector<std::string> varying = {});

  // Keeps the worst samples of each run from now on, where the graph has outputs of samples.
  void KeepWorst(SampleForm form);
  // Of the last run (WorstSamples::List); null: they are not kept.
  const Json& worst() const { return worst_; }
  // Each output's sums over the dataset, but for those of samples: the loader's epoch 0, from its beginning.
  StatusOr<std::vector<MetricSums>> Run();
  int64_t samples() const { return samples_; }

 private:
  Evaluator(Executable* executable, data::Loader* loader, Groups* groups, Store* store,
            std::vector<std::string> varying);

  // Whether the columns of batches of that shape are what the graph takes.
  Status CheckColumns(int64_t shape) const;
  StatusOr<std::vector<MetricSums>> RunAll();
  Status RunBatches(const std::vector<int>& summed, std::vector<MetricSums>* sums);
  TensorView OutputNamed(const char* name) const;
  Status AddOtherRanks(std::vector<MetricSums>* sums);

  Executable* const executable_;
  data::Loader* const loader_;
  Groups* const groups_;
  Store* const store_;
  const std::vector<std::string> varying_;
  std::vector<int> column_positions_;
  int valid_position_ = -1;
  int64_t samples_ = 0;
  std::unique_ptr<WorstSamples> samples_kept_;  // null: none are
  Json worst_;
  ShapedExecutable* const shaped_;  // executable_, where batches have several shapes; else null
};

}  // namespace mslua
