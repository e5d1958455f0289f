// Global view (semi_auto_parallel): the recipe is written for the global batch. A traced graph becomes this rank's part
// of it, and parameters are made as this rank's parts.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "core/sharding/search.h"
#include "lua/session.h"

namespace mslua {

class GlobalView {
 public:
  // A parameter or state that the ranks have parts of.
  struct Part {
    Layout layout;
    TensorType whole, local;
    Shape begin;
    bool first = false;  // of the ranks that have this part, this is the first
  };

  // The session's; null where each rank has a program of its own.
  static GlobalView* Of(Session& session);
  // Reads the field `shard` of the table at `index`: {feeds = of a global batch, 1: every rank reads all of it; follow
  // = operators without a strategy follow their inputs; optimizer_bytes = state of parameters from that size on is cut
  // over all ranks}. Null when there is none. Graphs of one session share their layouts of parameters.
  // `strategies`: a list of {name =, strategy =}.
  static StatusOr<GlobalView*> Read(lua_State* L, Session& session, int index);

  // The strategy for an operator of that name, "Net/fc1/MatMul", from the first pattern of `shard.strategies` that fits
  // it
  // (`*` is any text); empty: none.
  std::string StrategyOf(absl::string_view name);

  // The last training step that was cut, for `mslua plan`.
  struct Planned {
    Graph graph;
    ShardPlan plan;
    PropagateOptions options;
    absl::optional<SearchMode> mode;  // none: strategies are users' and what follows from them
    absl::optional<SearchResult> found;
  };
  const Planned* planned() const { return planned_ ? &*planned_ : nullptr; }
  const Cluster& cluster() const { return cluster_; }
  const std::string& cluster_source() const { return cluster_source_; }
  Resharder& resharder() { return resharder_; }

  int64_t feeds() const { return feeds_; }
  // A column of one feed as one of the global batch.
  TensorType Whole(TensorType feed) const;
  // This rank's program, and the parts of the parameters that it reads. `feeds`: columns arrive cut over the ranks,
  // else every rank has them whole; `except`: parameters whose state is not cut further. With core.options.save_graphs
  // the sharded graph is written before it is cut.
  StatusOr<Graph> Cut(Session& session, const Graph& graph, bool feeds,
                      const absl::flat_hash_set<std::string>& except = {});
  // Null for values that this view has not cut.
  const Part* Find(const std::string& key) const;

 private:
  GlobalView(Mesh mesh, Cluster cluster, std::string source)
      : resharder_(std::move(mesh), cluster.links), cluster_(std::move(cluster)), cluster_source_(std::move(source)) {}
  static StatusOr<std::unique_ptr<GlobalView>> Make(Session& session);
  // What a strategy file or a search says of the nodes of a graph. Rank 0 searches and tells the others.
  StatusOr<std::vector<absl::optional<Sharding>>> Choose(Session& session, const Graph& graph,
                                                         const PropagateOptions& options);
  StatusOr<std::vector<absl::optional<Sharding>>> SearchHere(Session& session, const Graph& graph,
                                                             const PropagateOptions& options);
  // Writes strategy_ckpt_save_file, on rank 0 for graphs that train.
  Status Save(const Session& session, const Graph& graph, const ShardPlan& plan) const;
  Status Remember(const Session& session, const Graph& graph, const ShardPlan& plan);

  struct NamedStrategy {
    std::string pattern, text;
    bool used = false;
  };

  Resharder resharder_;
  Cluster cluster_;
  std::string cluster_source_;
  absl::optional<Planned> planned_;
  absl::optional<SearchResult> found_;  // by the last search here
  std::vector<NamedStrategy> strategies_;
  int64_t feeds_ = 1;
  absl::optional<SearchMode> search_;
  std::string load_file_, save_file_;  // of strategies; empty: none
  int64_t optimizer_bytes_ = -1;       // below 0: state lies as its parameter
  absl::flat_hash_map<std::string, Part> parts_;
};

}  // namespace mslua
