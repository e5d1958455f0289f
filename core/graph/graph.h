// The IR: one SSA graph of a whole training step, with static shapes. A graph is a list of nodes in an order
// in which every value is defined before it is used; passes build new graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/op/op_def.h"

namespace mslua {

// Output `output` of node `node`.
struct Value {
  int32_t node = -1;
  int32_t output = 0;
  bool valid() const { return node >= 0; }
  friend bool operator==(Value a, Value b) { return a.node == b.node && a.output == b.output; }
  friend bool operator!=(Value a, Value b) { return !(a == b); }
  template <class H>
  friend H AbslHashValue(H h, Value v) {
    return H::combine(std::move(h), v.node, v.output);
  }
};

// Where a node comes from: the cell path and the recipe's line.
struct Location {
  std::string scope;  // "Net/conv1"; "grad(Net/conv1)" for its gradient
  std::string file;   // "recipes/quickstart.lua"; empty when not known
  int line = 0;
  std::string instance;  // the cell's field that holds the operator, "matmul"; empty: none does
  friend bool operator==(const Location& a, const Location& b) {
    return a.scope == b.scope && a.file == b.file && a.line == b.line && a.instance == b.instance;
  }
};
// "Net {instance name: matmul} @ recipes/quickstart.lua:21"
std::string ToString(const Location& location);

struct Node {
  const OpDef* op = nullptr;
  std::vector<Value> inputs;
  Attrs attrs;
  absl::InlinedVector<TensorType, 1> outputs;
  std::shared_ptr<const Location> location;
  int32_t region = 0;  // recomputation region, 0: none
};

// What an input of a graph is, which says who provides its memory.
//   parameter, state: the rank's store, by name     data: a batch column     scalar: set between steps
inline constexpr char kParameter[] = "parameter";
inline constexpr char kState[] = "state";
inline constexpr char kData[] = "data";
inline constexpr char kScalar[] = "scalar";

struct GraphOutput {
  std::string name;
  Value value;
  // The input (of kind parameter or state) whose memory this output replaces when the step is done; or empty.
  std::string updates;
};

class Graph {
 public:
  std::string name = "graph";
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;

  const TensorType& TypeOf(Value v) const { return nodes[v.node].outputs[v.output]; }
  // Nodes whose operator is "input", in order.
  std::vector<int32_t> Inputs() const;
  // The input of that name, or -1.
  int32_t FindInput(absl::string_view name) const;
  // For each node, how many node inputs and graph outputs read each of its outputs.
  std::vector<std::vector<int32_t>> UseCounts() const;
};

// The text form (docs/explanation/architecture.md, "IR text"): one line a node. Parsing gives the graph back.
//   %12: f32[8,16] = matmul(%x, %w) {transpose_a=false, transpose_b=false}  # Net/matmul @ quickstart.lua:21
std::string ToString(const Graph& graph);
StatusOr<Graph> ParseGraph(absl::string_view text);

// All invariants of a graph: operands defined before use, known operators, types as the operators infer
// them, unique input names, updates that name an input of the same type. Names the first node that breaks one.
Status Verify(const Graph& graph);

// A hash of the graph's text without locations: equal programs have equal hashes.
uint64_t Fingerprint(const Graph& graph);

}  // namespace mslua
