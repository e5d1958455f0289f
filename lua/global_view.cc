#include "lua/global_view.h"

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
#include "core/passes/run_passes.h"
#include "core/sharding/partition.h"
#include "core/sharding/pipeline.h"
#include "core/sharding/search/plan_report.h"
#include "core/sharding/strategy_file.h"
#include "core/train/agreement.h"
#include "lua/aggregation.h"
#include "lua/calibrate.h"
#include "lua/compile_graph.h"
#include "lua/object.h"
#include "lua/search_cache.h"

namespace mslua {

template <>
struct KindName<std::unique_ptr<GlobalView>> {
  static constexpr const char* value = "GlobalView";
};

namespace {

const char kRegistryKey = 0;  // its address is the key

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
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.attrs.Has("_origin"); });
}

// "dynamic_programming: 14 operators: 0.123 ms a step predicted, 0.1 ms of it arithmetic, optimal; found in 3 ms"
std::string Summary(const SearchResult& r, SearchMode mode) {
  const std::string gap = r.exact ? "optimal" : absl::StrFormat("at most %.1f%% above the least", r.gap * 100);
  return absl::StrFormat("%s: %d operators: %.4g ms a step predicted, %.4g ms of it arithmetic, %s; found in %.0f ms",
                         Name(mode), r.nodes, r.seconds * 1e3, r.compute_seconds * 1e3, gap, r.search_seconds * 1e3);
}

}  // namespace

GlobalView* GlobalView::Of(Session& session) {
  lua_State* L = session.lua();
  const StackGuard guard(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kRegistryKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  const auto* view = ToObject<std::unique_ptr<GlobalView>>(L, -1);
  return view == nullptr ? nullptr : view->get();
}

// All ranks plan for the cluster that rank 0 knows.
StatusOr<std::unique_ptr<GlobalView>> GlobalView::Make(Session& session, int64_t stages) {
  const int64_t ranks = session.options().ranks;
  if (stages < 1 || ranks % stages != 0)
    return absl::InvalidArgumentError(absl::StrCat("pipeline_stages = ", stages, " does not divide ", ranks, " ranks"));
  const int64_t of_stage = ranks / stages;
  ASSIGN_OR_RETURN(Mesh mesh, Mesh::Of(of_stage, session.options().rank / of_stage * of_stage));
  const std::string* file = nullptr;
  for (const auto& [name, value] : session.options().flags) {
    if (name == "cluster") file = std::get_if<std::string>(&value);
  }
  const std::string source = file != nullptr                                  ? *file
                             : std::filesystem::exists(MeasuredClusterFile()) ? "measured"
                                                                              : "default";
  ASSIGN_OR_RETURN(const std::string text, TextOfFirstRank(
                                               session.groups(),
                                               [&]() -> StatusOr<std::string> {
                                                 if (source == "default") return std::string("{}");
                                                 return ReadFile(file != nullptr ? *file : MeasuredClusterFile(),
                                                                 1 << 20);
                                               },
                                               "strategy search"));
  auto cluster = ParseCluster(text, mesh);
  RETURN_IF_ERROR(Annotate(cluster.status(), source));
  return std::unique_ptr<GlobalView>(new GlobalView(std::move(mesh), *std::move(cluster), source));
}

StatusOr<GlobalView*> GlobalView::Read(lua_State* L, Session& session, int index) {
  const StackGuard guard(L);
  lua_getfield(L, index, "shard");
  if (lua_isnil(L, -1)) return nullptr;
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(CheckFields(
      L, at, "shard",
      {"stages", "feeds", "dataset", "search", "memory_bytes", "load_file", "save_file", "optimizer_bytes",
       "optimizer_level", "strategies", "bucket_bytes", "segments", "scatter_bytes", "gather_bytes", "fp32_sync"}));
  ASSIGN_OR_RETURN(const int64_t stages, FieldInt(L, at, "stages", 1));
  ASSIGN_OR_RETURN(const int64_t feeds, FieldInt(L, at, "feeds", 1));
  ASSIGN_OR_RETURN(const std::string search, FieldString(L, at, "search", ""));
  ASSIGN_OR_RETURN(const int64_t memory_bytes, FieldInt(L, at, "memory_bytes", 0));
  ASSIGN_OR_RETURN(std::string load_file, FieldString(L, at, "load_file", ""));
  ASSIGN_OR_RETURN(std::string save_file, FieldString(L, at, "save_file", ""));
  ASSIGN_OR_RETURN(const int64_t optimizer_bytes, FieldInt(L, at, "optimizer_bytes", -1));
  ASSIGN_OR_RETURN(const int64_t optimizer_level, FieldInt(L, at, "optimizer_level", 1));
  ASSIGN_OR_RETURN(const bool fp32_sync, FieldBool(L, at, "fp32_sync", true));
  ASSIGN_OR_RETURN(const std::string dataset, FieldString(L, at, "dataset", ""));
  ASSIGN_OR_RETURN(const BucketRule buckets, ReadBucketRule(L, at, "shard"));
  if (Of(session) == nullptr) {
    ASSIGN_OR_RETURN(std::unique_ptr<GlobalView> view, Make(session, stages));
    view->stages_ = static_cast<int>(stages);
    NewKind<std::unique_ptr<GlobalView>>(L);
    lua_pop(L, 1);
    lua_pushlightuserdata(L, const_cast<char*>(&kRegistryKey));
    PushObject<std::unique_ptr<GlobalView>>(L, std::move(view));
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  GlobalView* const view = Of(session);
  if (view->stages_ != stages)
    return absl::FailedPreconditionError(absl::StrCat("pipeline_stages was ", view->stages_, " for an earlier graph"));
  view->feeds_ = feeds;
  view->search_.reset();
  if (!search.empty()) {
    ASSIGN_OR_RETURN(view->search_, ParseSearchMode(search));
  }
  if (memory_bytes > 0) view->cluster_.memory_bytes = memory_bytes;
  view->load_file_ = std::move(load_file);
  view->save_file_ = std::move(save_file);
  view->optimizer_bytes_ = optimizer_bytes;
  view->optimizer_level_ = optimizer_level;
  view->fp32_sync_ = fp32_sync;
  view->buckets_ = buckets;
  ASSIGN_OR_RETURN(view->scatter_bytes_, FieldInt(L, at, "scatter_bytes", -1));
  ASSIGN_OR_RETURN(view->gather_bytes_, FieldInt(L, at, "gather_bytes", -1));
  view->dataset_.reset();
  if (!dataset.empty()) {
    ASSIGN_OR_RETURN(view->dataset_, ParseStrategy(dataset));
  }
  std::vector<NamedStrategy> named;
  lua_getfield(L, at, "strategies");
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(std::string name, FieldString(L, -1, "name", ""));
    ASSIGN_OR_RETURN(std::string text, FieldString(L, -1, "strategy", ""));
    named.push_back({std::move(name), std::move(text)});
    lua_pop(L, 1);
  }
  std::stable_sort(named.begin(), named.end(), [](const NamedStrategy& a, const NamedStrategy& b) {
    return Letters(a.pattern) > Letters(b.pattern);
  });
  if (view->strategies_.empty()) view->strategies_ = std::move(named);
  return view;
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
      if (n.attrs.Has(kUserStrategy)) continue;
      ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(s.text));
      if (!IsTraining(*graph)) FitTo(*graph, n.inputs, &parts);
      n.attrs.Set(kUserStrategy, ToString(parts));
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

StatusOr<Graph> GlobalView::OfStage(const Session& session, const Graph& graph, const StageTrace& trace) {
  ASSIGN_OR_RETURN(const std::vector<int> stages, SettleStages(graph, trace));
  micro_batches_ = trace.blocks.back().micro + 1;
  std::vector<int64_t> column;  // this rank and those at its place in the other stages
  for (int64_t r = session.options().rank % mesh().ranks(); r < session.options().ranks; r += mesh().ranks())
    column.push_back(r);
  return StageProgram(graph, trace, stages, stage(), column);
}

TensorType GlobalView::Whole(TensorType feed) const {
  if (feed.rank() > 0) feed.shape[0] *= feeds_;
  return feed;
}

Status GlobalView::PlaceColumns(GraphBuilder& g, absl::Span<const std::string> names,
                                std::vector<Value>* columns) const {
  if (!dataset_) return absl::OkStatus();
  if (dataset_->size() != columns->size())
    return absl::InvalidArgumentError(absl::StrCat("dataset_strategy has ", dataset_->size(),
                                                   " entries, the dataset has ", columns->size(), " columns"));
  for (size_t i = 0; i < columns->size(); ++i) {
    const std::vector<int64_t>& parts = (*dataset_)[i];
    RETURN_IF_ERROR(CheckParts(resharder_.mesh(), "dataset_strategy", absl::StrCat("column '", names[i], "'"),
                               g.TypeOf((*columns)[i]), parts));
    (*columns)[i] = CutAs(g, (*columns)[i], parts);
  }
  return g.status();
}

void GlobalView::Fuse(Graph* graph) const {
  // By operator and group, in the order of their first nodes: that is the same on all ranks, which the members of a
  // group are not.
  std::map<std::pair<std::string, std::vector<int64_t>>, size_t> known;
  std::vector<std::vector<Node*>> kinds;
  for (Node& n : graph->nodes) {
    if (!n.attrs.Has(kGradientOf)) continue;
    const size_t kind = known.emplace(std::make_pair(n.op->name, n.attrs.Ints("group")), kinds.size()).first->second;
    if (kind == kinds.size()) kinds.emplace_back();
    kinds[kind].push_back(&n);
  }
  int64_t next = kFirstBucket;
  for (std::vector<Node*>& nodes : kinds) {
    const std::string& kind = nodes[0]->op->name;
    BucketRule rule = buckets_;
    if (kind != "all_reduce") rule.segments.clear();
    if (kind == "reduce_scatter") rule.bytes = scatter_bytes_;
    if (kind == "all_gather") rule.bytes = gather_bytes_;
    if (rule.bytes < 0) continue;
    // In the order in which the step makes what travels.
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const Node* a, const Node* b) { return a->inputs[0].node < b->inputs[0].node; });
    std::vector<BucketMember> members;
    for (const Node* n : nodes) {
      const auto fusion = fusion_.find(n->attrs.Str(kGradientOf));
      const TensorType& type = kind == "all_gather" ? n->outputs[0] : graph->TypeOf(n->inputs[0]);
      members.push_back({type.dtype, type.bytes(), fusion == fusion_.end() ? 1 : fusion->second});
    }
    const std::vector<int64_t> buckets = AssignBuckets(rule, members);
    for (size_t k = 0; k < nodes.size(); ++k) nodes[k]->attrs.Set("fusion", next + buckets[k]);
    next += 1 + *std::max_element(buckets.begin(), buckets.end());
  }
  for (Node& n : graph->nodes) n.attrs.Erase(kGradientOf);
}

StatusOr<Graph> GlobalView::Cut(Session& session, const Graph& graph, bool feeds,
                                const std::vector<std::shared_ptr<ParameterData>>& parameters) {
  PropagateOptions options;
  if (optimizer_bytes_ >= 0) {
    options.optimizer_shards.emplace();
    options.optimizer_shards->bytes = optimizer_bytes_;
    options.optimizer_shards->sums = optimizer_level_ >= 2;
    options.optimizer_shards->parameters = optimizer_level_ >= 3;
  }
  for (const auto& p : parameters) {
    fusion_[p->key] = p->comm_fusion;
    if (!p->parallel_optimizer && options.optimizer_shards) options.optimizer_shards->except.insert(p->key);
  }
  options.as_data = dataset_.has_value();
  for (const auto& [key, part] : parts_) options.fixed.emplace(key, part.layout);
  const Mesh& mesh = resharder_.mesh();
  options.data_layout = [&mesh, feeds](const std::string& name, const TensorType& type) -> StatusOr<Layout> {
    return feeds || IsMessage(name) ? BatchLayout(mesh, type) : Layout(static_cast<int>(type.rank()));
  };
  ASSIGN_OR_RETURN(options.chosen, Choose(session, graph, options));
  ASSIGN_OR_RETURN(const ShardPlan plan, Propagate(graph, resharder_, options));
  RETURN_IF_ERROR(Save(session, graph, plan));
  RETURN_IF_ERROR(SaveGraph(Annotated(graph, plan, mesh), "strategy", OptionsOf(session)));
  RETURN_IF_ERROR(Remember(session, graph, plan));
  if (session.options().verb == "plan" && IsTraining(graph)) planned_ = Planned{graph, plan, options, search_, found_};
  ASSIGN_OR_RETURN(Graph part, Partition(graph, plan, resharder_, session.options().rank));
  PlaceMessages(&part);
  Fuse(&part);
  return part;
}

StatusOr<std::vector<absl::optional<Sharding>>> GlobalView::Choose(Session& session, const Graph& graph,
                                                                   const PropagateOptions& options) {
  const Mesh& mesh = resharder_.mesh();
  found_.reset();
  if (!load_file_.empty() && IsTraining(graph)) return LoadStrategy(load_file_, graph, mesh);
  if (!search_) return std::vector<absl::optional<Sharding>>();
  // The ranks of a stage search for themselves, each the same: stages have nothing in common.
  if (session.groups() == nullptr || stages_ > 1) return SearchHere(session, graph, options);
  ASSIGN_OR_RETURN(const std::string text, TextOfFirstRank(
                                               session.groups(),
                                               [&]() -> StatusOr<std::string> {
                                                 ASSIGN_OR_RETURN(const auto chosen,
                                                                  SearchHere(session, graph, options));
                                                 return StrategyText(graph, mesh, chosen);
                                               },
                                               "strategy search"));
  return ParseStrategyText(text, "of rank 0", graph, mesh);
}

StatusOr<std::vector<absl::optional<Sharding>>> GlobalView::SearchHere(Session& session, const Graph& graph,
                                                                       const PropagateOptions& options) {
  SearchOptions search;
  search.mode = *search_;
  search.propagate = options;
  search.cluster = cluster_;
  const bool plan = session.options().verb == "plan", first = stages_ == 1 || session.options().rank == mesh().first();
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

Status GlobalView::Save(const Session& session, const Graph& graph, const ShardPlan& plan) const {
  if (save_file_.empty() || session.options().rank != 0 || !IsTraining(graph)) return absl::OkStatus();
  return SaveStrategy(save_file_, graph, resharder_.mesh(), {plan.shardings.begin(), plan.shardings.end()});
}

Status GlobalView::Remember(const Session& session, const Graph& graph, const ShardPlan& plan) {
  const Mesh& mesh = resharder_.mesh();
  const int64_t rank = session.options().rank;
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    const std::string& kind = n.attrs.Str("kind");
    if (kind != kParameter && kind != kState) continue;
    Part part;
    part.layout = plan.Output({i, 0});
    part.whole = n.outputs[0];
    part.local = {part.whole.dtype, part.layout.Local(mesh, part.whole.shape)};
    part.begin = part.layout.Begin(mesh, part.whole.shape, rank);
    AxisList copies;
    for (int a = 0; a < mesh.axes(); ++a) {
      if (part.layout.UseOf(a) == Layout::Use::kReplicated) copies.push_back(static_cast<int8_t>(a));
    }
    part.first = mesh.Index(rank, copies) == 0;
    parts_.emplace(n.attrs.Str("name"), std::move(part));
  }
  return absl::OkStatus();
}

const GlobalView::Part* GlobalView::Find(const std::string& key) const {
  const auto found = parts_.find(key);
  return found == parts_.end() ? nullptr : &found->second;
}

}  // namespace mslua
