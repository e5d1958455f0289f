// ms.print of a traced value: an output of the graph, printed each time that the graph has run.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/runtime/executable.h"
#include "core/train/progress.h"
#include "core/train/trainer.h"

namespace mslua {

// The name of the `n`th printed output of a graph; FindPrints reads it back. `what` is what the value is called.
std::string PrintName(size_t n, absl::string_view what);

// An output to print.
struct Print {
  int output = 0;    // of the graph
  std::string what;  // "Net/layers.2"
};
std::vector<Print> FindPrints(const Graph& graph);

// Writes "Net/layers.2 f32[2,3]:" and the elements of each to stdout, as they are after a run; `prefix` begins each.
void WritePrints(const std::vector<Print>& prints, const Executable& executable, const std::string& prefix);

// Prints after each step of a training.
class PrintHook : public TrainHook {
 public:
  PrintHook(const Progress* progress, std::string prefix) : progress_(progress), prefix_(std::move(prefix)) {}
  int64_t NextStep(const TrainState& s) override { return seen_ == s.step ? s.step + 1 : s.step; }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override;

 private:
  const Progress* const progress_;
  const std::string prefix_;
  int64_t seen_ = 0;  // step after which it has printed
};

}  // namespace mslua
