#include "core/sharding/assignment.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// Rounds of bounds made exact. Each ends with a solution and a bound, so a limit costs optimality at most.
constexpr int kMaxRounds = 400;

// What makes two nodes cost the same under the same sharding.
std::string KindOf(const Graph& graph, const ForwardGraph& forward, int32_t i) {
  const Node& n = graph.nodes[i];
  std::string kind = n.op->name;
  for (const auto& [name, value] : n.attrs.items()) {
    if (name != "name" && name != "_rng") absl::StrAppend(&kind, " ", name, "=", AttrText(value));
  }
  for (Value v : n.inputs) absl::StrAppend(&kind, " ", ToString(graph.TypeOf(v)));
  absl::StrAppend(&kind, " ->");
  for (const TensorType& t : n.outputs) absl::StrAppend(&kind, " ", ToString(t));
  absl::StrAppend(&kind, forward.data[i] ? " data" : "");
  return kind;
}

// The distinct layouts among those of candidates, and which each has.
class Distinct {
 public:
  void Add(const Layout& layout) {
    const auto [it, fresh] = known_.emplace(layout, static_cast<int>(layouts.size()));
    if (fresh) layouts.push_back(layout);
    of.push_back(it->second);
  }
  std::vector<Layout> layouts;
  std::vector<int> of;  // by candidate

 private:
  absl::flat_hash_map<Layout, int> known_;
};

}  // namespace

int64_t Weights::Of(const Cost& c) const {
  return c.picoseconds * time_weight + static_cast<int64_t>(std::floor(static_cast<double>(c.bytes) * byte_weight)) +
         static_cast<int64_t>(std::floor(static_cast<double>(c.memory) * memory_weight));
}

AssignmentSolver::AssignmentSolver(const Graph& graph, const ForwardGraph& forward, const CostModel& model)
    : graph_(graph), forward_(forward), model_(model), position_(graph.nodes.size(), -1) {
  for (int32_t i : forward.nodes) {
    position_[i] = static_cast<int>(kinds_.size());
    kinds_.push_back(KindOf(graph, forward, i));
  }
  for (const ForwardGraph::Edge& e : forward.edges) {
    if (e.gradient) absl::StrAppend(&kinds_[position_[e.reader]], " d", e.input);
  }
}

void AssignmentSolver::MakeClasses(const std::vector<CandidateList>& candidates, const Weights& weights) {
  classes_.clear();
  class_of_.clear();
  std::map<std::pair<absl::string_view, const std::vector<Sharding>*>, int> known;
  for (size_t p = 0; p < candidates.size(); ++p) {
    const auto [it, fresh] = known.emplace(std::make_pair(absl::string_view(kinds_[p]), candidates[p].get()),
                                           static_cast<int>(classes_.size()));
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

int AssignmentSolver::WayOf(const CostModel::Transfer& move, const TensorType& type) {
  const auto [it, fresh] = way_of_.emplace(std::make_tuple(move.from, move.to, type.shape, SizeOf(type.dtype)),
                                           static_cast<int>(ways_.size()));
  if (fresh) ways_.push_back({move, type, model_.Bound(move, type), move.from == move.to});
  return it->second;
}

AssignmentSolver::Slot AssignmentSolver::SlotOf(const ForwardGraph::Edge& edge, const NodeClass& maker,
                                                const NodeClass& reader, bool relayout) {
  const TensorType& type = graph_.TypeOf(edge.value);
  Distinct made, reduced, wanted, gradient_made, gradient_wanted;
  for (const Sharding* s : maker.candidates) {
    made.Add(model_.ForwardMove(edge, *s, *reader.candidates[0]).from);
    if (relayout) reduced.Add(made.layouts[made.of.back()].WithoutPartial());
    if (edge.gradient) gradient_wanted.Add(model_.BackwardMove(edge, *s, *reader.candidates[0]).to);
  }
  for (const Sharding* s : reader.candidates) {
    wanted.Add(model_.ForwardMove(edge, *maker.candidates[0], *s).to);
    if (edge.gradient) gradient_made.Add(model_.BackwardMove(edge, *maker.candidates[0], *s).from);
  }
  const auto matrix = [&](const Distinct& from, const Distinct& to) {
    std::vector<int> ways;
    for (const Layout& f : from.layouts) {
      for (const Layout& t : to.layouts) ways.push_back(WayOf({f, t}, type));
    }
    return ways;
  };
  const std::vector<int> forward = matrix(made, wanted);
  std::vector<int> backward, plain;
  if (relayout) plain = matrix(reduced, wanted);
  if (edge.gradient) backward = matrix(gradient_made, gradient_wanted);
  Slot slot{&edge, {}, {}, {}};
  for (size_t m = 0; m < maker.candidates.size(); ++m) {
    for (size_t r = 0; r < reader.candidates.size(); ++r) {
      slot.forward.push_back(forward[made.of[m] * wanted.layouts.size() + wanted.of[r]]);
      if (relayout) slot.relayout.push_back(plain[reduced.of[m] * wanted.layouts.size() + wanted.of[r]]);
      slot.backward.push_back(
          edge.gradient ? backward[gradient_made.of[r] * gradient_wanted.layouts.size() + gradient_wanted.of[m]] : -1);
    }
  }
  return slot;
}

void AssignmentSolver::MakePairs(const Weights& weights) {
  pairs_.clear();
  edge_classes_.clear();
  std::map<std::pair<int, int>, std::vector<const ForwardGraph::Edge*>> between;
  for (const ForwardGraph::Edge& e : forward_.edges)
    between[{position_[e.value.node], position_[e.reader]}].push_back(&e);
  std::map<std::vector<int>, int> known;
  for (const auto& [ends, edges] : between) {
    std::vector<int> key{class_of_[ends.first], class_of_[ends.second]};
    for (const ForwardGraph::Edge* e : edges) {
      key.push_back(e->value.output);
      key.push_back(static_cast<int>(e->input));
    }
    const auto [it, fresh] = known.emplace(std::move(key), static_cast<int>(edge_classes_.size()));
    pairs_.push_back({ends.first, ends.second, it->second});
    if (!fresh) continue;
    EdgeClass c{class_of_[ends.first], class_of_[ends.second], {}, nullptr};
    for (const ForwardGraph::Edge* e : edges)
      c.slots.push_back(SlotOf(*e, classes_[c.maker], classes_[c.reader], weights.relayout_weight > 0));
    edge_classes_.push_back(std::move(c));
  }
}

int64_t AssignmentSolver::PairValue(const EdgeClass& e, size_t maker, size_t reader, const Weights& weights) const {
  const NodeClass& r = classes_[e.reader];
  const size_t at = maker * r.candidates.size() + reader;
  int64_t value = 0;
  for (const Slot& slot : e.slots) {
    const Cost& there = ways_[slot.forward[at]].cost;
    const Cost back = slot.backward[at] < 0 ? Cost() : ways_[slot.backward[at]].cost;
    if (weights.relayout_weight > 0) value += weights.relayout_weight * ways_[slot.relayout[at]].cost.bytes;
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

StatusOr<bool> AssignmentSolver::Refine(const std::vector<int>& values) {
  bool changed = false;
  for (const Pair& pair : pairs_) {
    const EdgeClass& e = edge_classes_[pair.edge_class];
    const size_t at = values[pair.maker] * classes_[e.reader].candidates.size() + values[pair.reader];
    for (const Slot& slot : e.slots) {
      for (int w : {slot.forward[at], slot.backward[at], slot.relayout.empty() ? -1 : slot.relayout[at]}) {
        if (w < 0 || ways_[w].exact) continue;
        ASSIGN_OR_RETURN(const Cost exact, model_.Exact(ways_[w].move, ways_[w].type));
        changed |= exact.picoseconds != ways_[w].cost.picoseconds || exact.bytes != ways_[w].cost.bytes;
        ways_[w].cost = exact;
        ways_[w].exact = true;
      }
    }
  }
  return changed;
}

int64_t AssignmentSolver::ValueOf(const std::vector<int>& values, const Weights& weights) const {
  int64_t value = 0;
  for (size_t p = 0; p < class_of_.size(); ++p) value += classes_[class_of_[p]].values[values[p]];
  for (const Pair& pair : pairs_)
    value += PairValue(edge_classes_[pair.edge_class], values[pair.maker], values[pair.reader], weights);
  return value;
}

StatusOr<Assignment> AssignmentSolver::Iterate(const Weights& weights, const std::vector<int>& domains,
                                               std::vector<CostTerm> terms, const std::vector<int>& order) {
  Assignment best;
  best.value = std::numeric_limits<int64_t>::max();
  std::vector<int> chosen;
  for (int round = 0; round < kMaxRounds && best.bound < best.value; ++round) {
    for (EdgeClass& e : edge_classes_) e.table = TableOf(e, weights);
    for (size_t i = 0; i < pairs_.size(); ++i)
      terms[class_of_.size() + i].table = edge_classes_[pairs_[i].edge_class].table;
    Minimum minimum = Minimise(domains, terms, order);
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
  std::vector<CostTerm> terms;
  for (size_t p = 0; p < class_of_.size(); ++p) {
    domains.push_back(static_cast<int>(classes_[class_of_[p]].candidates.size()));
    terms.push_back({{static_cast<int>(p)}, classes_[class_of_[p]].table});
  }
  std::vector<CostTerm> scopes = terms;
  for (const ForwardGraph::Edge& e : forward_.edges)
    scopes.push_back({{position_[e.value.node], position_[e.reader]}, nullptr});
  Effort effort;
  const std::vector<int> order = EliminationOrder(domains, scopes, &effort);
  if (effort.largest > max_entries || effort.total > max_total)
    return absl::ResourceExhaustedError(
        absl::StrCat("tables of ", effort.largest, " entries, ", effort.total, " in all"));
  MakePairs(weights);
  for (const Pair& pair : pairs_) terms.push_back({{pair.maker, pair.reader}, nullptr});
  ASSIGN_OR_RETURN(Assignment best, Iterate(weights, domains, std::move(terms), order));
  best.effort = effort;
  return best;
}

}  // namespace mslua
