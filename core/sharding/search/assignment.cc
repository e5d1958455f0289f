#include "core/sharding/search/assignment.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// Rounds of bounds made exact. Each ends with a solution and a bound, so a limit costs optimality at most.
constexpr int kMaxRounds = 400;

}  // namespace

int64_t Weights::Of(const Cost& c) const {
  int64_t value = c.picoseconds * time_weight;
  if (byte_weight > 0) value += static_cast<int64_t>(std::floor(static_cast<double>(c.bytes) * byte_weight));
  if (memory_weight > 0) value += static_cast<int64_t>(std::floor(static_cast<double>(c.memory) * memory_weight));
  return value;
}

void AssignmentSolver::MakeClasses(const std::vector<CandidateList>& candidates, const Weights& weights) {
  classes_.clear();
  class_of_.clear();
  absl::flat_hash_map<std::pair<int, const std::vector<Sharding>*>, int> known;
  for (size_t p = 0; p < candidates.size(); ++p) {
    const auto [it, fresh] =
        known.emplace(std::make_pair(forward_.kinds[p], candidates[p].get()), static_cast<int>(classes_.size()));
    class_of_.push_back(it->second);
    if (!fresh) continue;
    NodeClass c;
    c.node = forward_.nodes[p];
    for (const Sharding& s : *candidates[p]) {
      c.candidates.push_back(&s);
      c.costs.push_back(model_.OfNode(c.node, s));
      c.values.push_back(weights.Of(c.costs.back()));
    }
    classes_.push_back(std::move(c));
  }
}

// Leaves out candidates that with the least of everything else cost more than `upper`.
void AssignmentSolver::Prune(int64_t upper) {
  int64_t least = 0;
  for (int c : class_of_) least += *std::min_element(classes_[c].values.begin(), classes_[c].values.end());
  for (NodeClass& c : classes_) {
    const int64_t mine = *std::min_element(c.values.begin(), c.values.end());
    NodeClass kept;
    kept.node = c.node;
    for (size_t i = 0; i < c.candidates.size(); ++i) {
      if (c.values[i] - mine > upper - least) continue;
      kept.candidates.push_back(c.candidates[i]);
      kept.values.push_back(c.values[i]);
      kept.costs.push_back(c.costs[i]);
      kept.hidden.push_back(model_.Backward(c.node, *c.candidates[i]));
    }
    kept.table = std::make_shared<const std::vector<int64_t>>(kept.values);
    c = std::move(kept);
  }
}

// `number`: the type's.
int AssignmentSolver::WayOf(const CostModel::Transfer& move, const TensorType& type, int number) {
  const auto [it, fresh] = way_of_.emplace(std::make_tuple(move.from, move.to, number), static_cast<int>(ways_.size()));
  if (fresh) ways_.push_back({move, &type, model_.Bound(move, type), move.from == move.to});
  return it->second;
}

AssignmentSolver::Ways AssignmentSolver::WaysOf(const EdgeLayouts::Distinct& from, const EdgeLayouts::Distinct& to,
                                                const TensorType& type) {
  Ways ways;
  ways.columns = to.layouts.size();
  ways.numbers.reserve(from.layouts.size() * to.layouts.size());
  const int number =
      types_.emplace(std::make_pair(type.shape, SizeOf(type.dtype)), static_cast<int>(types_.size())).first->second;
  for (const Layout& f : from.layouts) {
    for (const Layout& t : to.layouts) ways.numbers.push_back(WayOf({f, t}, type, number));
  }
  return ways;
}

AssignmentSolver::Slot AssignmentSolver::SlotOf(const ForwardGraph::Edge& edge, const NodeClass& maker,
                                                const NodeClass& reader, bool relayout) {
  const TensorType& type = graph_.TypeOf(edge.value);
  Slot slot{&edge, LayoutsOf(forward_, edge, maker.candidates, reader.candidates), {}, {}, {}};
  slot.forward = WaysOf(slot.layouts.made, slot.layouts.wanted, type);
  if (relayout) slot.relayout = WaysOf(slot.layouts.reduced, slot.layouts.wanted, type);
  if (edge.gradient) slot.backward = WaysOf(slot.layouts.gradient_made, slot.layouts.reduced, type);
  return slot;
}

int AssignmentSolver::Slot::ForwardWay(size_t m, size_t r) const {
  return forward.numbers[layouts.made.of[m] * forward.columns + layouts.wanted.of[r]];
}
int AssignmentSolver::Slot::BackwardWay(size_t m, size_t r) const {
  if (backward.numbers.empty()) return -1;
  return backward.numbers[layouts.gradient_made.of[r] * backward.columns + layouts.reduced.of[m]];
}
int AssignmentSolver::Slot::RelayoutWay(size_t m, size_t r) const {
  return relayout.numbers.empty() ? -1
                                  : relayout.numbers[layouts.reduced.of[m] * relayout.columns + layouts.wanted.of[r]];
}

void AssignmentSolver::MakePairs(const Weights& weights) {
  pairs_.clear();
  edge_classes_.clear();
  absl::flat_hash_map<std::tuple<int, int, int>, int> known;
  for (const ForwardGraph::Tie& t : forward_.ties) {
    const auto [it, fresh] = known.emplace(std::make_tuple(class_of_[t.maker], class_of_[t.reader], t.kind),
                                           static_cast<int>(edge_classes_.size()));
    pairs_.push_back({t.maker, t.reader, it->second});
    if (!fresh) continue;
    EdgeClass c{class_of_[t.maker], class_of_[t.reader], {}, nullptr};
    for (int e : t.edges)
      c.slots.push_back(SlotOf(forward_.edges[e], classes_[c.maker], classes_[c.reader], weights.relayout_weight > 0));
    edge_classes_.push_back(std::move(c));
  }
}

int64_t AssignmentSolver::PairValue(const EdgeClass& e, size_t maker, size_t reader, const Weights& weights) const {
  const NodeClass& r = classes_[e.reader];
  int64_t value = 0;
  for (const Slot& slot : e.slots) {
    const Cost& there = ways_[slot.ForwardWay(maker, reader)].cost;
    const int backward = slot.BackwardWay(maker, reader);
    const Cost back = backward < 0 ? Cost() : ways_[backward].cost;
    if (weights.relayout_weight > 0)
      value += weights.relayout_weight * ways_[slot.RelayoutWay(maker, reader)].cost.bytes;
    value += weights.Of({model_.Joined(*slot.edge, there.picoseconds, back.picoseconds, r.hidden[reader]),
                         there.bytes + back.bytes, 0});
  }
  return value;
}

CostTable AssignmentSolver::TableOf(const EdgeClass& e, const Weights& weights) const {
  std::vector<int64_t> values;
  for (size_t m = 0; m < classes_[e.maker].candidates.size(); ++m) {
    for (size_t r = 0; r < classes_[e.reader].candidates.size(); ++r) values.push_back(PairValue(e, m, r, weights));
  }
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

bool AssignmentSolver::EdgeClass::Uses(const std::vector<bool>& ways) const {
  return std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
    for (const Ways* w : {&slot.forward, &slot.backward, &slot.relayout}) {
      if (std::any_of(w->numbers.begin(), w->numbers.end(), [&](int n) { return ways[n]; })) return true;
    }
    return false;
  });
}

StatusOr<bool> AssignmentSolver::Refine(const std::vector<int>& values) {
  std::vector<bool> changed(ways_.size(), false);
  bool any = false;
  for (const Pair& pair : pairs_) {
    const EdgeClass& e = edge_classes_[pair.edge_class];
    const size_t m = values[pair.maker], r = values[pair.reader];
    for (const Slot& slot : e.slots) {
      for (int w : {slot.ForwardWay(m, r), slot.BackwardWay(m, r), slot.RelayoutWay(m, r)}) {
        if (w < 0 || ways_[w].exact) continue;
        ASSIGN_OR_RETURN(const Cost exact, model_.Exact(ways_[w].move, *ways_[w].type));
        changed[w] = exact.picoseconds != ways_[w].cost.picoseconds || exact.bytes != ways_[w].cost.bytes;
        any |= changed[w];
        ways_[w].cost = exact;
        ways_[w].exact = true;
      }
    }
  }
  for (EdgeClass& e : edge_classes_) {
    if (any && e.Uses(changed)) e.table = nullptr;
  }
  return any;
}

int64_t AssignmentSolver::ValueOf(const std::vector<int>& values, const Weights& weights) const {
  int64_t value = 0;
  for (size_t p = 0; p < class_of_.size(); ++p) value += classes_[class_of_[p]].values[values[p]];
  for (const Pair& pair : pairs_)
    value += PairValue(edge_classes_[pair.edge_class], values[pair.maker], values[pair.reader], weights);
  return value;
}

StatusOr<Assignment> AssignmentSolver::Iterate(const Weights& weights, const Elimination& elimination) {
  std::vector<CostTable> tables;
  for (int c : class_of_) tables.push_back(classes_[c].table);
  tables.resize(class_of_.size() + pairs_.size());
  Assignment best;
  best.value = std::numeric_limits<int64_t>::max();
  std::vector<int> chosen;
  for (int round = 0; round < kMaxRounds && best.bound < best.value; ++round) {
    for (EdgeClass& e : edge_classes_) {
      if (e.table == nullptr) e.table = TableOf(e, weights);
    }
    for (size_t i = 0; i < pairs_.size(); ++i) tables[class_of_.size() + i] = edge_classes_[pairs_[i].edge_class].table;
    Minimum minimum = elimination.Minimise(tables, &solved_);
    best.bound = std::max(best.bound, minimum.cost);
    ASSIGN_OR_RETURN(const bool changed, Refine(minimum.values));
    const int64_t value = changed ? ValueOf(minimum.values, weights) : minimum.cost;
    if (value >= best.value) continue;
    best.value = value;
    chosen = std::move(minimum.values);
  }
  best.shardings.resize(graph_.nodes.size());
  for (size_t p = 0; p < chosen.size(); ++p)
    best.shardings[forward_.nodes[p]] = *classes_[class_of_[p]].candidates[chosen[p]];
  return best;
}

StatusOr<Assignment> AssignmentSolver::Solve(const std::vector<CandidateList>& candidates, const Weights& weights,
                                             int64_t upper, double max_entries, double max_total) {
  MakeClasses(candidates, weights);
  Prune(upper);
  std::vector<int> domains;
  std::vector<Variables> terms;
  for (size_t p = 0; p < class_of_.size(); ++p) {
    domains.push_back(static_cast<int>(classes_[class_of_[p]].candidates.size()));
    terms.push_back({static_cast<int>(p)});
  }
  for (const ForwardGraph::Tie& t : forward_.ties) terms.push_back({t.maker, t.reader});
  const Elimination elimination(std::move(domains), terms);
  const Effort& effort = elimination.effort();
  if (effort.largest > max_entries || effort.total > max_total)
    return absl::ResourceExhaustedError(
        absl::StrCat("tables of ", effort.largest, " entries, ", effort.total, " in all"));
  MakePairs(weights);
  ASSIGN_OR_RETURN(Assignment best, Iterate(weights, elimination));
  best.effort = effort;
  return best;
}

}  // namespace mslua
