// The best choice of one candidate sharding for each node of a forward graph: exact, with few resharding plans made.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/sharding/search/edge_layouts.h"
#include "core/sharding/search/elimination.h"

namespace mslua {

// What is minimised: picoseconds * time_weight + bytes * byte_weight + memory * memory_weight, each term rounded down,
// and for values on their way forward, reductions aside, relayout_weight a byte.
struct Weights {
  int64_t time_weight = 1;
  double byte_weight = 0, memory_weight = 0;
  int64_t relayout_weight = 0;
  int64_t Of(const Cost& c) const;
};

// Candidates of a node. Nodes that share a list and have equal operators and types are one class, costed once.
using CandidateList = std::shared_ptr<const std::vector<Sharding>>;

struct Assignment {
  std::vector<Sharding> shardings;  // by node of the graph; empty where it is not a forward node
  int64_t value = 0;                // what is minimised
  int64_t bound = 0;                // no choice of candidates has less; equal to `value`: optimal
  Effort effort;
};

class AssignmentSolver {
 public:
  AssignmentSolver(const Graph& graph, const ForwardGraph& forward, const CostModel& model)
      : graph_(graph), forward_(forward), model_(model) {}

  // `candidates` by position in forward.nodes, none empty. `upper`: a value that some choice of candidates reaches.
  // RESOURCE_EXHAUSTED when a table would have more than `max_entries` entries or all of them more than `max_total`.
  StatusOr<Assignment> Solve(const std::vector<CandidateList>& candidates, const Weights& weights, int64_t upper,
                             double max_entries, double max_total);

 private:
  // A way between two layouts of one type. Its cost is a lower bound until a solution uses it.
  struct Way {
    CostModel::Transfer move;
    const TensorType* type;
    Cost cost;
    bool exact = false;
  };
  // Nodes alike, and the costs of those candidates that an optimum may have.
  struct NodeClass {
    int32_t node;  // one of them
    std::vector<const Sharding*> candidates;
    std::vector<int64_t> values, hidden;
    std::vector<Cost> costs;
    CostTable table;
  };
  // The ways between two lists of different layouts.
  struct Ways {
    std::vector<int> numbers;
    size_t columns = 0;
  };
  // One edge between nodes of two classes. `relayout`: forward as if the value were reduced already; empty where that
  // has no weight.
  struct Slot {
    const ForwardGraph::Edge* edge;
    EdgeLayouts layouts;
    Ways forward, backward, relayout;
    int ForwardWay(size_t m, size_t r) const;
    int BackwardWay(size_t m, size_t r) const;  // -1: no gradient
    int RelayoutWay(size_t m, size_t r) const;  // -1: has no weight
  };
  struct EdgeClass {
    int maker, reader;
    std::vector<Slot> slots;
    CostTable table;  // null: to be made, since the cost of a way has changed
    bool Uses(const std::vector<bool>& ways) const;
  };
  struct Pair {
    int maker, reader;  // positions
    int edge_class;
  };

  void MakeClasses(const std::vector<CandidateList>& candidates, const Weights& weights);
  void Prune(int64_t upper);
  void MakePairs(const Weights& weights);
  Slot SlotOf(const ForwardGraph::Edge& edge, const NodeClass& maker, const NodeClass& reader, bool relayout);
  Ways WaysOf(const EdgeLayouts::Distinct& from, const EdgeLayouts::Distinct& to, const TensorType& type);
  int WayOf(const CostModel::Transfer& move, const TensorType& type, int number);
  CostTable TableOf(const EdgeClass& e, const Weights& weights) const;
  int64_t PairValue(const EdgeClass& e, size_t maker, size_t reader, const Weights& weights) const;
  // Plans the ways that these choices use; whether the cost of one has changed.
  StatusOr<bool> Refine(const std::vector<int>& values);
  int64_t ValueOf(const std::vector<int>& values, const Weights& weights) const;
  StatusOr<Assignment> Iterate(const Weights& weights, const Elimination& elimination);

  const Graph& graph_;
  const ForwardGraph& forward_;
  const CostModel& model_;
  SolvedParts solved_;
  std::vector<Way> ways_;
  absl::flat_hash_map<std::pair<Shape, int64_t>, int> types_;  // numbers of shapes and sizes of elements
  absl::flat_hash_map<std::tuple<Layout, Layout, int>, int> way_of_;
  // Of the call in progress.
  std::vector<NodeClass> classes_;
  std::vector<int> class_of_;  // by position
  std::vector<EdgeClass> edge_classes_;
  std::vector<Pair> pairs_;
};

}  // namespace mslua
