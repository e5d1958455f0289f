// A compiled graph over the session's store, run with tensors: what eager operators, gradients and Graph:run use.
#pragma once

#include <memory>
#include <vector>

#include "core/runtime/executable.h"
#include "core/step/parameter.h"
#include "core/step/prints.h"
#include "lua/session.h"
#include "lua/tensor.h"

namespace mslua {

// Compiles over the session's store, groups and workspace, with reference kernels where the context says so: of the
// executables made so, one runs at a time.
StatusOr<std::unique_ptr<Executable>> CompileShared(Session& session, const Graph& graph, CompileOptions options);

class Program {
 public:
  // `parameters` are those that the graph reads; their values are made where they do not exist.
  static StatusOr<std::unique_ptr<Program>> Compile(Session& session, const Graph& graph,
                                                    const std::vector<std::shared_ptr<ParameterData>>& parameters);

  // `data` are the graph's inputs of kind data, in order. Gives the outputs that update nothing, as tensors of their
  // own, but for those of ms.print, which it prints.
  StatusOr<std::vector<Tensor>> Run(Session& session, absl::Span<const Tensor> data);

  // The number of the next run, from 0: what it draws depends on it.
  void StartAt(int64_t run) { runs_ = run; }
  // Whether a run depends on its number.
  bool counts_runs() const { return step_position_ >= 0; }

  Executable& executable() { return *executable_; }

 private:
  // That the store has the parameters as the graph takes them: one that was traced whole may be a part by now.
  Status CheckParameters(Session& session) const;

  std::unique_ptr<Executable> executable_;
  std::vector<int> data_positions_;  // among the executable's inputs
  std::vector<TensorType> data_types_;
  std::vector<int> results_;  // outputs without an update
  std::vector<Print> prints_;
  int step_position_ = -1;  // of the scalar input `step`; it counts the runs
  int64_t runs_ = 0;
  std::vector<std::shared_ptr<ParameterData>> parameters_;
  std::vector<TensorType> reads_;  // of the parameters, as the graph takes them
};

}  // namespace mslua
