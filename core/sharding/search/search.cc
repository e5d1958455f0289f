#include "core/sharding/search/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/op/marks.h"
#include "core/sharding/micro_batches.h"
#include "core/sharding/search/assignment.h"
#include "core/sharding/search/needless_shards.h"
#include "core/sharding/search/relaxation.h"

namespace mslua {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
// Entries of all tables of one elimination, in proportion to those of the largest.
constexpr double kTotalEntries = 10;
constexpr size_t kMaxCandidates = 1024;
// Up to so many ways to give a node's factors their axes are tried at once.
constexpr size_t kMaxAlike = 40;
constexpr int kMaxSweeps = 3;
// The first limit on what is searched exactly, as a part of the way from the bound to the best plan known.
constexpr int64_t kFirstStep = 4;
constexpr int kBisections = 16;
// Entries of a table where some nodes are held because all of them together are too much.
constexpr double kEntriesInParts = 1e6;

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
    ASSIGN_OR_RETURN(forward_, ForwardOf(graph_, options_.propagate.optimizer_shards));
    LeaveOperatorsWhole();
    model_ = std::make_unique<CostModel>(graph_, forward_, options_.cluster, resharder_);
    solver_ = std::make_unique<AssignmentSolver>(graph_, forward_, *model_);
    relaxation_ = std::make_unique<Relaxation>(graph_, forward_, options_.cluster, *model_, mesh_);
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
    int64_t bound = 0;  // no plan has a lower value
    bool exact = false;
  };

  // Where a round puts an axis among those of a factor: as the mesh has them, or last, so that what the others shard
  // stays where it is.
  enum class Order { kMesh, kLast };

  bool Propagates() const { return options_.mode == SearchMode::kShardingPropagation; }

  StatusOr<Cost> CostOf(const std::vector<Sharding>& shardings) const {
    ASSIGN_OR_RETURN(const CostReport report, Evaluate(graph_, forward_, *model_, shardings));
    return report.total;
  }

  // Where time is all that counts.
  void LeaveOperatorsWhole() {
    if (Propagates() || options_.cluster.memory_bytes > 0) return;
    std::vector<bool> keeps(graph_.nodes.size(), false);
    for (int32_t i : forward_.nodes) {
      const Attrs& attrs = graph_.nodes[i].attrs;
      keeps[i] = mark::kUserStrategy.Has(attrs) || mark::kCrossBatch.Has(attrs);
    }
    if (options_.without) keeps[options_.without->first] = true;
    LeaveWhole(graph_, mesh_, options_.cluster, keeps, &forward_);
  }

  // The shardings that nodes with a user's strategy, inputs that lie as they are given, and reductions of each rank's
  // own part of the batch may have.
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
      const std::string* strategy = mark::kUserStrategy.Find(n.attrs);
      // Its result is that of a rank's part of the batch: another sharding would give other numbers.
      if (strategy == nullptr && mark::kCrossBatch.Has(n.attrs)) fixed_[i] = {default_[i]};
      if (strategy == nullptr) continue;
      ASSIGN_OR_RETURN(const Strategy parsed, ParseStrategy(*strategy));
      ASSIGN_OR_RETURN(const std::vector<int64_t> parts, FactorParts(mesh_, graph_, n, forward_.rules[i], parsed));
      fixed_[i] = Assignments(mesh_, parts);
      if (!Contains(fixed_[i], default_[i])) fixed_[i].push_back(default_[i]);
    }
    std::map<std::string, int32_t> known;
    rule_of_.resize(graph_.nodes.size());
    for (int32_t i : forward_.nodes)
      rule_of_[i] = known.emplace(fixed_[i].empty() ? RuleKey(i) : absl::StrCat("fixed ", i), i).first->second;
    return absl::OkStatus();
  }

  Weights TimeWeights(double memory_weight = 0) const {
    Weights weights;
    weights.memory_weight = memory_weight;
    if (!Propagates()) return weights;
    weights.time_weight = 0;
    // Costs are sums of int64: a weight times the bytes that all nodes read stays below 2^62.
    double read = 1;
    for (const Node& n : graph_.nodes) {
      for (const Value v : n.inputs) read += static_cast<double>(graph_.TypeOf(v).bytes());
    }
    weights.relayout_weight = std::max<int64_t>(1, static_cast<int64_t>(std::min(std::exp2(26), std::exp2(62) / read)));
    // All that is moved and kept is less than one byte of relayout; exactly so where it is below 2^24 bytes.
    const double scale = std::min(1.0, std::min(std::exp2(24), static_cast<double>(weights.relayout_weight) / 4) /
                                           static_cast<double>(1 + default_cost_.bytes + default_cost_.memory));
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
      return absl::ResourceExhaustedError(absl::StrCat(
          "a step needs ", least.memory, " bytes on each of ", mesh_.ranks(), " devices, which have ", limit,
          " (use more devices, a smaller batch, or a larger device_memory, "
          "in a cluster's file memory_bytes)"));
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
    best.bound = bound;
    best.exact = exact;
    return best;
  }

  // Exact where the relaxation leaves few enough shardings; else the best of what it suggests, of one axis after the
  // other and of the default, improved axis by axis.
  StatusOr<Found> Minimise(const Weights& weights) {
    const int64_t alone = weights.Of(default_cost_);
    if (mesh_.axes() == 0) return Found{default_, alone, alone, true};  // one device, one plan
    const bool recursive = options_.mode == SearchMode::kRecursiveProgramming;
    ASSIGN_OR_RETURN(const Relaxed relaxed, Relax(weights, Propagates(), /*marginals=*/!recursive));
    Found best;
    if (Allowed(default_)) best = {default_, weights.Of(default_cost_), 0, false};
    if (!recursive) {
      ASSIGN_OR_RETURN(const std::vector<Sharding> goal, GoalOf(relaxed, weights));
      ASSIGN_OR_RETURN(best, Better(std::move(best), Guess(goal, weights)));
      if (!relaxed.least.empty()) {
        auto exact = Narrowed(relaxed, best, weights);
        if (exact.ok() || !absl::IsResourceExhausted(exact.status())) return exact;
      }
      ASSIGN_OR_RETURN(best, Sweep(std::move(best), weights));
    }
    ASSIGN_OR_RETURN(Found rounds, AxisByAxis(weights));
    if (recursive && Allowed(default_) && weights.Of(default_cost_) < rounds.value) rounds = best;
    // Where the two meet the second is swept already.
    if (recursive || rounds.value != best.value) {
      ASSIGN_OR_RETURN(best, Better(std::move(best), Sweep(std::move(rounds), weights)));
    }
    if (!recursive) {
      ASSIGN_OR_RETURN(best, Sweep(std::move(best), weights, Order::kLast));
    }
    best.bound = relaxed.bound;
    best.exact = false;
    return best;
  }
  static StatusOr<Found> Better(Found a, StatusOr<Found> b) {
    RETURN_IF_ERROR(b.status());
    return b->value < a.value ? *std::move(b) : std::move(a);
  }

  // None where even the relaxation is too large.
  StatusOr<Relaxed> Relax(const Weights& weights, bool widest, bool marginals) const {
    auto relaxed = relaxation_->Solve(FreedomOf(widest), weights, marginals);
    if (absl::IsResourceExhausted(relaxed.status())) return Relaxed();
    return relaxed;
  }

  // Whether a plan is among those that the mode may choose.
  bool Allowed(const std::vector<Sharding>& shardings) const {
    return !Propagates() && (!options_.without || !(shardings[options_.without->first] == options_.without->second));
  }

  Freedom FreedomOf(bool widest) const {
    Freedom freedom;
    freedom.widest = widest;
    for (int32_t i : forward_.nodes) freedom.only.push_back(fixed_[i].empty() ? nullptr : &fixed_[i]);
    return freedom;
  }
  // How often a good plan shards each node: as the relaxed minimum, or where only its bound is known as the default
  // improved kind of axes by kind of axes.
  StatusOr<std::vector<Sharding>> GoalOf(const Relaxed& relaxed, const Weights& weights) const {
    std::vector<Sharding> goal = relaxed.shardings;
    if (!goal.empty()) return goal;
    for (int32_t i : forward_.nodes) goal.push_back(default_[i]);
    const Status improved = relaxation_->Improve(FreedomOf(Propagates()), weights, &goal).status();
    if (!improved.ok() && !absl::IsResourceExhausted(improved)) return improved;
    return goal;
  }
  // The best plan that shards as often as `goal`.
  StatusOr<Found> Guess(const std::vector<Sharding>& goal, const Weights& weights) {
    std::map<std::string, CandidateList> known;
    std::vector<CandidateList> lists;
    for (size_t p = 0; p < forward_.nodes.size(); ++p) {
      const int32_t i = forward_.nodes[p];
      const std::string counts = CountsOf(relaxation_->kinds(), goal[p]);
      const bool own = !fixed_[i].empty() || (options_.without && options_.without->first == i);
      CandidateList& list = known[own ? absl::StrCat(i, " ", counts) : counts];
      if (list == nullptr) {
        std::vector<Sharding> all = Alike(i, goal[p], kMaxAlike);
        if (all.empty()) return GuessAxisByAxis(goal, weights);
        all = Excluded(i, std::move(all));
        if (all.empty()) all = Excluded(i, Candidates(mesh_, forward_.rules[i], kMaxCandidates));
        if (all.empty()) return absl::NotFoundError(absl::StrCat(NameOf(graph_.nodes[i]), " has no other sharding"));
        list = std::make_shared<const std::vector<Sharding>>(std::move(all));
      }
      lists.push_back(list);
    }
    auto found = Solve(lists, weights, kNone, options_.max_entries);
    if (absl::IsResourceExhausted(found.status())) return GuessAxisByAxis(goal, weights);
    return found;
  }
  StatusOr<Found> GuessAxisByAxis(std::vector<Sharding> goal, const Weights& weights) {
    Found now = Bare();
    for (int8_t a = 0; a < mesh_.axes(); ++a) {
      std::map<std::string, CandidateList> known;
      std::vector<CandidateList> lists;
      for (size_t p = 0; p < forward_.nodes.size(); ++p) {
        const int32_t i = forward_.nodes[p];
        const Sharding& s = now.shardings[i];
        CandidateList& list = known[absl::StrCat(fixed_[i].empty() ? "" : absl::StrCat(i), KeyOf(s), KeyOf(goal[p]))];
        if (list == nullptr)
          list = std::make_shared<const std::vector<Sharding>>(fixed_[i].empty() ? Steps(s, goal[p], a) : Same(i, s));
        lists.push_back(list);
      }
      ASSIGN_OR_RETURN(now, SolveInParts(lists, now, weights));
      for (size_t p = 0; p < forward_.nodes.size(); ++p) Take(now.shardings[forward_.nodes[p]], a, &goal[p]);
    }
    if (!Allowed(now.shardings) && !Propagates()) now.value = kNone;
    return now;
  }
  // `s` with the axis on each factor to which `goal` still gives one of its kind, or without when more of the kind are
  // left than goal takes.
  std::vector<Sharding> Steps(const Sharding& s, const Sharding& goal, int8_t axis) const {
    const AxisList& kind = KindWith(axis);
    size_t left = std::count_if(kind.begin(), kind.end(), [axis](int8_t a) { return a >= axis; });
    std::vector<Sharding> all;
    for (size_t f = 0; f < goal.factors.size(); ++f) {
      const size_t wanted = CountOf(kind, goal.factors[f]);
      left -= wanted;
      if (wanted == 0) continue;
      all.push_back(s);
      all.back().factors[f].push_back(axis);
    }
    if (left > 0) all.push_back(s);
    return all;
  }
  // Takes an axis of the same kind from the goal's factor that got `axis`.
  void Take(const Sharding& s, int8_t axis, Sharding* goal) const {
    const AxisList& kind = KindWith(axis);
    for (size_t f = 0; f < s.factors.size(); ++f) {
      if (s.factors[f].empty() || s.factors[f].back() != axis) continue;
      AxisList& wanted = goal->factors[f];
      const auto one = std::find_if(wanted.begin(), wanted.end(), [&](int8_t a) { return CountOf(kind, {a}) > 0; });
      if (one != wanted.end()) wanted.erase(one);
    }
  }
  const AxisList& KindWith(int8_t axis) const {
    const std::vector<AxisKind>& kinds = relaxation_->kinds();
    return std::find_if(kinds.begin(), kinds.end(), [axis](const AxisKind& k) { return CountOf(k.axes, {axis}) > 0; })
        ->axes;
  }
  static size_t CountOf(const AxisList& kind, const AxisList& axes) {
    return std::count_if(axes.begin(), axes.end(),
                         [&](int8_t a) { return std::find(kind.begin(), kind.end(), a) != kind.end(); });
  }

  // Every plan below a limit has only shardings whose relaxed plans are below it. So the least of those is the minimum
  // when it is below the limit too; the limit starts near the bound and is raised until it is.
  StatusOr<Found> Narrowed(const Relaxed& relaxed, Found best, const Weights& weights) {
    for (int64_t step = std::max<int64_t>(1, (best.value - relaxed.bound) / kFirstStep);; step *= 2) {
      const int64_t limit = std::min(best.value, relaxed.bound + step);
      const auto lists = Below(relaxed, limit);
      if (absl::IsNotFound(lists.status()) && limit < best.value) continue;
      RETURN_IF_ERROR(lists.status());
      ASSIGN_OR_RETURN(Found found, Solve(*lists, weights, best.value, options_.max_entries));
      const bool exact = found.exact && (found.value <= limit || limit == best.value);
      found.exact = exact;
      if (!exact) found.bound = relaxed.bound;
      if (found.value <= best.value) best = std::move(found);
      if (exact || limit == best.value) return best;
    }
  }
  // Of each node what the relaxation allows below a limit.
  StatusOr<std::vector<CandidateList>> Below(const Relaxed& relaxed, int64_t limit) const {
    std::map<std::string, CandidateList> known;
    std::vector<CandidateList> lists;
    for (size_t p = 0; p < forward_.nodes.size(); ++p) {
      const int32_t i = forward_.nodes[p];
      const bool excludes = options_.without && options_.without->first == i;
      std::string key = fixed_[i].empty() && !excludes ? absl::StrCat(KeyOf(default_[i]), " ") : absl::StrCat(i, " ");
      for (const auto& [s, least] : relaxed.least[p]) {
        if (least <= limit) absl::StrAppend(&key, CountsOf(relaxation_->kinds(), s), " ");
      }
      CandidateList& list = known[key];
      if (list == nullptr) {
        ASSIGN_OR_RETURN(std::vector<Sharding> all, Allowed(i, relaxed.least[p], limit));
        list = std::make_shared<const std::vector<Sharding>>(std::move(all));
      }
      lists.push_back(list);
    }
    return lists;
  }
  StatusOr<std::vector<Sharding>> Allowed(int32_t i, const std::vector<std::pair<Sharding, int64_t>>& least,
                                          int64_t upper) const {
    std::vector<Sharding> all;
    for (const auto& [s, value] : least) {
      if (value > upper) continue;
      std::vector<Sharding> alike = Alike(i, s, kMaxCandidates);
      if (alike.empty()) return absl::ResourceExhaustedError("too many candidates");
      all.insert(all.end(), alike.begin(), alike.end());
    }
    if (all.size() > kMaxCandidates) return absl::ResourceExhaustedError("too many candidates");
    all = Excluded(i, std::move(all));
    if (all.empty()) return absl::NotFoundError(absl::StrCat(NameOf(graph_.nodes[i]), " has no other sharding"));
    return all;
  }
  // The shardings that a node may have and that shard as often as `s`; none when there are more than `limit`.
  std::vector<Sharding> Alike(int32_t i, const Sharding& s, size_t limit) const {
    const std::string counts = CountsOf(relaxation_->kinds(), s);
    std::vector<Sharding> all = fixed_[i].empty() ? relaxation_->Alike(s, limit) : std::vector<Sharding>();
    for (const Sharding& other : fixed_[i]) {
      if (CountsOf(relaxation_->kinds(), other) == counts) all.push_back(other);
    }
    if (!all.empty() && fixed_[i].empty() && CountsOf(relaxation_->kinds(), default_[i]) == counts &&
        !Contains(all, default_[i]))
      all.push_back(default_[i]);
    return all;
  }
  std::vector<Sharding> Excluded(int32_t i, std::vector<Sharding> all) const {
    if (options_.without && options_.without->first == i)
      all.erase(std::remove(all.begin(), all.end(), options_.without->second), all.end());
    return all;
  }

  StatusOr<Found> Solve(const std::vector<CandidateList>& lists, const Weights& weights, int64_t upper,
                        double max_entries) {
    ASSIGN_OR_RETURN(Assignment a, solver_->Solve(lists, weights, upper, max_entries, max_entries * kTotalEntries));
    candidates_ = 0;
    for (const CandidateList& l : lists) candidates_ += static_cast<int64_t>(l->size());
    largest_table_ = std::max(largest_table_, a.effort.largest);
    return Found{std::move(a.shardings), a.value, a.bound, a.bound == a.value};
  }

  void KeepWidest(std::vector<Sharding>* all) const {
    int64_t most = 1;
    for (const Sharding& s : *all) most = std::max(most, PartsOf(mesh_, s));
    all->erase(std::remove_if(all->begin(), all->end(), [&](const Sharding& s) { return PartsOf(mesh_, s) < most; }),
               all->end());
  }

  // Starts with everything whole and gives out one axis after the other.
  StatusOr<Found> AxisByAxis(const Weights& weights) {
    Found now = Bare();
    for (int8_t a = 0; a < mesh_.axes(); ++a) {
      ASSIGN_OR_RETURN(now, Round(now, a, weights, Order::kMesh));
    }
    return now;
  }

  // Everything whole but what is fixed.
  Found Bare() const {
    Found now;
    now.shardings = default_;
    for (int32_t i : forward_.nodes) {
      if (fixed_[i].empty()) now.shardings[i] = Sharding(forward_.rules[i]);
    }
    return now;
  }

  StatusOr<Found> Sweep(Found best, const Weights& weights, Order order = Order::kMesh) {
    int same = 0;  // rounds since the plan got better, that one too
    for (int round = 0; round < kMaxSweeps * mesh_.axes() && same < mesh_.axes(); ++round) {
      ASSIGN_OR_RETURN(Found now, Round(best, static_cast<int8_t>(round % mesh_.axes()), weights, order));
      same = now.value < best.value ? 1 : same + 1;
      if (now.value < best.value) best = std::move(now);
    }
    best.exact = false;
    return best;
  }

  StatusOr<Found> Round(const Found& now, int8_t axis, const Weights& weights, Order order) {
    return SolveInParts(Lists(now, axis, order), now, weights);
  }

  // The best of all candidates; where their tables are too large, as where many operators share parameters, the nodes
  // with the most neighbours stay as they are, as few of them as will do, and are chosen when the others have been.
  StatusOr<Found> SolveInParts(const std::vector<CandidateList>& lists, const Found& now, const Weights& weights) {
    auto found = Solve(lists, weights, kNone, options_.max_entries);
    if (!absl::IsResourceExhausted(found.status())) return found;
    const std::vector<size_t> order = ByNeighbours();
    size_t held = 1;
    while (absl::IsResourceExhausted(found.status())) {
      found = Solve(Held(lists, now, order, 0, held), weights, kNone, kEntriesInParts);
      if (held == order.size()) break;
      if (!found.ok()) held = std::min(2 * held, order.size());
    }
    RETURN_IF_ERROR(found.status());
    auto rest = Solve(Held(lists, *found, order, held, order.size()), weights, kNone, kEntriesInParts);
    if (rest.ok() && rest->value < found->value) found = std::move(rest);
    found->exact = false;
    return found;
  }
  // Positions of nodes, those with the most neighbours first.
  std::vector<size_t> ByNeighbours() const {
    std::vector<int> neighbours(forward_.nodes.size(), 0);
    for (const ForwardGraph::Tie& t : forward_.ties) ++neighbours[t.maker], ++neighbours[t.reader];
    std::vector<size_t> order(forward_.nodes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return neighbours[a] > neighbours[b]; });
    return order;
  }
  // The lists with one candidate for the nodes order[begin, end): what `now` has where that is one, else the first.
  std::vector<CandidateList> Held(std::vector<CandidateList> lists, const Found& now, const std::vector<size_t>& order,
                                  size_t begin, size_t end) const {
    std::map<std::pair<int32_t, std::string>, CandidateList> known;
    for (size_t k = begin; k < end; ++k) {
      const int32_t i = forward_.nodes[order[k]];
      CandidateList& list = lists[order[k]];
      const Sharding& one = Contains(*list, now.shardings[i]) ? now.shardings[i] : list->front();
      CandidateList& held = known[{rule_of_[i], KeyOf(one)}];
      if (held == nullptr) held = std::make_shared<const std::vector<Sharding>>(1, one);
      list = held;
    }
    return lists;
  }

  // For each node its sharding as it is, without the axis, and with it on each factor.
  std::vector<CandidateList> Lists(const Found& now, int8_t axis, Order order) {
    std::map<std::pair<int32_t, std::string>, CandidateList> known;
    std::vector<CandidateList> lists;
    for (int32_t i : forward_.nodes) {
      const Sharding& s = now.shardings[i];
      CandidateList& list = known[{rule_of_[i], KeyOf(s)}];
      if (list == nullptr)
        list = std::make_shared<const std::vector<Sharding>>(fixed_[i].empty() ? Moves(i, s, axis, order) : Same(i, s));
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
  std::vector<Sharding> Moves(int32_t i, const Sharding& s, int8_t axis, Order order) const {
    const NodeRule& rule = forward_.rules[i];
    Sharding base = s;
    RemoveAxis(&base, axis);
    std::vector<Sharding> all{base};
    if (!(base == s)) all.push_back(s);
    for (size_t f = 0; f < rule.rule.factors.size(); ++f) {
      if (!CanShard(rule, static_cast<int>(f), mesh_.Size(base.factors[f]) * mesh_.size(axis))) continue;
      Sharding wider = base;
      AxisList& axes = wider.factors[f];
      if (order == Order::kMesh)
        axes.insert(std::upper_bound(axes.begin(), axes.end(), axis), axis);
      else
        axes.push_back(axis);
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
    if (!Propagates() || mesh_.axes() == 0) {
      bound = std::max(bound, found.bound);
    } else {
      ASSIGN_OR_RETURN(const Relaxed relaxed, Relax(Weights(), /*widest=*/false, /*marginals=*/false));
      bound = std::max(bound, relaxed.bound);
    }
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
  std::unique_ptr<Relaxation> relaxation_;
  std::vector<Sharding> default_;  // by node: what Propagate says without a search
  Cost default_cost_;
  std::vector<std::vector<Sharding>> fixed_;  // by node; empty: free
  std::vector<int32_t> rule_of_;              // by node: the first that may be sharded in the same ways
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

namespace {

// What was found for the first micro-batch, for all of them. The memory is that of one, which is what a step needs at
// once.
StatusOr<SearchResult> ForAllMicroBatches(const Graph& graph, const FirstMicroBatch& first, const Mesh& mesh,
                                          const SearchOptions& options, SearchResult result) {
  ASSIGN_OR_RETURN(const ForwardGraph forward, ForwardOf(graph, options.propagate.optimizer_shards));
  std::vector<absl::optional<Sharding>> chosen(graph.nodes.size());
  std::vector<Sharding> shardings(graph.nodes.size());
  for (int32_t i : forward.nodes) {
    const bool found = first.of[i] >= 0 && result.chosen[first.of[i]].has_value();
    shardings[i] = found ? *result.chosen[first.of[i]] : Sharding(forward.rules[i]);
    chosen[i] = shardings[i];
  }
  Resharder resharder(mesh, options.cluster.links);
  const CostModel model(graph, forward, options.cluster, resharder);
  ASSIGN_OR_RETURN(const CostReport report, Evaluate(graph, forward, model, shardings));
  result.chosen = std::move(chosen);
  result.seconds = static_cast<double>(report.total.picoseconds) * 1e-12;
  result.compute_seconds = static_cast<double>(report.compute_picoseconds) * 1e-12;
  result.bytes = report.total.bytes;
  result.bound_seconds = result.seconds / (1 + result.gap);
  return result;
}

}  // namespace

StatusOr<SearchResult> Search(const Graph& graph, const Mesh& mesh, const SearchOptions& options) {
  const auto first = FirstMicroBatchOf(graph);
  if (!first) return StrategySearch(graph, mesh, options).Run();
  SearchOptions own = options;
  if (own.without) own.without->first = first->of[own.without->first];
  ASSIGN_OR_RETURN(SearchResult result, StrategySearch(first->graph, mesh, own).Run());
  return ForAllMicroBatches(graph, *first, mesh, options, std::move(result));
}

}  // namespace mslua
