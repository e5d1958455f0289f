// Graph-to-graph passes. Each gives a graph that computes the same outputs from the same inputs; the order in
// which the compiler runs them is kPasses in core/passes/run_passes.cc.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "core/graph/graph.h"

namespace mslua {

class Decisions;
struct PassOptions;

// Drops nodes that no output needs. Inputs stay: they are the program's signature.
Graph EliminateDeadNodes(const Graph& graph);
// Those of `unread` too, unless something reads them: messages between ranks, which else stay.
Graph EliminateDeadNodes(const Graph& graph, const absl::flat_hash_set<int32_t>& unread);

// Makes equal nodes (operator, operands, attributes, recomputation region) one. Random nodes differ in their attribute
// _rng.
Graph MergeCommonNodes(const Graph& graph);

// Algebra that needs no arithmetic: x*1, x+0, x-0, x/1, neg(neg x), transpose of a transpose, reshape of a reshape,
// broadcasts and casts that change nothing, a transpose into or out of a matmul.
Graph Simplify(const Graph& graph);

// Elementwise chains become `fused` nodes: one pass over memory each (core/ops/fused.cc). Scalar constants become
// numbers of the program, broadcasts its input patterns. Nothing is computed twice.
Graph FuseElementwise(const Graph& graph);

// In place of FuseElementwise for an accelerator: updates of two parameters stay two nodes, and come after all else, so
// that one launch makes all of a rule.
Graph FuseForDevice(const Graph& graph);
// Products take in a bias and what else a device's library computes with them (core/passes/epilogues.cc). After fusion.
Graph FuseEpilogues(const Graph& graph);
// Elementwise chains join row operators: softmax, norms, losses, sums (core/passes/fuse_rows.cc). After those.
Graph FuseRows(const Graph& graph);
// As RunPasses (core/passes/run_passes.h), with these three.
StatusOr<Graph> RunPassesForDevice(const Graph& graph, const PassOptions& options);

// What the nodes of a recomputation region make is computed again where the backward pass reads it, from what enters
// the region. Before the other passes: those nodes and the gradients must have the locations that they were made with.
Graph RecomputeRegions(const Graph& graph);

// Cheap elementwise results of the forward pass that the backward pass reads are computed again there, from what is
// kept anyway (core/passes/recompute.cc; decision 12).
struct RecomputeRule {
  int64_t small_bytes = int64_t{1} << 20;         // values below this are kept: they are no part of the problem
  int64_t worthwhile_bytes = int64_t{384} << 20;  // networks in which less would be saved stay as they are
};
Graph RecomputeElementwise(const Graph& graph, const RecomputeRule& rule = {});

// Convolution chains in channels-last order: NCHW stays at the chain's ends only.
Graph AssignLayout(const Graph& graph);

// Attention reads heads where a projection has put them, instead of moving them first.
Graph PackAttention(const Graph& graph);

// Elementwise operators work in the shape before a reshape, so that it does not break chains.
Graph FlattenElementwise(const Graph& graph);

// Maps of batch normalisation become elementwise operators where such follow, so that they are fused with them.
Graph MapNorms(const Graph& graph);

// Tables of embeddings are updated by the rows that a batch names, where the step says that the others stay.
Graph UpdateByRows(const Graph& graph);

// Convolutions over channels-last images become matrix products, where `decisions` say so.
Graph PointwiseConvolutions(const Graph& graph, Decisions* decisions);

}  // namespace mslua
