// Global view (semi_auto_parallel): the recipe is written for the global batch. A traced graph becomes this rank's part
// of it, and parameters are made as this rank's parts.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/base/part.h"
#include "core/passes/buckets.h"
#include "core/passes/run_passes.h"
#include "core/sharding/search/search.h"
#include "core/sharding/stages.h"
#include "core/step/parameter.h"

namespace mslua {

class Groups;

// How good a found plan is: "optimal", or "at most 3.1 % above the least".
std::string GapText(const SearchResult& found, SearchMode mode);

// What a recipe and its parallel context say of sharding.
struct ShardOptions {
  struct NamedStrategy {
    std::string name, strategy;  // "Net/fc*/MatMul", "((2,4),(4,1))"
  };
  int64_t stages = 1;                // of the pipeline
  int64_t feeds = 1;                 // of a global batch; 1: every rank reads all of it
  std::string dataset;               // how its columns are sharded, "((4,1),(4))"; empty: as the feeds are
  std::string search;                // a SearchMode; empty: none
  int64_t memory_bytes = 0;          // of a device; 0: the cluster's
  std::string load_file, save_file;  // of strategies; empty: none
  // The state of parameters from that size on is sharded over all ranks, by level 2 also sums of gradients over
  // micro-batches, by 3 the parameters; below 0: state lies as its parameter.
  int64_t optimizer_bytes = -1;
  int64_t optimizer_level = 1;
  std::vector<NamedStrategy> strategies;
  BucketRule buckets;
  int64_t scatter_bytes = -1, gather_bytes = -1;  // of messages of slices, 0: no limit; below 0: each alone
  bool fp32_sync = true;                          // gradients of 16-bit parameters are added up in f32
};

class GlobalView {
 public:
  // Of a rank among all.
  struct Place {
    int rank = 0, ranks = 1;
    Groups* groups = nullptr;                  // null: the other ranks are not there (mslua plan)
    absl::optional<std::string> cluster_file;  // none: of `device`, else the measured one, else the default
    std::string device;                        // for mslua plan: a known device, or "cuda", the measured one
    bool planning = false;                     // for mslua plan: searches again, keeps what it plans, and is silent
  };

  // A parameter or state that the ranks have parts of.
  struct Sharded {
    Layout layout;
    DType dtype = DType::kF32;
    Part part;           // this rank's
    bool first = false;  // of the ranks that have this part, this is the first
    TensorType whole() const { return {dtype, part.whole}; }
    TensorType local() const { return {dtype, part.size}; }
  };

  // Makes the view of a rank on the first call, or gives it other options. `dumps` says where sharded graphs are saved.
  // Called by all ranks: all of them plan for the cluster that rank 0 knows.
  static Status Configure(const Place& place, const ShardOptions& options, const PassOptions& dumps,
                          std::unique_ptr<GlobalView>* view);

  // The strategy for an operator of that name, "Net/fc1/MatMul", called in that line of the recipe, from the pattern of
  // `shard.strategies` with the most letters of those that fit the name or "Net/fc1/MatMul:31" (`*` is any text);
  // empty: none.
  std::string StrategyOf(absl::string_view name, int line);
  // Gives the patterns that fit no call to the nodes that they fit, as `mslua plan` names them:
  // "Net/bn/batch_norm_apply" is a part of a call of BatchNorm. In training an error for a pattern that fits none.
  Status PinNamed(Graph* graph);

  // The last training step that was sharded, for `mslua plan`.
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

  const Mesh& mesh() const { return resharder_.mesh(); }
  int64_t feeds() const { return options_.feeds; }
  // Gradients of 16-bit parameters are added up in f32.
  bool fp32_sync() const { return options_.fp32_sync; }

  // Pipeline stages; each has as many neighbouring ranks as the mesh.
  int stages() const { return static_cast<int>(options_.stages); }
  // Of the last graph that was partitioned into stages.
  int64_t micro_batches() const { return micro_batches_; }
  // This rank's.
  int stage() const { return static_cast<int>(mesh().first() / mesh().ranks()); }
  // The stage that keeps a parameter or state; kNoStage where that is not known, or there is one stage.
  int OwnerOf(const std::string& key) const;
  // The stage of every node; settles for all that follows which stages keep what the graph reads.
  StatusOr<std::vector<int>> SettleStages(const Graph& graph, const StageTrace& trace);
  // The program of this rank's stage, not yet sharded over the ranks of the stage.
  StatusOr<Graph> OfStage(const Graph& graph, const StageTrace& trace);

  // The columns of a global batch as the user's dataset_strategy shards them.
  Status PlaceColumns(GraphBuilder& g, absl::Span<const std::string> names, std::vector<Value>* columns) const;
  // A column of one feed as one of the global batch.
  TensorType Whole(TensorType feed) const;
  // This rank's program, and the parts of the parameters that it reads. `feeds`: columns arrive sharded over the ranks,
  // else every rank has them whole; `parameters` are those of the graph. Where graphs are
  // saved, the sharded graph is written before it is partitioned.
  StatusOr<Graph> OfRank(const Graph& graph, bool feeds,
                         const std::vector<std::shared_ptr<ParameterData>>& parameters = {});
  // Null for values that this view has not sharded.
  const Sharded* Find(const std::string& key) const;

 private:
  GlobalView(const Place& place, Mesh mesh, Cluster cluster, std::string source)
      : place_(place),
        resharder_(std::move(mesh), cluster.links),
        cluster_(std::move(cluster)),
        cluster_memory_bytes_(cluster_.memory_bytes),
        cluster_source_(std::move(source)) {}
  static StatusOr<std::unique_ptr<GlobalView>> Make(const Place& place, int64_t stages);
  // What a strategy file or a search says of the nodes of a graph. Rank 0 searches and tells the others.
  StatusOr<std::vector<absl::optional<Sharding>>> Choose(const Graph& graph, const PropagateOptions& options);
  StatusOr<std::vector<absl::optional<Sharding>>> SearchHere(const Graph& graph, const PropagateOptions& options);
  // Writes strategy_ckpt_save_file for graphs that train: on every rank the same text, where its path is.
  Status Save(const Graph& graph, const ShardPlan& plan) const;
  Status Remember(const Graph& graph, const ShardPlan& plan);
  // Says which messages of gradients and updates travel together.
  void Fuse(Graph* graph) const;

  struct NamedStrategy {
    std::string pattern, text;
    bool used = false, of_nodes = false;  // fits a call; or nodes only
  };

  const Place place_;
  ShardOptions options_;
  PassOptions dumps_;
  Resharder resharder_;
  Cluster cluster_;  // with the memory that the options say
  const int64_t cluster_memory_bytes_;
  std::string cluster_source_;
  absl::optional<Planned> planned_;
  absl::optional<SearchResult> found_;     // by the last search here
  std::vector<NamedStrategy> strategies_;  // those that say most first
  int64_t micro_batches_ = 1;
  StageOwners owners_;
  absl::optional<SearchMode> search_;
  absl::optional<Strategy> dataset_;
  absl::flat_hash_map<std::string, int64_t> fusion_;  // of parameters: comm_fusion
  absl::flat_hash_map<std::string, Sharded> sharded_;
};

}  // namespace mslua
