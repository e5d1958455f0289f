// From one layout of a tensor to another: the cheapest chain of slices and collectives under alpha-beta costs. The
// steps that are costed are the steps that run (EmitReshard), so that cost and execution cannot differ.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/graph/builder.h"
#include "core/sharding/layout.h"

namespace mslua {

// What messages cost along each axis of a mesh.
struct LinkCosts {
  struct Link {
    double alpha = 10e-6;  // seconds to start a round of messages
    double beta = 0.5e-9;  // seconds a byte
  };
  std::vector<Link> axes;     // one a mesh axis; none: the default link everywhere
  double copy_beta = 0.1e-9;  // seconds a byte copied within a device
  Link Slowest(absl::Span<const int8_t> over) const;
};

enum class Move { kSlice, kReduceScatter, kPermute, kAllToAll, kAllReduce, kAllGather, kExchange };
// The operator's name in the IR: "strided_slice", "reduce_scatter", ...
const char* Name(Move kind);

struct ReshardStep {
  Move kind;
  AxisList axes;      // the group: the axes that move, major to minor
  int from_dim = -1;  // all_gather, all_to_all: the dimension that is joined
  int to_dim = -1;    // slice, reduce_scatter, all_to_all: the dimension that is cut
  Layout before, after;
};

// What one step costs a device that has `bytes` bytes before it.
struct StepCost {
  double seconds = 0;
  double bytes_received = 0;
};
StepCost CostOf(const Mesh& mesh, const LinkCosts& links, const ReshardStep& step, double bytes);

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double seconds = 0;
  double bytes_received = 0;  // by one device
  int64_t peak_bytes = 0;     // the most that a step's input and output need together
};

// An exchange has a message for each pair of ranks: on large meshes no plan has one.
inline bool MayExchange(const Mesh& mesh) { return mesh.ranks() <= 16; }
// What all exchanges of a mesh cost alike, so that two never cost less than one: a message to each rank and from each.
inline double MessagesOfExchange(const Mesh& mesh) { return 2 * static_cast<double>(mesh.ranks()); }

// Plans of one mesh, remembered. Not for two threads at once.
class Resharder {
 public:
  explicit Resharder(Mesh mesh, LinkCosts links = {}) : mesh_(std::move(mesh)), links_(std::move(links)) {}

  // `type` is the whole tensor's. Both layouts must divide it, and `to` may be partial only where `from` is. The plan
  // lives as long as the Resharder.
  StatusOr<const ReshardPlan*> Plan(const Layout& from, const Layout& to, const TensorType& type);

  const Mesh& mesh() const { return mesh_; }
  const LinkCosts& links() const { return links_; }

 private:
  Mesh mesh_;
  LinkCosts links_;
  absl::flat_hash_map<std::tuple<Layout, Layout, Shape, int64_t>, std::unique_ptr<ReshardPlan>> plans_;
};

// Emits the plan's steps on `x`, the part that `rank` has of a tensor of `type`.
Value EmitReshard(GraphBuilder& g, const Mesh& mesh, int64_t rank, const ReshardPlan& plan, Value x,
                  const TensorType& type);

}  // namespace mslua
