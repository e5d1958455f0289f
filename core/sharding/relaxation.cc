#include "core/sharding/relaxation.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/sharding/edge_layouts.h"

namespace mslua {
namespace {

constexpr size_t kMaxCounts = 1500;       // of a node
constexpr double kMaxEntries = 3e7;       // of a table
constexpr double kMaxForMarginals = 3e7;  // of all tables

void InsertAxis(AxisList* axes, int8_t axis) { axes->insert(std::upper_bound(axes->begin(), axes->end(), axis), axis); }

// Every way to give the factors of a rule axes of these kinds, as numbers: each takes the first that are left.
class Counts {
 public:
  Counts(const Mesh& mesh, const NodeRule& rule, std::vector<const AxisKind*> kinds, size_t limit)
      : mesh_(mesh), rule_(rule), kinds_(std::move(kinds)), limit_(limit) {}
  std::vector<Sharding> Run(Sharding start) {
    Give(std::move(start), 0, 0, 0);
    return std::move(found_);
  }

 private:
  void Give(Sharding s, size_t kind, size_t factor, size_t used) {
    if (found_.size() > limit_) return;
    if (kind == kinds_.size()) {
      found_.push_back(std::move(s));
    } else if (factor == s.factors.size()) {
      Give(std::move(s), kind + 1, 0, 0);
    } else {
      const AxisList& axes = kinds_[kind]->axes;
      for (size_t c = used; c <= axes.size(); ++c) {
        Give(s, kind, factor + 1, c);
        if (c == axes.size()) return;
        InsertAxis(&s.factors[factor], axes[c]);
        if (!CanCut(rule_, static_cast<int>(factor), mesh_.Size(s.factors[factor]))) return;
      }
    }
  }

  const Mesh& mesh_;
  const NodeRule& rule_;
  const std::vector<const AxisKind*> kinds_;
  const size_t limit_;
  std::vector<Sharding> found_;
};

// The relaxed problem of all kinds of axes together, or of one. Of one it is either what is best where `given` says how
// the others cut, or, without, a bound: nodes cost their share, and gradients hide behind what the node takes at least.
class CountProblem {
 public:
  CountProblem(const Graph& graph, const ForwardGraph& forward, const Cluster& cluster, const CostModel& model,
               const Mesh& mesh, const std::vector<AxisKind>& kinds, int only, const std::vector<Sharding>* given,
               const Freedom& freedom, const Weights& weights)
      : graph_(graph),
        forward_(forward),
        model_(model),
        mesh_(mesh),
        kinds_(kinds),
        only_(only),
        given_(given),
        shares_(only >= 0 && given == nullptr),
        freedom_(freedom),
        weights_(weights),
        bound_(mesh, cluster.links, shares_ ? only : -1) {}

  // RESOURCE_EXHAUSTED when a node has more than `most` candidates.
  Status Build(size_t most) {
    CountParameters();
    for (size_t p = 0; p < forward_.nodes.size(); ++p) RETURN_IF_ERROR(Classify(p, most));
    std::vector<CostTerm> scopes;
    for (size_t p = 0; p < class_of_.size(); ++p) {
      domains_.push_back(static_cast<int>(classes_[class_of_[p]].candidates.size()));
      terms_.push_back({{static_cast<int>(p)}, classes_[class_of_[p]].table});
    }
    scopes = terms_;
    for (const ForwardGraph::Tie& t : forward_.ties) scopes.push_back({{t.maker, t.reader}, nullptr});
    order_ = EliminationOrder(domains_, scopes, &effort_);
    if (effort_.largest > kMaxEntries) return absl::ResourceExhaustedError("too large a relaxation");
    return absl::OkStatus();
  }

  const Effort& effort() const { return effort_; }

  Minimum Solve(std::vector<std::vector<int64_t>>* marginals) {
    std::map<std::tuple<int, int, int>, CostTable> tables;
    for (const ForwardGraph::Tie& t : forward_.ties) {
      CostTable& table = tables[{class_of_[t.maker], class_of_[t.reader], t.kind}];
      if (table == nullptr) table = TableOf(t);
      terms_.push_back({{t.maker, t.reader}, table});
    }
    SolvedParts solved;
    return Minimise(domains_, terms_, order_, &solved, marginals);
  }

  const std::vector<Sharding>& Candidates(size_t p) const { return classes_[class_of_[p]].candidates; }

 private:
  struct Class {
    std::vector<Sharding> candidates;
    std::vector<const Sharding*> pointers;
    std::vector<int64_t> hidden;
    CostTable table;
  };
  using Matrix = std::vector<Cost>;  // of distinct layouts, to-layouts minor

  // How many parameters' gradients hide behind each node.
  void CountParameters() {
    std::vector<int> count(graph_.nodes.size(), 0);
    for (const ForwardGraph::Edge& e : forward_.edges) count[e.reader] += e.gradient && !forward_.data[e.value.node];
    for (int32_t i : forward_.nodes) parameters_.push_back(count[i]);
  }

  Status Classify(size_t p, size_t most) {
    const int32_t i = forward_.nodes[p];
    std::string key;
    if (freedom_.only[p] != nullptr) {
      for (const Sharding& s : *freedom_.only[p]) absl::StrAppend(&key, CountsOf(kinds_, s), ";");
    }
    if (given_ != nullptr) absl::StrAppend(&key, " ", CountsOf(kinds_, Others((*given_)[p])));
    const auto [it, fresh] = known_.emplace(std::make_tuple(forward_.kinds[p], parameters_[p], std::move(key)),
                                            static_cast<int>(classes_.size()));
    class_of_.push_back(it->second);
    if (!fresh) return absl::OkStatus();
    Class c;
    if (freedom_.only[p] == nullptr) {
      const Sharding start = given_ != nullptr ? Others((*given_)[p]) : Sharding(forward_.rules[i]);
      c.candidates = Counts(mesh_, forward_.rules[i], Used(), most).Run(start);
      if (c.candidates.size() > most) return absl::ResourceExhaustedError("too many candidates");
      if (freedom_.widest && !shares_ && forward_.data[i]) KeepWidest(&c.candidates);
    } else {
      c.candidates = Fixed(p);
    }
    Price(i, parameters_[p], &c);
    classes_.push_back(std::move(c));
    Class& kept = classes_.back();
    for (const Sharding& s : kept.candidates) kept.pointers.push_back(&s);
    return absl::OkStatus();
  }
  std::vector<Sharding> Fixed(size_t p) const {
    if (given_ != nullptr) return {(*given_)[p]};
    std::vector<Sharding> all;
    std::map<std::string, bool> known;
    for (const Sharding& s : *freedom_.only[p]) {
      Sharding mine = Only(s, /*of_kind=*/true);
      if (known.emplace(CountsOf(kinds_, mine), true).second) all.push_back(std::move(mine));
    }
    return all;
  }

  std::vector<const AxisKind*> Used() const {
    std::vector<const AxisKind*> used;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      if (only_ < 0 || static_cast<size_t>(only_) == k) used.push_back(&kinds_[k]);
    }
    return used;
  }
  // `s` with the axes of the kind at hand alone, or with all others alone.
  Sharding Only(const Sharding& s, bool of_kind) const {
    if (only_ < 0) return s;
    const AxisList& mine = kinds_[only_].axes;
    Sharding out = s;
    for (AxisList& axes : out.factors) {
      AxisList kept;
      for (int8_t a : axes) {
        if ((std::find(mine.begin(), mine.end(), a) != mine.end()) == of_kind) kept.push_back(a);
      }
      axes = std::move(kept);
    }
    return out;
  }
  Sharding Others(const Sharding& s) const { return Only(s, /*of_kind=*/false); }
  void KeepWidest(std::vector<Sharding>* all) const {
    const auto parts = [&](const Sharding& s) {
      int64_t product = 1;
      for (const AxisList& axes : s.factors) product *= mesh_.Size(axes);
      return product;
    };
    int64_t most = 1;
    for (const Sharding& s : *all) most = std::max(most, parts(s));
    all->erase(std::remove_if(all->begin(), all->end(), [&](const Sharding& s) { return parts(s) < most; }),
               all->end());
  }

  void Price(int32_t i, int parameters, Class* c) const {
    std::vector<int64_t> values;
    const int64_t others = shares_ ? mesh_.ranks() / kinds_[only_].parts : 1;
    const Cost base = model_.Share(i, Sharding(forward_.rules[i]), mesh_.ranks());
    const int64_t hidden = model_.HiddenBound(i);
    // Each parameter's gradient hides behind what the node takes beyond its least, too.
    const double hides = base.picoseconds > 0 ? static_cast<double>(hidden) / static_cast<double>(base.picoseconds) : 0;
    const double scale = std::max(0.0, 1 - parameters * hides);
    for (const Sharding& s : c->candidates) {
      if (!shares_) {
        values.push_back(weights_.Of(model_.OfNode(i, s)));
        c->hidden.push_back(model_.Backward(i, s));
        continue;
      }
      Cost cost = model_.Share(i, s, others);
      cost.picoseconds =
          base.picoseconds + static_cast<int64_t>(scale * static_cast<double>(cost.picoseconds - base.picoseconds));
      values.push_back(weights_.Of(cost));
      c->hidden.push_back(hidden);
    }
    c->table = std::make_shared<const std::vector<int64_t>>(std::move(values));
  }

  int NumberOf(const Layout& layout) {
    return layouts_.emplace(layout, static_cast<int>(layouts_.size())).first->second;
  }

  // Bounds of all moves between two lists of layouts. Equal lists of tensors of one size have one matrix, and what does
  // not depend on the tensor is computed once for a pair of layouts.
  const Matrix& CostsOf(const EdgeLayouts::Distinct& from, const EdgeLayouts::Distinct& to, const TensorType& type) {
    std::vector<int64_t> key;
    for (const Layout& l : from.layouts) key.push_back(NumberOf(l));
    key.push_back(-1);
    for (const Layout& l : to.layouts) key.push_back(NumberOf(l));
    key.push_back(type.bytes());
    const auto [known, fresh] = costs_.try_emplace(key);
    Matrix& costs = known->second;
    if (!fresh) return costs;
    const double whole = static_cast<double>(type.bytes());
    costs.reserve(from.layouts.size() * to.layouts.size());
    for (size_t f = 0; f < from.layouts.size(); ++f) {
      for (size_t t = 0; t < to.layouts.size(); ++t) {
        const auto [bound, unknown] = bounds_.try_emplace({key[f], key[from.layouts.size() + 1 + t]});
        MoveBound::Coefficients& c = bound->second;
        if (unknown) c = bound_.Of(from.layouts[f], to.layouts[t]);
        costs.push_back({static_cast<int64_t>(c.Seconds(whole) * 1e12 * (1 - 1e-9)),
                         static_cast<int64_t>(c.bytes * whole * (1 - 1e-9)), 0});
      }
    }
    return costs;
  }

  CostTable TableOf(const ForwardGraph::Tie& tie) {
    const Class &maker = classes_[class_of_[tie.maker]], &reader = classes_[class_of_[tie.reader]];
    const size_t columns = reader.candidates.size();
    std::vector<int64_t> values(maker.candidates.size() * columns, 0);
    for (int number : tie.edges) AddEdge(forward_.edges[number], maker, reader, &values);
    return std::make_shared<const std::vector<int64_t>>(std::move(values));
  }

  void AddEdge(const ForwardGraph::Edge& edge, const Class& maker, const Class& reader, std::vector<int64_t>* values) {
    const TensorType& type = graph_.TypeOf(edge.value);
    const EdgeLayouts l = LayoutsOf(model_, edge, maker.pointers, reader.pointers);
    const Matrix none;
    const Matrix& there = CostsOf(l.made, l.wanted, type);
    const Matrix& back = edge.gradient ? CostsOf(l.gradient_made, l.gradient_wanted, type) : none;
    const Matrix& plain = weights_.relayout_weight > 0 ? CostsOf(l.reduced, l.wanted, type) : none;
    const size_t wanted = l.wanted.layouts.size(), gradient_wanted = l.gradient_wanted.layouts.size();
    const bool bytes_count = weights_.byte_weight > 0;
    int64_t* out = values->data();
    for (size_t m = 0; m < maker.candidates.size(); ++m) {
      for (size_t r = 0; r < reader.candidates.size(); ++r, ++out) {
        const Cost& f = there[l.made.of[m] * wanted + l.wanted.of[r]];
        const Cost b = edge.gradient ? back[l.gradient_made.of[r] * gradient_wanted + l.gradient_wanted.of[m]] : Cost();
        const int64_t picoseconds = model_.Joined(edge, f.picoseconds, b.picoseconds, reader.hidden[r]);
        *out += bytes_count ? weights_.Of({picoseconds, f.bytes + b.bytes, 0}) : weights_.time_weight * picoseconds;
        if (weights_.relayout_weight > 0)
          *out += weights_.relayout_weight * plain[l.reduced.of[m] * wanted + l.wanted.of[r]].bytes;
      }
    }
  }

  const Graph& graph_;
  const ForwardGraph& forward_;
  const CostModel& model_;
  const Mesh& mesh_;
  const std::vector<AxisKind>& kinds_;
  const int only_;
  const std::vector<Sharding>* const given_;
  const bool shares_;
  const Freedom& freedom_;
  const Weights& weights_;
  const MoveBound bound_;
  std::vector<int> parameters_, class_of_;  // by position
  std::vector<Class> classes_;
  std::map<std::tuple<int, int, std::string>, int> known_;
  absl::flat_hash_map<Layout, int> layouts_;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, MoveBound::Coefficients> bounds_;  // of pairs of layouts
  std::map<std::vector<int64_t>, Matrix> costs_;
  std::vector<int> domains_, order_;
  Effort effort_;
  std::vector<CostTerm> terms_;
};

class Alikes {
 public:
  Alikes(const std::vector<AxisKind>& kinds, const Mesh& mesh, const Sharding& s, size_t limit)
      : mesh_(mesh), limit_(limit), kind_(mesh.axes()) {
    now_.factors.resize(s.factors.size());
    for (size_t k = 0; k < kinds.size(); ++k) {
      left_.emplace_back(s.factors.size() + 1, 0);
      for (int8_t a : kinds[k].axes) kind_[a] = static_cast<int>(k);
      left_[k].back() = static_cast<int>(kinds[k].axes.size());
    }
    for (size_t f = 0; f < s.factors.size(); ++f) {
      for (int8_t a : s.factors[f]) ++left_[kind_[a]][f], --left_[kind_[a]].back();
    }
  }
  std::vector<Sharding> Run() {
    Give(0);
    if (found_.size() > limit_) found_.clear();
    return std::move(found_);
  }

 private:
  void Give(int axis) {
    if (found_.size() > limit_) return;
    if (axis == mesh_.axes()) {
      found_.push_back(now_);
      return;
    }
    std::vector<int>& left = left_[kind_[axis]];
    for (size_t f = 0; f < left.size(); ++f) {
      if (left[f] == 0) continue;
      --left[f];
      if (f < now_.factors.size()) now_.factors[f].push_back(static_cast<int8_t>(axis));
      Give(axis + 1);
      if (f < now_.factors.size()) now_.factors[f].pop_back();
      ++left[f];
    }
  }

  const Mesh& mesh_;
  const size_t limit_;
  std::vector<int> kind_;               // by axis
  std::vector<std::vector<int>> left_;  // by kind and factor; last: axes that cut nothing
  Sharding now_;
  std::vector<Sharding> found_;
};

}  // namespace

std::string CountsOf(const std::vector<AxisKind>& kinds, const Sharding& sharding) {
  std::string text;
  for (const AxisKind& kind : kinds) {
    for (const AxisList& axes : sharding.factors)
      text.push_back(static_cast<char>('0' + std::count_if(axes.begin(), axes.end(), [&](int8_t a) {
                                         return std::find(kind.axes.begin(), kind.axes.end(), a) != kind.axes.end();
                                       })));
  }
  return text;
}

Relaxation::Relaxation(const Graph& graph, const ForwardGraph& forward, const Cluster& cluster, const CostModel& model,
                       const Mesh& mesh)
    : graph_(graph),
      forward_(forward),
      cluster_(cluster),
      model_(model),
      mesh_(mesh),
      kinds_(KindsOf(mesh, cluster.links)) {}

StatusOr<Relaxed> Relaxation::Solve(const Freedom& freedom, const Weights& weights, bool marginals) const {
  CountProblem together(graph_, forward_, cluster_, model_, mesh_, kinds_, -1, nullptr, freedom, weights);
  const Status built = together.Build(kMaxCounts);
  if (!built.ok()) return kinds_.size() > 1 ? OneByOne(freedom, weights) : StatusOr<Relaxed>(built);
  marginals &= together.effort().total <= kMaxForMarginals;
  Relaxed out;
  std::vector<std::vector<int64_t>> least;
  const Minimum minimum = together.Solve(marginals ? &least : nullptr);
  out.bound = minimum.cost;
  out.least.resize(least.size());
  for (size_t p = 0; p < forward_.nodes.size(); ++p) {
    const std::vector<Sharding>& all = together.Candidates(p);
    out.shardings.push_back(all[minimum.values[p]]);
    for (size_t c = 0; marginals && c < all.size(); ++c) out.least[p].emplace_back(all[c], least[p][c]);
  }
  return out;
}

StatusOr<Relaxed> Relaxation::OneByOne(const Freedom& freedom, const Weights& weights) const {
  Relaxed out;
  int64_t base = 0;  // counted once for each kind
  for (int32_t i : forward_.nodes) base += weights.Of(model_.Share(i, Sharding(forward_.rules[i]), mesh_.ranks()));
  out.bound = base;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    CountProblem one(graph_, forward_, cluster_, model_, mesh_, kinds_, static_cast<int>(k), nullptr, freedom, weights);
    RETURN_IF_ERROR(one.Build(kMaxCounts));
    out.bound += one.Solve(nullptr).cost - base - 4 * static_cast<int64_t>(forward_.nodes.size());  // what was rounded
  }
  return out;
}

StatusOr<int64_t> Relaxation::Improve(const Freedom& freedom, const Weights& weights,
                                      std::vector<Sharding>* shardings) const {
  int64_t best = std::numeric_limits<int64_t>::max();
  for (size_t same = 0, k = kinds_.size() - 1; same < kinds_.size(); k = (k + kinds_.size() - 1) % kinds_.size()) {
    CountProblem one(graph_, forward_, cluster_, model_, mesh_, kinds_, static_cast<int>(k), shardings, freedom,
                     weights);
    RETURN_IF_ERROR(one.Build(kMaxCounts));
    const Minimum minimum = one.Solve(nullptr);
    same = minimum.cost < best ? 1 : same + 1;
    if (minimum.cost >= best) continue;
    best = minimum.cost;
    std::vector<Sharding> now;
    for (size_t p = 0; p < forward_.nodes.size(); ++p) now.push_back(one.Candidates(p)[minimum.values[p]]);
    *shardings = std::move(now);
  }
  return best;
}

std::vector<Sharding> Relaxation::Alike(const Sharding& s, size_t limit) const {
  return Alikes(kinds_, mesh_, s, limit).Run();
}

}  // namespace mslua
