// A step on a device as data: where everything lies in its memory, and what is given to which of its streams in which
// order. Made without a device, so that a plan for one can be made anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/device/cublas_matmul.h"
#include "core/graph/graph.h"
#include "core/runtime/executable.h"
#include "core/runtime/memory_plan.h"
#include "core/runtime/schedule.h"

namespace mslua {

struct ScalarProgram;  // core/op/formula.h

// The product that a node is, where cuBLASLt may compute it.
absl::optional<MatmulShape> ProductOf(const Node& node, const OpSpec& spec);
// Whether NCCL can run the node: not messages between single ranks, which would wait for one another on one stream.
// Where it cannot, the node's ranks all stage it through host memory.
bool RunsOverNccl(const Graph& graph, const Node& node);
// Bytes beside the operands of a collective over NCCL: its blocks one after the other, before the call and after it.
std::pair<int64_t, int64_t> BlocksOf(const Graph& graph, const Node& node);
OpSpec SpecOf(const Graph& graph, int32_t node, std::vector<TensorType>* inputs);

// One piece of memory has everything of a step but the store's tensors.
struct DeviceLayout {
  // A data input that is not small is copied ahead of its step into one of two stages, which steps take in turn, and
  // from there to its place when its step begins.
  struct Input {
    int64_t place = -1;  // -1: no data input
    std::array<int64_t, 2> stages = {-1, -1};
    bool staged() const { return stages[0] >= 0; }
  };
  // An output whose value is copied over what it updates, at the end of the step. before: it goes through there first,
  // as another copy may write where it lies; -1: it does not.
  struct Update {
    int output = 0;
    int64_t before = -1;
  };
  MemoryPlan plan;
  std::vector<int64_t> scratch_bytes;  // of each node
  std::vector<Input> inputs;           // by position
  std::vector<Update> updates;
  // What the host reads after a step: the faults, then small outputs and MemoryPlan::kept, each at posted[output] (-1:
  // it is copied from where it lies).
  int64_t outbox = 0, outbox_bytes = 0;
  std::vector<int64_t> posted;
  int64_t constants = 0, scalars = 0;
  // For the tables of updates that are made together; -1: each is made alone.
  int64_t tables = -1;
  int64_t bytes = 0;
};
inline constexpr int64_t kScalarStride = 64;
// `scratch`: bytes of each node's kernels. `guard`: bytes behind each value, of a step whose nodes are launched alone.
DeviceLayout LayOut(const Graph& graph, const std::vector<int64_t>& scratch, int64_t guard = 0);
// The nodes that may find wrong values, in the order of their places in the outbox.
std::vector<int32_t> FaultsOf(const Graph& graph);

// What a step is made of, in the order in which the device gets it.
struct DeviceWork {
  enum Kind : uint8_t {
    kInput,    // copies input `of` from the host: to its stage, or to its place
    kMove,     // from its stage to its place
    kBegin,    // scalars, and no fault
    kNode,     // the kernels of node `of`, or its collective through the host
    kUpdates,  // node `of` and those that are made together with it
    kPack,     // of a collective over NCCL: what comes before the call
    kCall,     // the call
    kUnpack,   // what comes after it
    kEnd,      // updates that were not made in place, and what the host reads
  };
  Kind kind = kNode;
  int32_t of = 0;
};
// Updates of the store by one program, over tensors of their own, which one kernel makes (DeviceMapOfPieces).
struct DeviceUpdates {
  std::vector<int32_t> nodes;
  // Its tables, in the step's memory, and the number of its blocks.
  int64_t pieces = 0, parts = 0, blocks = 0;
};
// The body of their kernel. p.at[0]: of each of them, a piece, the number of its elements (i64), then the addresses of
// its inputs and outputs. p.at[1]: of each block a part of a piece. The pieces have the types of `inputs` and
// `outputs`; inputs of another shape than the outputs are numbers.
struct DevicePart {
  uint32_t piece = 0;
  uint32_t number = 0;  // elements [number, number + 1) * kDevicePart
};
inline constexpr int64_t kDevicePart = 4096;
std::string DeviceMapOfPieces(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                              absl::Span<const TensorType> outputs);
struct DeviceSteps {
  std::vector<DeviceWork> works;
  std::vector<Work> touched;
  StepSchedule schedule;
  absl::flat_hash_map<int32_t, DeviceUpdates> updates;  // by the last of their nodes
};
// `over_nccl`: of each node. The schedule is verified.
StatusOr<DeviceSteps> StepsOf(const Graph& graph, const DeviceLayout& layout, const std::vector<bool>& over_nccl);

// A step on a device that is not here: its memory, and the number of kernels that each node launches (of updates that
// are made together the last one). To the byte where
// cuBLASLt computes the products and cuDNN is not there, whose workspace only the library knows.
struct DevicePlan {
  PlanReport report;
  int64_t device_bytes = 0;  // all that the step and the store's tensors take
  std::vector<std::pair<int32_t, int>> launches;
};
// `graph` has been through the passes. Its collectives go through NCCL.
StatusOr<DevicePlan> PlanOnDevice(const Graph& graph);
// What StoreSnapshots::Reserve takes for a tensor; for all parameters and state of a step, which has been through
// the passes.
int64_t SnapshotBytes(const TensorType& type);
int64_t SnapshotBytes(const Graph& graph);

}  // namespace mslua
