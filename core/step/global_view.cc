#include "core/step/global_view.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "collectives/groups.h"
#include "core/base/input_file.h"
#include "core/op/marks.h"
#include "core/passes/run_passes.h"
#include "core/sharding/partition.h"
#include "core/sharding/pipeline.h"
#include "core/sharding/search/plan_report.h"
#include "core/sharding/strategy_file.h"
#include "core/step/aggregation.h"
#include "core/step/search_cache.h"
#include "core/train/agreement.h"

namespace mslua {

namespace {

// Whether `pattern`, in which `*` is any text, is `name`.
bool Fits(absl::string_view pattern, absl::string_view name) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (!absl::ConsumePrefix(&name, pattern.substr(0, star))) return false;
  for (size_t skip = 0; skip <= name.size(); ++skip) {
    if (Fits(pattern.substr(star + 1), name.substr(skip))) return true;
  }
  return false;
}

// How much a pattern says: its letters besides `*`; a name without one says all.
size_t Letters(absl::string_view pattern) {
  const auto stars = static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '*'));
  return stars == 0 ? std::numeric_limits<size_t>::max() : pattern.size() - stars;
}

// The name of an operator of the graph that has one.
std::string ExampleName(const Graph& graph) {
  for (const Node& n : graph.nodes) {
    if (n.location && !n.location->scope.empty() && !n.op->class_name.empty())
      return absl::StrCat("'", n.location->scope, "/", n.op->class_name, "'");
  }
  return "'Net/fc1/MatMul'";
}

bool IsTraining(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return mark::kOrigin.Has(n.attrs); });
}

}  // namespace

std::string GapText(const SearchResult& found, SearchMode mode) {
  return found.exact && mode != SearchMode::kShardingPropagation
             ? "optimal"
             : absl::StrFormat("at most %.1f %% above the least", found.gap * 100);
}

namespace {

// "dynamic_programming: 14 operators: 0.123 ms a step predicted, 0.1 ms of it arithmetic, optimal; found in 3 ms"
std::string Summary(const SearchResult& r, SearchMode mode) {
  return absl::StrFormat("%s: %d operators: %.4g ms a step predicted, %.4g ms of it arithmetic, %s; found in %.0f ms",
                         Name(mode), r.nodes, r.seconds * 1e3, r.compute_seconds * 1e3, GapText(r, mode),
                         r.search_seconds * 1e3);
}

}  // namespace

StatusOr<std::unique_ptr<GlobalView>> GlobalView::Make(const Place& place, int64_t stages) {
  if (stages < 1 || place.ranks % stages != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline_stages = ", stages, " does not divide ", place.ranks, " ranks"));
  }
  const int64_t of_stage = place.ranks / stages;
  ASSIGN_OR_RETURN(Mesh mesh, Mesh::Of(of_stage, place.rank / of_stage * of_stage));
  if (place.cluster_file && place.cluster_file->empty())
    return absl::InvalidArgumentError("--cluster: expected the name of a JSON file, got \"\"");
  const bool of_device = !place.cluster_file && !place.device.empty();
  const std::string source = place.cluster_file                               ? *place.cluster_file
                             : of_device                                      ? place.device
                             : std::filesystem::exists(MeasuredClusterFile()) ? "measured"
                                                                              : "default";
  const auto read = [&]() -> StatusOr<std::string> {
    if (of_device) return DeviceFiguresText(place.device);
    if (!place.cluster_file && source == "default") return std::string("{}");
    return ReadFile(place.cluster_file.value_or(MeasuredClusterFile()), 1 << 20);
  };
  ASSIGN_OR_RETURN(const std::string text, TextOfFirstRank(place.groups, read, "strategy search"));
  auto cluster = ParseCluster(text, mesh);
  RETURN_IF_ERROR(Annotate(cluster.status(), source));
  return std::unique_ptr<GlobalView>(new GlobalView(place, std::move(mesh), *std::move(cluster), source));
}

Status GlobalView::Configure(const Place& place, const ShardOptions& options, const PassOptions& dumps,
                             std::unique_ptr<GlobalView>* made) {
  if (*made != nullptr && (*made)->stages() != options.stages) {
    return absl::FailedPreconditionError(
        absl::StrCat("pipeline_stages was ", (*made)->stages(), " for an earlier graph"));
  }
  if (*made == nullptr) {
    ASSIGN_OR_RETURN(*made, Make(place, options.stages));
  }
  GlobalView& view = **made;
  view.options_ = options;
  view.dumps_ = dumps;
  view.search_.reset();
  if (!options.search.empty()) {
    ASSIGN_OR_RETURN(view.search_, ParseSearchMode(options.search));
  }
  view.cluster_.memory_bytes = options.memory_bytes > 0 ? options.memory_bytes : view.cluster_memory_bytes_;
  view.dataset_.reset();
  if (!options.dataset.empty()) {
    ASSIGN_OR_RETURN(view.dataset_, ParseStrategy(options.dataset));
  }
  view.strategies_.clear();
  for (const ShardOptions::NamedStrategy& s : options.strategies) view.strategies_.push_back({s.name, s.strategy});
  std::stable_sort(
      view.strategies_.begin(), view.strategies_.end(),
      [](const NamedStrategy& a, const NamedStrategy& b) { return Letters(a.pattern) > Letters(b.pattern); });
  return absl::OkStatus();
}

std::string GlobalView::StrategyOf(absl::string_view name, int line) {
  const NamedStrategy* found = nullptr;
  for (NamedStrategy& s : strategies_) {
    if (!Fits(s.pattern, name) && !Fits(s.pattern, absl::StrCat(name, ":", line))) continue;
    s.used = true;
    if (found == nullptr) found = &s;
  }
  return found == nullptr ? "" : found->text;
}

Status GlobalView::PinNamed(Graph* graph) {
  if (std::all_of(strategies_.begin(), strategies_.end(), [](const NamedStrategy& s) { return s.used; }))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const ForwardGraph forward, ForwardOf(*graph));
  for (NamedStrategy& s : strategies_) {
    if (s.used) continue;
    for (int32_t i : forward.nodes) {
      Node& n = graph->nodes[i];
      const std::string place = PlaceOf(n);
      const bool fits = Fits(s.pattern, place) || Fits(s.pattern, place.substr(0, place.rfind(':')));
      if (!fits || n.inputs.empty()) continue;
      s.of_nodes = true;
      if (mark::kUserStrategy.Has(n.attrs)) continue;
      ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(s.text));
      if (!IsTraining(*graph)) FitTo(*graph, n.inputs, &parts);
      mark::kUserStrategy.Set(n.attrs, ToString(parts));
    }
    if (!s.of_nodes && IsTraining(*graph))
      return absl::InvalidArgumentError(absl::StrCat("parallel: strategy: no operator is named '", s.pattern,
                                                     "' (names are cells and operator, such as ", ExampleName(*graph),
                                                     ")"));
  }
  return absl::OkStatus();
}

int GlobalView::OwnerOf(const std::string& key) const {
  const auto owner = owners_.find(key);
  return owner == owners_.end() ? kNoStage : owner->second;
}

StatusOr<std::vector<int>> GlobalView::SettleStages(const Graph& graph, const StageTrace& trace) {
  ASSIGN_OR_RETURN(std::vector<int> stages, StagesOf(graph, trace, owners_));
  for (const auto& [name, stage] : OwnersOf(graph, stages)) owners_.emplace(name, stage);
  return stages;
}

StatusOr<Graph> GlobalView::OfStage(const Graph& graph, const StageTrace& trace) {
  ASSIGN_OR_RETURN(const std::vector<int> stages, SettleStages(graph, trace));
  micro_batches_ = trace.blocks.back().micro + 1;
  std::vector<int64_t> column;  // this rank and those at its place in the other stages
  for (int64_t r = place_.rank % mesh().ranks(); r < place_.ranks; r += mesh().ranks()) column.push_back(r);
  return StageProgram(graph, trace, stages, stage(), column);
}

TensorType GlobalView::Whole(TensorType feed) const {
  if (feed.rank() > 0) feed.shape[0] *= options_.feeds;
  return feed;
}

Status GlobalView::PlaceColumns(GraphBuilder& g, absl::Span<const std::string> names,
                                std::vector<Value>* columns) const {
  if (!dataset_) return absl::OkStatus();
  if (dataset_->size() != columns->size())
    return absl::InvalidArgumentError(
        absl::StrCat("parallel: dataset_strategy: expected one list of shards for each of the dataset's columns, ",
                     columns->size(), ", got ", dataset_->size()));
  for (size_t i = 0; i < columns->size(); ++i) {
    const std::vector<int64_t>& parts = (*dataset_)[i];
    RETURN_IF_ERROR(CheckParts(resharder_.mesh(), "parallel: dataset_strategy", absl::StrCat("column '", names[i], "'"),
                               g.TypeOf((*columns)[i]), parts));
    (*columns)[i] = ShardAs(g, (*columns)[i], parts);
  }
  return g.status();
}

void GlobalView::Fuse(Graph* graph) const {
  // By operator and group, in the order of their first nodes: that is the same on all ranks, which the members of a
  // group are not.
  std::map<std::pair<std::string, std::vector<int64_t>>, size_t> known;
  std::vector<std::vector<Node*>> kinds;
  for (Node& n : graph->nodes) {
    if (!mark::kGradientOf.Has(n.attrs)) continue;
    const size_t kind = known.emplace(std::make_pair(n.op->name, n.attrs.Ints("group")), kinds.size()).first->second;
    if (kind == kinds.size()) kinds.emplace_back();
    kinds[kind].push_back(&n);
  }
  int64_t next = kFirstBucket;
  for (std::vector<Node*>& nodes : kinds) {
    const std::string& kind = nodes[0]->op->name;
    BucketRule rule = options_.buckets;
    if (kind != "all_reduce") rule.segments.clear();
    if (kind == "reduce_scatter") rule.bytes = options_.scatter_bytes;
    if (kind == "all_gather") rule.bytes = options_.gather_bytes;
    if (rule.bytes < 0) continue;
    // In the order in which the step makes what travels.
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const Node* a, const Node* b) { return a->inputs[0].node < b->inputs[0].node; });
    std::vector<BucketMember> members;
    for (const Node* n : nodes) {
      const auto fusion = fusion_.find(mark::kGradientOf.Get(n->attrs));
      const TensorType& type = kind == "all_gather" ? n->outputs[0] : graph->TypeOf(n->inputs[0]);
      members.push_back({type.dtype, type.bytes(), fusion == fusion_.end() ? 1 : fusion->second});
    }
    const std::vector<int64_t> buckets = AssignBuckets(rule, members);
    for (size_t k = 0; k < nodes.size(); ++k) nodes[k]->attrs.Set("fusion", next + buckets[k]);
    next += 1 + *std::max_element(buckets.begin(), buckets.end());
  }
  for (Node& n : graph->nodes) mark::kGradientOf.Erase(n.attrs);
}

StatusOr<Graph> GlobalView::OfRank(const Graph& graph, bool feeds,
                                   const std::vector<std::shared_ptr<ParameterData>>& parameters) {
  PropagateOptions options;
  if (options_.optimizer_bytes >= 0) {
    options.optimizer_shards.emplace();
    options.optimizer_shards->bytes = options_.optimizer_bytes;
    options.optimizer_shards->sums = options_.optimizer_level >= 2;
    options.optimizer_shards->parameters = options_.optimizer_level >= 3;
  }
  for (const auto& p : parameters) {
    fusion_[p->key] = p->comm_fusion;
    if (!p->parallel_optimizer && options.optimizer_shards) options.optimizer_shards->except.insert(p->key);
  }
  options.as_data = dataset_.has_value();
  for (const auto& [key, sharded] : sharded_) options.fixed.emplace(key, sharded.layout);
  const Mesh& mesh = resharder_.mesh();
  options.data_layout = [&mesh, feeds](const std::string& name, const TensorType& type) -> StatusOr<Layout> {
    return feeds || IsMessage(name) ? BatchLayout(mesh, type) : Layout(static_cast<int>(type.rank()));
  };
  ASSIGN_OR_RETURN(options.chosen, Choose(graph, options));
  ASSIGN_OR_RETURN(const ShardPlan plan, Propagate(graph, resharder_, options));
  RETURN_IF_ERROR(Save(graph, plan));
  RETURN_IF_ERROR(SaveGraph(Annotated(graph, plan, mesh), "strategy", dumps_));
  RETURN_IF_ERROR(Remember(graph, plan));
  if (place_.planning && IsTraining(graph)) planned_ = Planned{graph, plan, options, search_, found_};
  ASSIGN_OR_RETURN(Graph part, Partition(graph, plan, resharder_, place_.rank));
  PlaceMessages(&part);
  Fuse(&part);
  return part;
}

StatusOr<std::vector<absl::optional<Sharding>>> GlobalView::Choose(const Graph& graph,
                                                                   const PropagateOptions& options) {
  const Mesh& mesh = resharder_.mesh();
  found_.reset();
  if (!options_.load_file.empty() && IsTraining(graph)) {
    auto loaded = LoadStrategy(options_.load_file, graph, mesh);
    RETURN_IF_ERROR(Annotate(loaded.status(), "parallel: strategy_ckpt_load_file"));
    return loaded;
  }
  if (!search_) return std::vector<absl::optional<Sharding>>();
  // The ranks of a stage search for themselves, each the same: stages have nothing in common.
  if (place_.groups == nullptr || stages() > 1) return SearchHere(graph, options);
  ASSIGN_OR_RETURN(const std::string text, TextOfFirstRank(
                                               place_.groups,
                                               [&]() -> StatusOr<std::string> {
                                                 ASSIGN_OR_RETURN(const auto chosen, SearchHere(graph, options));
                                                 return StrategyText(graph, mesh, chosen);
                                               },
                                               "strategy search"));
  return ParseStrategyText(text, "of rank 0", graph, mesh);
}

StatusOr<std::vector<absl::optional<Sharding>>> GlobalView::SearchHere(const Graph& graph,
                                                                       const PropagateOptions& options) {
  SearchOptions search;
  search.mode = *search_;
  search.propagate = options;
  search.cluster = cluster_;
  const bool plan = place_.planning, first = stages() == 1 || place_.rank == mesh().first();
  const bool tells = !plan && IsTraining(graph) && first;
  ASSIGN_OR_RETURN(const std::string key, SearchKey(graph, mesh(), search));
  if (!plan) {  // which reports a search
    if (auto known = FindSearched(key, graph, mesh())) {
      if (tells) std::fprintf(stderr, "mslua: %s: the strategy is from the plan cache\n", Name(search.mode));
      return *std::move(known);
    }
  }
  ASSIGN_OR_RETURN(SearchResult result, Search(graph, mesh(), search));
  const Status kept = first ? KeepSearched(key, graph, mesh(), result.chosen) : absl::OkStatus();
  if (tells)
    std::fprintf(stderr, "mslua: %s%s\n", Summary(result, search.mode).c_str(),
                 kept.ok() ? "" : absl::StrCat("; not kept: ", std::string(kept.message())).c_str());
  found_ = result;
  return std::move(result.chosen);
}

Status GlobalView::Save(const Graph& graph, const ShardPlan& plan) const {
  if (options_.save_file.empty() || !IsTraining(graph)) return absl::OkStatus();
  return Annotate(
      SaveStrategy(options_.save_file, graph, resharder_.mesh(), {plan.shardings.begin(), plan.shardings.end()}),
      "parallel: strategy_ckpt_save_file");
}

Status GlobalView::Remember(const Graph& graph, const ShardPlan& plan) {
  const Mesh& mesh = resharder_.mesh();
  const int64_t rank = place_.rank;
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    const std::string& kind = n.attrs.Str("kind");
    if (kind != kParameter && kind != kState) continue;
    Sharded sharded;
    const Layout& layout = sharded.layout = plan.Output({i, 0});
    const Shape& whole = n.outputs[0].shape;
    sharded.dtype = n.outputs[0].dtype;
    sharded.part = {whole, layout.Begin(mesh, whole, rank), layout.Local(mesh, whole)};
    AxisList copies;
    for (int a = 0; a < mesh.axes(); ++a) {
      if (layout.UseOf(a) == Layout::Use::kReplicated) copies.push_back(static_cast<int8_t>(a));
    }
    sharded.first = mesh.Index(rank, copies) == 0;
    sharded_.emplace(n.attrs.Str("name"), std::move(sharded));
  }
  return absl::OkStatus();
}

const GlobalView::Sharded* GlobalView::Find(const std::string& key) const {
  const auto found = sharded_.find(key);
  return found == sharded_.end() ? nullptr : &found->second;
}

}  // namespace mslua
