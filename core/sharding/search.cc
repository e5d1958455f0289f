#include "core/sharding/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/sharding/assignment.h"

namespace mslua {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
// Entries of all tables of one elimination, in proportion to those of the largest.
constexpr double kTotalEntries = 10;
// What each of the coarser meshes may take.
constexpr double kSeedEntries = 2e7;
constexpr size_t kMaxCandidates = 1024;
constexpr int kMaxSweeps = 3;
constexpr int kMaxAxesOfSeed = 3;
constexpr int kBisections = 16;

using Groups = std::vector<AxisList>;

// Shardings whose factors take whole groups of axes, in order.
std::vector<Sharding> GroupedCandidates(const Mesh& mesh, const NodeRule& rule, const Groups& groups) {
  std::vector<Sharding> done{Sharding(rule)};
  for (const AxisList& group : groups) {
    const size_t count = done.size();
    for (size_t i = 0; i < count; ++i) {
      for (size_t f = 0; f < rule.rule.factors.size(); ++f) {
        if (!CanCut(rule, static_cast<int>(f), mesh.Size(done[i].factors[f]) * mesh.Size(group))) continue;
        Sharding wider = done[i];
        wider.factors[f].insert(wider.factors[f].end(), group.begin(), group.end());
        done.push_back(std::move(wider));
      }
    }
  }
  return done;
}

Groups SingleAxes(const Mesh& mesh) {
  Groups groups;
  for (int a = 0; a < mesh.axes(); ++a) groups.push_back({static_cast<int8_t>(a)});
  return groups;
}

int64_t PartsOf(const Mesh& mesh, const Sharding& s) {
  int64_t parts = 1;
  for (const AxisList& axes : s.factors) parts *= mesh.Size(axes);
  return parts;
}

void RemoveAxis(Sharding* s, int8_t axis) {
  for (AxisList& axes : s->factors) axes.erase(std::remove(axes.begin(), axes.end(), axis), axes.end());
}

bool Contains(const std::vector<Sharding>& all, const Sharding& s) {
  return std::find(all.begin(), all.end(), s) != all.end();
}

std::string KeyOf(const Sharding& s) {
  std::string key;
  for (const AxisList& axes : s.factors) absl::StrAppend(&key, AxisNames(axes), ";");
  return key;
}

class StrategySearch {
 public:
  StrategySearch(const Graph& graph, const Mesh& mesh, const SearchOptions& options)
      : graph_(graph), mesh_(mesh), options_(options), resharder_(mesh, options.cluster.links) {}

  StatusOr<SearchResult> Run() {
    const auto start = std::chrono::steady_clock::now();
    PropagateOptions propagate = options_.propagate;
    propagate.chosen.clear();
    ASSIGN_OR_RETURN(const ShardPlan plan, Propagate(graph_, resharder_, propagate));
    ASSIGN_OR_RETURN(forward_, ForwardOf(graph_));
    model_ = std::make_unique<CostModel>(graph_, forward_, options_.cluster, resharder_);
    solver_ = std::make_unique<AssignmentSolver>(graph_, forward_, *model_);
    default_ = plan.shardings;
    ASSIGN_OR_RETURN(default_cost_, CostOf(default_));
    RETURN_IF_ERROR(FindFixed());
    ASSIGN_OR_RETURN(Found found, WithinMemory());
    ASSIGN_OR_RETURN(SearchResult result, Report(found));
    result.search_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  struct Found {
    std::vector<Sharding> shardings;
    int64_t value = kNone;
    int64_t bound = 0;  // of the value; meaningful when exact
    bool exact = false;
  };

  bool Propagates() const { return options_.mode == SearchMode::kShardingPropagation; }

  StatusOr<Cost> CostOf(const std::vector<Sharding>& shardings) const {
    ASSIGN_OR_RETURN(const CostReport report, Evaluate(graph_, forward_, *model_, shardings));
    return report.total;
  }

  // The shardings that nodes with a user's strategy, and inputs that lie as they are given, may have.
  Status FindFixed() {
    fixed_.resize(graph_.nodes.size());
    for (int32_t i : forward_.nodes) {
      const Node& n = graph_.nodes[i];
      if (n.op->name == "input") {
        const std::string& kind = n.attrs.Str("kind");
        if (kind == kData || kind == kScalar || options_.propagate.fixed.count(n.attrs.Str("name")) > 0)
          fixed_[i] = {default_[i]};
        continue;
      }
      const AttrValue* strategy = n.attrs.Find(kUserStrategy);
      if (strategy == nullptr) continue;
      ASSIGN_OR_RETURN(const Strategy parsed, ParseStrategy(std::get<std::string>(*strategy)));
      ASSIGN_OR_RETURN(const std::vector<int64_t> parts, FactorParts(mesh_, graph_, n, forward_.rules[i], parsed));
      fixed_[i] = Assignments(mesh_, parts);
      if (!Contains(fixed_[i], default_[i])) fixed_[i].push_back(default_[i]);
    }
    return absl::OkStatus();
  }

  Weights TimeWeights(double memory_weight = 0) const {
    Weights weights;
    weights.memory_weight = memory_weight;
    if (!Propagates()) return weights;
    weights.time_weight = 0;
    weights.relayout_weight = int64_t{1} << 26;
    // All that is moved and kept is less than one byte of relayout; exactly so where it is below 2^24 bytes.
    const double scale =
        std::min(1.0, std::exp2(24) / static_cast<double>(1 + default_cost_.bytes + default_cost_.memory));
    weights.byte_weight = scale;
    weights.memory_weight += scale;
    return weights;
  }

  // The fastest plan of at most the memory that there is. Lagrange's multiplier makes memory a cost; any multiplier
  // gives a bound, and the largest of them is reported.
  StatusOr<Found> WithinMemory() {
    const int64_t limit = options_.cluster.memory_bytes;
    ASSIGN_OR_RETURN(Found best, Minimise(TimeWeights()));
    if (limit == 0) return best;
    ASSIGN_OR_RETURN(const Cost cost, CostOf(best.shardings));
    if (cost.memory <= limit) return best;
    Weights memory_only;
    memory_only.time_weight = 0;
    memory_only.memory_weight = 1;
    ASSIGN_OR_RETURN(best, Minimise(memory_only));
    ASSIGN_OR_RETURN(const Cost least, CostOf(best.shardings));
    if (least.memory > limit)
      return absl::ResourceExhaustedError(absl::StrCat("a step needs ", least.memory, " bytes on each of ",
                                                       mesh_.ranks(), " devices, which have ", limit,
                                                       " (use more devices, or a smaller batch)"));
    return Bisect(std::move(best), least.picoseconds, limit);
  }

  StatusOr<Found> Bisect(Found best, int64_t value, int64_t limit) {
    best.value = value;
    double low = 0, high = 1e-6;
    int64_t bound = 0;
    bool exact = true, found = false;
    for (int step = 0; step < kBisections; ++step) {
      const double weight = found ? (low + high) / 2 : high;
      ASSIGN_OR_RETURN(Found now, Minimise(TimeWeights(weight)));
      ASSIGN_OR_RETURN(const Cost cost, CostOf(now.shardings));
      exact &= now.exact;
      bound = std::max(bound, now.bound - static_cast<int64_t>(std::ceil(weight * static_cast<double>(limit))));
      if (cost.memory > limit) {
        low = weight;
        if (!found) high *= 32;
        continue;
      }
      high = weight;
      found = true;
      now.value = cost.picoseconds;
      if (now.value < best.value) best = std::move(now);
    }
    best.bound = exact ? bound : 0;
    best.exact = exact;
    return best;
  }

  StatusOr<Found> Minimise(const Weights& weights) {
    if (options_.mode != SearchMode::kRecursiveProgramming) {
      auto exact = Grouped(SingleAxes(mesh_), weights, options_.max_entries);
      if (exact.ok() || !absl::IsResourceExhausted(exact.status())) return exact;
    }
    ASSIGN_OR_RETURN(Found best, AxisByAxis(weights));
    if (options_.mode != SearchMode::kRecursiveProgramming) {
      for (const Groups& groups : CoarserMeshes()) {
        auto seed = Grouped(groups, weights, std::min(kSeedEntries, options_.max_entries));
        if (!seed.ok() && !absl::IsResourceExhausted(seed.status())) return seed.status();
        if (seed.ok() && seed->value < best.value) best = *std::move(seed);
      }
    }
    if (Allowed(default_)) {
      const int64_t value = weights.Of(default_cost_);
      if (value < best.value) best = {default_, value, 0, false};
    }
    best.exact = false;
    return Sweep(std::move(best), weights);
  }

  // Whether a plan is among those that the mode may choose.
  bool Allowed(const std::vector<Sharding>& shardings) const {
    return !Propagates() && (!options_.without || !(shardings[options_.without->first] == options_.without->second));
  }

  // The best plan whose factors take whole groups of axes, or the default's sharding of a node.
  StatusOr<Found> Grouped(const Groups& groups, const Weights& weights, double max_entries) {
    std::map<std::string, CandidateList> known;
    std::vector<CandidateList> lists;
    for (int32_t i : forward_.nodes) {
      ASSIGN_OR_RETURN(std::vector<Sharding> all, CandidatesOf(i, groups));
      std::string key;
      for (const Sharding& s : all) absl::StrAppend(&key, KeyOf(s), "|");
      CandidateList& list = known[key];
      if (list == nullptr) list = std::make_shared<const std::vector<Sharding>>(std::move(all));
      lists.push_back(list);
    }
    const int64_t upper = Allowed(default_) ? weights.Of(default_cost_) : kNone;
    return Solve(lists, weights, upper, max_entries);
  }

  StatusOr<Found> Solve(const std::vector<CandidateList>& lists, const Weights& weights, int64_t upper,
                        double max_entries) {
    ASSIGN_OR_RETURN(Assignment a, solver_->Solve(lists, weights, upper, max_entries, max_entries * kTotalEntries));
    candidates_ = 0;
    for (const CandidateList& l : lists) candidates_ += static_cast<int64_t>(l->size());
    largest_table_ = std::max(largest_table_, a.effort.largest);
    return Found{std::move(a.shardings), a.value, a.bound, a.bound == a.value};
  }

  StatusOr<std::vector<Sharding>> CandidatesOf(int32_t i, const Groups& groups) const {
    std::vector<Sharding> all = fixed_[i];
    if (all.empty()) {
      const NodeRule& rule = forward_.rules[i];
      if (std::pow(1.0 + static_cast<double>(rule.rule.factors.size()), static_cast<double>(groups.size())) > 1e7)
        return absl::ResourceExhaustedError("too many candidates");
      all = GroupedCandidates(mesh_, rule, groups);
      if (all.size() > kMaxCandidates) return absl::ResourceExhaustedError("too many candidates");
      if (!Contains(all, default_[i])) all.push_back(default_[i]);
      if (Propagates() && forward_.data[i]) KeepWidest(&all);
    }
    if (options_.without && options_.without->first == i)
      all.erase(std::remove(all.begin(), all.end(), options_.without->second), all.end());
    if (all.empty()) return absl::NotFoundError(absl::StrCat(NameOf(graph_.nodes[i]), " has no other sharding"));
    return all;
  }

  void KeepWidest(std::vector<Sharding>* all) const {
    int64_t most = 1;
    for (const Sharding& s : *all) most = std::max(most, PartsOf(mesh_, s));
    all->erase(std::remove_if(all->begin(), all->end(), [&](const Sharding& s) { return PartsOf(mesh_, s) < most; }),
               all->end());
  }

  // Neighbouring axes joined to at most kMaxAxesOfSeed; of meshes with equal axes and links those that differ by more
  // than the order of the groups.
  std::vector<Groups> CoarserMeshes() const {
    std::vector<Groups> meshes;
    Groups now;
    Coarsen(0, &now, &meshes);
    return meshes;
  }
  void Coarsen(int first, Groups* now, std::vector<Groups>* meshes) const {
    if (first == mesh_.axes()) {
      meshes->push_back(*now);
      return;
    }
    if (now->size() == kMaxAxesOfSeed) return;
    for (int end = first + 1; end <= mesh_.axes(); ++end) {
      AxisList group;
      for (int a = first; a < end; ++a) group.push_back(static_cast<int8_t>(a));
      if (AxesAlike() && !now->empty() && group.size() < now->back().size()) continue;
      now->push_back(group);
      Coarsen(end, now, meshes);
      now->pop_back();
    }
  }
  bool AxesAlike() const {
    const auto& links = options_.cluster.links.axes;
    for (int a = 1; a < mesh_.axes(); ++a) {
      if (mesh_.size(a) != mesh_.size(0)) return false;
      if (!links.empty() && (links[a].alpha != links[0].alpha || links[a].beta != links[0].beta)) return false;
    }
    return true;
  }

  // Starts with everything whole and gives out one axis after the other.
  StatusOr<Found> AxisByAxis(const Weights& weights) {
    Found now;
    now.shardings = default_;
    for (int32_t i : forward_.nodes) {
      if (fixed_[i].empty()) now.shardings[i] = Sharding(forward_.rules[i]);
    }
    for (int8_t a = 0; a < mesh_.axes(); ++a) {
      ASSIGN_OR_RETURN(now, Round(now, a, weights));
    }
    if (mesh_.axes() == 0) return Solve(Lists(now, -1), weights, kNone, options_.max_entries);
    return now;
  }

  StatusOr<Found> Sweep(Found best, const Weights& weights) {
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      const int64_t before = best.value;
      for (int8_t a = 0; a < mesh_.axes(); ++a) {
        ASSIGN_OR_RETURN(Found now, Round(best, a, weights));
        if (now.value < best.value) best = std::move(now);
      }
      if (best.value == before) break;
    }
    best.exact = false;
    return best;
  }

  StatusOr<Found> Round(const Found& now, int8_t axis, const Weights& weights) {
    return Solve(Lists(now, axis), weights, kNone, options_.max_entries);
  }

  // For each node its sharding as it is, without the axis, and with it on each factor.
  std::vector<CandidateList> Lists(const Found& now, int8_t axis) {
    std::map<std::pair<std::string, std::string>, CandidateList> known;
    std::vector<CandidateList> lists;
    for (int32_t i : forward_.nodes) {
      const Sharding& s = now.shardings[i];
      const std::string rule = fixed_[i].empty() ? absl::StrCat(RuleKey(i)) : absl::StrCat("fixed ", i);
      CandidateList& list = known[{rule, KeyOf(s)}];
      if (list == nullptr)
        list = std::make_shared<const std::vector<Sharding>>(fixed_[i].empty() ? Moves(i, s, axis) : Same(i, s));
      lists.push_back(list);
    }
    return lists;
  }
  std::vector<Sharding> Same(int32_t i, const Sharding& s) const {
    if (!options_.without || options_.without->first != i || !(s == options_.without->second)) return {s};
    for (const Sharding& other : fixed_[i]) {
      if (!(other == s)) return {other};
    }
    return {s};
  }
  std::string RuleKey(int32_t i) const {
    const NodeRule& rule = forward_.rules[i];
    const bool excluded = options_.without && options_.without->first == i;
    std::string key = excluded ? "one " : forward_.data[i] ? "data " : "";
    for (size_t f = 0; f < rule.sizes.size(); ++f)
      absl::StrAppend(&key, rule.rule.factors[f].name, rule.sizes[f], rule.rule.factors[f].whole ? "!" : "", " ");
    for (const auto* side : {&rule.rule.inputs, &rule.rule.outputs}) {
      for (const FactorRule::Tensor& tensor : *side) {
        absl::StrAppend(&key, ",");
        for (const FactorRule::Dim& dim : tensor) {
          absl::StrAppend(&key, ".");
          for (int f : dim) absl::StrAppend(&key, f, "_");
        }
      }
    }
    return key;
  }
  std::vector<Sharding> Moves(int32_t i, const Sharding& s, int8_t axis) const {
    const NodeRule& rule = forward_.rules[i];
    Sharding base = s;
    RemoveAxis(&base, axis);
    std::vector<Sharding> all{base};
    if (!(base == s)) all.push_back(s);
    for (size_t f = 0; f < rule.rule.factors.size(); ++f) {
      if (!CanCut(rule, static_cast<int>(f), mesh_.Size(base.factors[f]) * mesh_.size(axis))) continue;
      Sharding wider = base;
      AxisList& axes = wider.factors[f];
      axes.insert(std::upper_bound(axes.begin(), axes.end(), axis), axis);
      if (!Contains(all, wider)) all.push_back(std::move(wider));
    }
    if (Propagates() && forward_.data[i]) KeepWidest(&all);
    if (options_.without && options_.without->first == i) {
      std::vector<Sharding> others;
      for (const Sharding& other : all) {
        if (!(other == options_.without->second)) others.push_back(other);
      }
      if (!others.empty()) return others;
    }
    return all;
  }

  StatusOr<SearchResult> Report(const Found& found) const {
    ASSIGN_OR_RETURN(const CostReport report, Evaluate(graph_, forward_, *model_, found.shardings));
    SearchResult result;
    result.chosen.resize(graph_.nodes.size());
    for (int32_t i : forward_.nodes) result.chosen[i] = found.shardings[i];
    result.seconds = static_cast<double>(report.total.picoseconds) * 1e-12;
    result.compute_seconds = static_cast<double>(report.compute_picoseconds) * 1e-12;
    result.bytes = report.total.bytes;
    result.memory_bytes = report.total.memory;
    int64_t bound = 0;
    for (int32_t i : forward_.nodes) bound += model_->NodeBound(i);
    if (found.exact && !Propagates()) bound = std::max(bound, found.bound);
    result.bound_seconds = static_cast<double>(bound) * 1e-12;
    result.gap = bound > 0 ? result.seconds / result.bound_seconds - 1 : 0;
    result.exact = found.exact && found.value == found.bound;
    result.nodes = static_cast<int>(forward_.nodes.size());
    result.candidates = candidates_;
    result.largest_table = largest_table_;
    return result;
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const SearchOptions& options_;
  Resharder resharder_;
  ForwardGraph forward_;
  std::unique_ptr<CostModel> model_;
  std::unique_ptr<AssignmentSolver> solver_;
  std::vector<Sharding> default_;  // by node: what Propagate says without a search
  Cost default_cost_;
  std::vector<std::vector<Sharding>> fixed_;  // by node; empty: free
  int64_t candidates_ = 0;
  double largest_table_ = 0;
};

constexpr const char* kNames[] = {"dynamic_programming", "recursive_programming", "sharding_propagation"};

}  // namespace

const char* Name(SearchMode mode) { return kNames[static_cast<int>(mode)]; }

StatusOr<SearchMode> ParseSearchMode(absl::string_view name) {
  for (int m = 0; m < 3; ++m) {
    if (name == kNames[m]) return static_cast<SearchMode>(m);
  }
  return absl::InvalidArgumentError(absl::StrCat("search_mode is '", name,
                                                 "', expected dynamic_programming, recursive_programming or "
                                                 "sharding_propagation",
                                                 DidYouMean(std::string(name), {kNames[0], kNames[1], kNames[2]})));
}

StatusOr<SearchResult> Search(const Graph& graph, const Mesh& mesh, const SearchOptions& options) {
  return StrategySearch(graph, mesh, options).Run();
}

}  // namespace mslua
