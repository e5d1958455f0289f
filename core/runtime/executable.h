// A compiled graph: kernels prepared, memory planned, ready to run every step with no allocation.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/run_passes.h"
#include "core/runtime/store.h"

namespace mslua {

class Device;
class NcclWorld;
class Groups;

struct CompileOptions : PassOptions {
  bool vector_products = false;  // f32 products by vector instructions alone, no bf16 tiles (decision 15)
  // The rank's groups, which collectives of the graph run in; null in a job of one rank. Outlives the executable.
  Groups* groups = nullptr;
  // All ranks of the world compile this program, or its part for each of them, together: what collectives touch lies
  // where the ranks of a host reach one another's memory.
  bool share = false;
  // The accelerator that runs the graph; null: the CPU.
  Device* device = nullptr;
  // Its collectives go through NCCL where this says so; null: staged through host memory, over `groups`.
  std::shared_ptr<NcclWorld> nccl;
};

// What a compile found out; `mslua plan`, the start-up lines and the benchmarks print it.
struct PlanReport {
  int64_t nodes = 0, kernels = 0;
  int64_t workspace_bytes = 0;     // the arena: the most that activations and kernels need at once
  int64_t shared_bytes = 0;        // the same of what collectives touch, where ranks share memory
  int64_t store_bytes = 0;         // of the parameters and the state that the graph reads
  int64_t sum_of_value_bytes = 0;  // what they would need without reuse
  int64_t in_place = 0;            // outputs written over an input
  int64_t copies = 0;              // store updates that needed a copy at the end of the step
  double compile_seconds = 0;
};

// The report of Compile on a graph that the passes have been through, but for its time: the memory that a rank would
// need. Nothing of that size is allocated, and no other rank is asked. `options.share`: as in a job of several ranks.
StatusOr<PlanReport> PlanOf(const Graph& graph, const CompileOptions& options);

// Node, output (-1: its kernel's scratch memory), offset, bytes, first and last node of a piece of the workspace.
using ArenaEntry = std::array<int64_t, 6>;

class Executable {
 public:
  // Compiles `graph`. Its inputs of kind parameter and state are found in `store` by name (types must agree);
  // the store must outlive the executable. `workspace` may be shared by executables of which one runs at a time;
  // null: it has its own.
  static StatusOr<std::unique_ptr<Executable>> Compile(const Graph& graph, Store* store,
                                                       const CompileOptions& options = {},
                                                       std::shared_ptr<Block>* workspace = nullptr);
  virtual ~Executable() = default;

  // Where data input `name` lies in this and following runs: dense, row-major, of the input's type; not copied, must
  // stay valid during Run. Unknown names are an error.
  virtual Status BindInput(absl::string_view name, const void* data) = 0;
  // The same by position among inputs() (no look-up).
  virtual void BindInputAt(int position, const void* data) = 0;
  // Has this and following runs write output `i` to `data`, dense, which begins at a multiple of 64 bytes and must stay
  // valid during Run. False where the plan puts it elsewhere (it is an input, a constant or another output too, or
  // updates the store): Output says where.
  virtual bool BindOutput(int i, void* data) = 0;
  // Sets a scalar input (such as the learning rate), converted to its type.
  virtual Status SetScalar(absl::string_view name, double value) = 0;
  virtual void SetScalarAt(int position, double value) = 0;

  // Runs one step on the calling thread (and its compute threads). Errors are about values (a label out of range);
  // the store may then be partly updated.
  virtual Status Run() = 0;

  // The value of an output after Run; valid until the next. For outputs that update the store: the store's memory.
  virtual TensorView Output(int i) const = 0;

  // The compiled graph, its inputs in order and its outputs.
  virtual const Graph& graph() const = 0;
  virtual const std::vector<std::string>& inputs() const = 0;
  virtual const PlanReport& report() const = 0;

  // Times the launches of every following Run. `timeline` gets launches().size() + 2 readings of the steady clock in
  // nanoseconds, before the first launch, after each, and after the copies at the end. Null: no more.
  virtual void SetTimeline(std::vector<int64_t>* timeline) = 0;
  // The node and the kernel's name of every launch.
  virtual const std::vector<std::pair<int32_t, const char*>>& launches() const = 0;
  // The pieces of the workspace.
  virtual const std::vector<ArenaEntry>& arena() const = 0;
};

}  // namespace mslua
