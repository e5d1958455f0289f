#include "core/sharding/search/relaxation.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"

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
        if (!CanShard(rule_, static_cast<int>(factor), mesh_.Size(s.factors[factor]))) return;
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
// the others shard, or, without, a bound: nodes cost their share, and gradients hide behind what the node takes at
// least.
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
    std::vector<int> domains;
    std::vector<Variables> terms;
    for (size_t p = 0; p < class_of_.size(); ++p) {
      domains.push_back(static_cast<int>(classes_[class_of_[p]].candidates.size()));
      terms.push_back({static_cast<int>(p)});
    }
    for (const ForwardGraph::Tie& t : forward_.ties) terms.push_back({t.maker, t.reader});
    elimination_ = std::make_unique<const Elimination>(std::move(domains), terms);
    if (effort().largest > kMaxEntries) return absl::ResourceExhaustedError("too large a relaxation");
    return absl::OkStatus();
  }

  const Effort& effort() const { return elimination_->effort(); }

  Minimum Solve(std::vector<std::vector<int64_t>>* marginals) {
    std::vector<CostTable> tables;
    for (int c : class_of_) tables.push_back(classes_[c].table);
    absl::flat_hash_map<std::tuple<int, int, int>, CostTable> known;
    for (const ForwardGraph::Tie& t : forward_.ties) {
      CostTable& table = known[{class_of_[t.maker], class_of_[t.reader], t.kind}];
      if (table == nullptr) table = TableOf(t);
      tables.push_back(table);
    }
    SolvedParts solved;
    return elimination_->Minimise(tables, &solved, marginals);
  }

  const std::vector<Sharding>& Candidates(size_t p) const { return classes_[class_of_[p]].candidates; }

 private:
  // The different ways in which candidates of a node have one of its tensors.
  struct Side {
    int list = 0;         // its number: equal lists have one
    std::vector<int> of;  // by candidate: the number of its way in the list
  };
  enum class Role { kMade, kReduced, kWanted, kGradientMade };
  struct Class {
    int32_t node;  // one of them
    std::vector<Sharding> candidates;
    std::vector<int64_t> hidden;
    CostTable table;
    std::map<std::pair<Role, size_t>, Side> sides;  // by output or input
  };
  // Of moves between the ways of two lists, those of the first major.
  struct Matrix {
    std::vector<int64_t> picoseconds, bytes;  // bytes only where they count
  };

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
    c.node = i;
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
    for (size_t s = 0; !shares_ && s < c->candidates.size(); ++s) {
      values.push_back(weights_.Of(model_.OfNode(i, c->candidates[s])));
      c->hidden.push_back(model_.Backward(i, c->candidates[s]));
    }
    if (shares_) values = Shares(i, parameters, c);
    c->table = std::make_shared<const std::vector<int64_t>>(std::move(values));
  }
  std::vector<int64_t> Shares(int32_t i, int parameters, Class* c) const {
    std::vector<int64_t> values;
    const int64_t others = mesh_.ranks() / kinds_[only_].parts;
    const Cost base = model_.Share(i, Sharding(forward_.rules[i]), mesh_.ranks());
    const int64_t hidden = model_.HiddenBound(i);
    // Each parameter's gradient hides behind what the node takes beyond its least, too.
    const double hides = base.picoseconds > 0 ? static_cast<double>(hidden) / static_cast<double>(base.picoseconds) : 0;
    const double scale = std::max(0.0, 1 - parameters * hides);
    for (const Sharding& s : c->candidates) {
      Cost cost = model_.Share(i, s, others);
      cost.picoseconds =
          base.picoseconds + static_cast<int64_t>(scale * static_cast<double>(cost.picoseconds - base.picoseconds));
      values.push_back(weights_.Of(cost));
      c->hidden.push_back(hidden);
    }
    return values;
  }

  // How candidates have output or input `number`.
  const Side& SideOf(Class& c, Role role, size_t number) {
    const auto [known, fresh] = c.sides.try_emplace({role, number});
    Side& side = known->second;
    if (!fresh) return side;
    const NodeRule& rule = forward_.rules[c.node];
    std::vector<MoveBound::Uses> list;
    absl::flat_hash_map<MoveBound::Uses, int> numbers;
    for (const Sharding& s : c.candidates) {
      Layout layout = role == Role::kWanted         ? InputLayout(rule, s, number)
                      : role == Role::kGradientMade ? GradientLayout(rule, s, number)
                                                    : OutputLayout(rule, s, number);
      if (role == Role::kReduced) layout = layout.WithoutPartial();
      const auto [at, other] = numbers.emplace(bound_.UsesOf(layout), static_cast<int>(list.size()));
      if (other) list.push_back(at->first);
      side.of.push_back(at->second);
    }
    // Lists of the same ways are equal.
    std::vector<MoveBound::Uses> sorted = list;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i) numbers[sorted[i]] = static_cast<int>(i);
    for (int& way : side.of) way = numbers[list[way]];
    const auto [place, unknown] = list_of_.emplace(std::move(sorted), static_cast<int>(lists_.size()));
    if (unknown) lists_.push_back(&place->first);
    side.list = place->second;
    return side;
  }

  // Bounds of all moves of tensors of one size. What does not depend on the size is computed once.
  const Matrix& CostsOf(int from, int to, int64_t bytes) {
    const auto [known, fresh] = costs_.try_emplace({from, to, bytes});
    Matrix& costs = known->second;
    if (!fresh) return costs;
    const std::vector<MoveBound::Coefficients>& all = CoefficientsOf(from, to);
    const double whole = static_cast<double>(bytes);
    costs.picoseconds.reserve(all.size());
    for (const MoveBound::Coefficients& c : all)
      costs.picoseconds.push_back(static_cast<int64_t>(c.Seconds(whole) * (1e12 * (1 - 1e-9))));
    if (!BytesCount()) return costs;
    for (const MoveBound::Coefficients& c : all)
      costs.bytes.push_back(static_cast<int64_t>(c.bytes * whole * (1 - 1e-9)));
    return costs;
  }
  const std::vector<MoveBound::Coefficients>& CoefficientsOf(int from, int to) {
    std::vector<MoveBound::Coefficients>& all = coefficients_[{from, to}];
    if (!all.empty()) return all;
    all.reserve(lists_[from]->size() * lists_[to]->size());
    for (const MoveBound::Uses& f : *lists_[from]) {
      for (const MoveBound::Uses& t : *lists_[to]) all.push_back(bound_.Of(f, t));
    }
    return all;
  }
  bool BytesCount() const { return weights_.byte_weight > 0 || weights_.relayout_weight > 0; }

  CostTable TableOf(const ForwardGraph::Tie& tie) {
    Class &maker = classes_[class_of_[tie.maker]], &reader = classes_[class_of_[tie.reader]];
    std::vector<int64_t> values(maker.candidates.size() * reader.candidates.size(), 0);
    for (int number : tie.edges) AddEdge(forward_.edges[number], maker, reader, &values);
    return std::make_shared<const std::vector<int64_t>>(std::move(values));
  }

  void AddEdge(const ForwardGraph::Edge& edge, Class& maker, Class& reader, std::vector<int64_t>* values) {
    const int64_t size = graph_.TypeOf(edge.value).bytes();
    const auto output = static_cast<size_t>(edge.value.output);
    const Side &made = SideOf(maker, Role::kMade, output), &wanted = SideOf(reader, Role::kWanted, edge.input),
               &reduced = SideOf(maker, Role::kReduced, output);
    const Side& gradient = edge.gradient ? SideOf(reader, Role::kGradientMade, edge.input) : wanted;
    const Matrix none;
    const Matrix& there = CostsOf(made.list, wanted.list, size);
    const Matrix& back = edge.gradient ? CostsOf(gradient.list, reduced.list, size) : none;
    const Matrix& plain = weights_.relayout_weight > 0 ? CostsOf(reduced.list, wanted.list, size) : none;
    const size_t columns = lists_[wanted.list]->size(), gradient_columns = lists_[reduced.list]->size();
    int64_t* out = values->data();
    for (size_t m = 0; m < maker.candidates.size(); ++m) {
      const size_t row = made.of[m] * columns, plain_row = reduced.of[m] * columns;
      for (size_t r = 0; r < reader.candidates.size(); ++r, ++out) {
        const size_t f = row + wanted.of[r], b = gradient.of[r] * gradient_columns + reduced.of[m];
        const int64_t picoseconds =
            model_.Joined(edge, there.picoseconds[f], edge.gradient ? back.picoseconds[b] : 0, reader.hidden[r]);
        *out += BytesCount() ? weights_.Of({picoseconds, there.bytes[f] + (edge.gradient ? back.bytes[b] : 0), 0})
                             : weights_.time_weight * picoseconds;
        if (weights_.relayout_weight > 0) *out += weights_.relayout_weight * plain.bytes[plain_row + wanted.of[r]];
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
  absl::node_hash_map<std::vector<MoveBound::Uses>, int> list_of_;
  std::vector<const std::vector<MoveBound::Uses>*> lists_;
  std::map<std::pair<int, int>, std::vector<MoveBound::Coefficients>> coefficients_;  // of pairs of lists
  std::map<std::tuple<int, int, int64_t>, Matrix> costs_;
  std::unique_ptr<const Elimination> elimination_;
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
  std::vector<std::vector<int>> left_;  // by kind and factor; last: axes that shard nothing
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
