#include "core/sharding/reshard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace mslua {
namespace {

using Unit = AxisList;  // axes that move together, in order

bool Has(const AxisList& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

// Where an axis stands in a layout, comparable between layouts.
int64_t PlaceOf(const Layout& layout, int axis) {
  switch (layout.UseOf(axis)) {
    case Layout::Use::kReplicated:
      return -1;
    case Layout::Use::kPartial:
      return -2;
    case Layout::Use::kDim:
      break;
  }
  const AxisList dim = layout.Dim(layout.DimOf(axis));
  return layout.DimOf(axis) * 16 + (std::find(dim.begin(), dim.end(), axis) - dim.begin());
}

using AxisSet = std::array<bool, Mesh::kMaxAxes>;

// Every selection of units that are not used whose sizes multiply to `product`: in every order, or `in_order` once
// each, from unit `first` on.
template <class Found>
void Selections(const Mesh& mesh, const std::vector<Unit>& units, bool in_order, size_t first, int64_t product,
                AxisSet& used, AxisList& chosen, const Found& found) {
  if (product == 1) return found(chosen);
  for (size_t u = first; u < units.size(); ++u) {
    const int64_t size = mesh.Size(units[u]);
    if (used[units[u][0]] || product % size != 0) continue;
    used[units[u][0]] = true;
    chosen.insert(chosen.end(), units[u].begin(), units[u].end());
    Selections(mesh, units, in_order, in_order ? u + 1 : 0, product / size, used, chosen, found);
    chosen.erase(chosen.end() - static_cast<std::ptrdiff_t>(units[u].size()), chosen.end());
    used[units[u][0]] = false;
  }
}

// The axes of dimensions that are sharded differently in the two layouts.
AxisList ChangingAxes(const Mesh& mesh, const Layout& a, const Layout& b) {
  uint32_t changed = 0;  // dimensions
  const auto dim = [](const Layout& l, int axis) {
    return l.UseOf(axis) == Layout::Use::kDim ? 1u << l.DimOf(axis) : 0;
  };
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (!a.SamePlace(b, axis)) changed |= dim(a, axis) | dim(b, axis);
  }
  AxisList axes;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (((dim(a, axis) | dim(b, axis)) & changed) != 0) axes.push_back(static_cast<int8_t>(axis));
  }
  return axes;
}

// What a rank gets of others in an exchange, at most, in parts of what it has before.
double ExchangedShare(const Mesh& mesh, const Layout& before, const Layout& after) {
  Shape shape;  // the smallest that both layouts divide
  for (int d = 0; d < before.rank(); ++d) shape.push_back(mesh.Size(before.Dim(d)) * mesh.Size(after.Dim(d)));
  const auto elements = [&](const Layout& l) { return static_cast<double>(NumElements(l.Local(mesh, shape))); };
  return (elements(after) - static_cast<double>(LeastOverlap(mesh, before, after, shape))) / elements(before);
}

// A* over layouts: MoveBound says what is left at least.
class Search {
 public:
  Search(const Mesh& mesh, const LinkCosts& links, const MoveBound& bound, const Layout& from, const Layout& to,
         const TensorType& type)
      : mesh_(mesh), links_(links), bound_(bound), from_(from), to_(to), to_uses_(bound.UsesOf(to)), type_(type) {
    FindUnits(/*by_link=*/true);
    if (TooLarge()) FindUnits(/*by_link=*/false);
  }

  // Too many units for an exhaustive search.
  bool TooLarge() const { return units_.size() > 5; }

  // The steps of the cheapest path through layouts whose parts have at most `limit` elements, or where there is none
  // through any; none when there is none either. `plain`: steps of some path.
  bool Find(int64_t limit, const std::vector<ReshardStep>& plain, std::vector<ReshardStep>* steps) {
    const double known = SecondsOf(plain, limit);
    return Run(limit, known, steps) || Run(limit, kInfinity, steps) ||
           Run(std::numeric_limits<int64_t>::max(), kInfinity, steps);
  }

 private:
  struct State {
    double seconds = std::numeric_limits<double>::infinity();
    double left = -1;  // seconds to the goal, at least
    bool done = false;
    ReshardStep step;
  };
  struct Entry {
    double seconds;  // of the whole way, at least
    Layout layout;
    bool permutes;  // the ways on that begin with a permutation
    bool operator<(const Entry& b) const {
      return std::tie(b.seconds, b.layout, b.permutes) < std::tie(seconds, layout, permutes);
    }
  };
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // Infinite when a part gets larger than the limit.
  double SecondsOf(const std::vector<ReshardStep>& steps, int64_t limit) const {
    double seconds = 0;
    for (const ReshardStep& step : steps) {
      if (NumElements(step.after.Local(mesh_, type_.shape)) > limit) return kInfinity;
      seconds += CostOf(mesh_, links_, step, BytesOf(step.before)).seconds;
    }
    return seconds;
  }

  // `known`: seconds of a path.
  bool Run(int64_t limit, double known, std::vector<ReshardStep>* steps) {
    limit_ = limit;
    best_ = known * (1 + 1e-9);
    reached_.clear();
    queue_ = {};
    reached_[from_].seconds = 0;
    queue_.push({0, from_, false});
    while (!queue_.empty()) {
      const auto [unused, layout, permutes] = queue_.top();
      queue_.pop();
      State& state = reached_[layout];
      if (state.done && !permutes) continue;
      state.done = true;
      seconds_ = state.seconds;
      bytes_ = BytesOf(layout);
      if (permutes) {
        Permutes(layout);
        continue;
      }
      if (layout == to_) {
        for (Layout at = to_; at != from_; at = steps->back().before) steps->push_back(reached_[at].step);
        std::reverse(steps->begin(), steps->end());
        return true;
      }
      Expand(layout);
    }
    return false;
  }

  bool Large() const { return mesh_.axes() > 4; }
  // On a small mesh every axis is a unit. On a large one axes that stay where they are are left out, and neighbours
  // that stay neighbours, `by_link` of those with equal links, are one.
  void FindUnits(bool by_link) {
    units_.clear();
    if (!Large()) {
      for (int a = 0; a < mesh_.axes(); ++a) units_.push_back({static_cast<int8_t>(a)});
      return;
    }
    std::vector<bool> moves(mesh_.axes());
    for (int a = 0; a < mesh_.axes(); ++a) moves[a] = PlaceOf(from_, a) != PlaceOf(to_, a);
    for (int d = 0; d < from_.rank(); ++d) {  // what lies under an axis that moves moves too
      for (const Layout* layout : {&from_, &to_}) {
        bool moving = false;
        for (int8_t a : layout->Dim(d)) {
          moving |= moves[a];
          moves[a] = moving;
        }
      }
    }
    for (int a = 0; a < mesh_.axes(); ++a) {
      if (!moves[a]) continue;
      const bool joins = !units_.empty() && Follows(from_, units_.back().back(), a) &&
                         Follows(to_, units_.back().back(), a) && (!by_link || AlikeLinks(units_.back().back(), a));
      if (!joins) units_.emplace_back();
      units_.back().push_back(static_cast<int8_t>(a));
    }
  }
  bool AlikeLinks(int a, int b) const {
    const LinkCosts::Link x = links_.Slowest({static_cast<int8_t>(a)}), y = links_.Slowest({static_cast<int8_t>(b)});
    return x.alpha == y.alpha && x.beta == y.beta;
  }
  static bool Follows(const Layout& layout, int a, int b) {
    const int64_t first = PlaceOf(layout, a), second = PlaceOf(layout, b);
    return first < 0 ? second == first : second == first + 1;
  }

  double BytesOf(const Layout& layout) const {
    return static_cast<double>(NumElements(layout.Local(mesh_, type_.shape)) * SizeOf(type_.dtype));
  }
  void Offer(Move kind, const Layout& before, const Layout& after, const AxisList& axes, int from_dim, int to_dim) {
    ReshardStep step{kind, axes, from_dim, to_dim, before, after};
    const double seconds = seconds_ + CostOf(mesh_, links_, step, bytes_).seconds;
    if (seconds >= best_ || NumElements(after.Local(mesh_, type_.shape)) > limit_) return;
    State& state = reached_[after];
    if (seconds >= state.seconds) return;
    if (state.left < 0) state.left = LeftAtLeast(after);
    if (seconds + state.left >= best_) return;
    if (after == to_) best_ = seconds;
    state.seconds = seconds;
    state.step = std::move(step);
    state.done = false;  // what is left is a bound, not a distance, so that a better way may come later
    queue_.push({seconds + state.left, after, false});
  }
  double LeftAtLeast(const Layout& layout) const {
    return bound_.Of(layout, to_).Seconds(static_cast<double>(type_.bytes())) * (1 - 1e-9);
  }

  bool Fits(const Layout& layout, int d, const AxisList& axes) const {
    return type_.shape[d] % (mesh_.Size(layout.Dim(d)) * mesh_.Size(axes)) == 0;
  }

  void Expand(const Layout& layout) {
    for (const Unit& unit : units_) {
      if (layout.UseOf(unit[0]) != Layout::Use::kReplicated) continue;
      OfferShards(Move::kSlice, layout, layout, unit);
    }
    Partials(layout);
    for (int d = 0; d < layout.rank(); ++d) Suffixes(layout, d);
    // Two permutations, one after the other, cost no less than the one that does both.
    if (layout == from_ || reached_[layout].step.kind != Move::kPermute) OfferPermutes(layout);
    Exchange(layout);
  }

  // Every rank gets the elements that it lacks, and no others. No chain of steps to the same end and no exchange on the
  // way receives less, so that one of `from_`, or of what its sums leave, will do.
  void Exchange(const Layout& layout) {
    if (layout.partial() || to_.partial() || !MayExchange(mesh_)) return;
    if (layout != from_ && !from_.partial()) return;
    const AxisList axes = ChangingAxes(mesh_, layout, to_);
    if (axes.empty() || seconds_ + links_.Slowest(axes).alpha * MessagesOfExchange(mesh_) >= best_) return;
    if (ExchangedShare(mesh_, layout, to_) > 0) Offer(Move::kExchange, layout, to_, axes, -1, -1);
  }

  // `base`, which is `layout` without the use of `axes` so far, with these axes appended to each dimension in turn.
  void OfferShards(Move kind, const Layout& layout, const Layout& base, const AxisList& axes, int from_dim = -1) {
    for (int d = 0; d < layout.rank(); ++d) {
      if (d == from_dim || !Fits(base, d, axes)) continue;
      Layout after = base;
      for (int8_t a : axes) after.Append(d, a);
      Offer(kind, layout, after, axes, from_dim, d);
    }
  }

  void Partials(const Layout& layout) {
    std::vector<Unit> partial;
    for (const Unit& unit : units_) {
      if (layout.UseOf(unit[0]) == Layout::Use::kPartial && to_.UseOf(unit[0]) != Layout::Use::kPartial)
        partial.push_back(unit);
    }
    for (uint32_t set = 1; set < 1u << partial.size(); ++set) {
      std::vector<Unit> chosen;
      for (size_t u = 0; u < partial.size(); ++u) {
        if (set >> u & 1) chosen.push_back(partial[u]);
      }
      std::vector<size_t> order(chosen.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      bool first = true;
      do {
        AxisList axes;
        for (size_t i : order) axes.insert(axes.end(), chosen[i].begin(), chosen[i].end());
        Layout base = layout;
        for (int8_t a : axes) base.Remove(a);
        if (first) Offer(Move::kAllReduce, layout, base, axes, -1, -1);
        first = false;
        OfferShards(Move::kReduceScatter, layout, base, axes);
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }

  // Collectives over the minor-most axes of dimension d, one unit after another.
  void Suffixes(const Layout& layout, int d) {
    const AxisList dim = layout.Dim(d);
    Layout base = layout;
    AxisList axes;
    for (size_t left = dim.size(); left > 0;) {
      const auto unit =
          std::find_if(units_.begin(), units_.end(), [&](const Unit& u) { return Has(u, dim[left - 1]); });
      if (unit == units_.end()) return;
      left -= unit->size();
      axes.insert(axes.begin(), unit->begin(), unit->end());
      for (auto a = unit->rbegin(); a != unit->rend(); ++a) base.Remove(*a);
      Offer(Move::kAllGather, layout, base, axes, d, -1);
      OfferShards(Move::kAllToAll, layout, base, axes, d);
    }
  }

  // There are many, and few of the best ways have one: they are made when nothing else is as good.
  void OfferPermutes(const Layout& layout) {
    const LinkCosts::Link link = links_.Fastest();
    const double left = bound_.AfterPermutation(bound_.UsesOf(layout), to_uses_, static_cast<double>(type_.bytes()));
    const double seconds = seconds_ + 2 * link.alpha + link.beta * bytes_ + left * (1 - 1e-9);
    if (seconds < best_) queue_.push({seconds, layout, true});
  }
  // Whole parts change places: every layout with as many parts in each dimension; on a large mesh of those that differ
  // in the order of a dimension's axes one, which has what stays there in the end first.
  void Permutes(const Layout& layout) {
    std::vector<Unit> free;
    for (const Unit& unit : units_) {
      if (layout.UseOf(unit[0]) != Layout::Use::kPartial) free.push_back(unit);
    }
    Layout base = layout;
    std::vector<int64_t> products;
    for (int d = 0; d < layout.rank(); ++d) {
      AxisList fixed;
      int64_t product = 1;
      for (int8_t a : layout.Dim(d)) {
        const bool moves = std::any_of(free.begin(), free.end(), [a](const Unit& u) { return Has(u, a); });
        if (moves)
          product *= mesh_.size(a);
        else
          fixed.push_back(a);
      }
      products.push_back(product);
      base.SetDim(d, fixed);
    }
    std::vector<std::vector<Unit>> units(products.size(), free);
    for (size_t d = 0; d < units.size() && Large(); ++d) {
      const auto place = [&](const Unit& u) {
        return std::make_pair(to_.UseOf(u[0]) != Layout::Use::kDim || to_.DimOf(u[0]) != static_cast<int>(d),
                              PlaceOf(to_, u[0]));
      };
      std::stable_sort(units[d].begin(), units[d].end(),
                       [&](const Unit& a, const Unit& b) { return place(a) < place(b); });
    }
    AxisSet used{};
    PermuteFrom(layout, base, 0, products, units, used);
  }
  void PermuteFrom(const Layout& layout, const Layout& base, int d, const std::vector<int64_t>& products,
                   const std::vector<std::vector<Unit>>& units, AxisSet& used) {
    if (d == layout.rank()) {
      if (base == layout) return;
      return Offer(Move::kPermute, layout, base, ChangingAxes(mesh_, layout, base), -1, -1);
    }
    AxisList chosen;
    const auto at = static_cast<size_t>(d);
    Selections(mesh_, units[at], Large(), 0, products[at], used, chosen, [&](const AxisList& axes) {
      Layout next = base;
      for (int8_t a : axes) next.Append(d, a);
      PermuteFrom(layout, next, d + 1, products, units, used);
    });
  }

  const Mesh& mesh_;
  const LinkCosts& links_;
  const MoveBound& bound_;
  const Layout from_, to_;
  const MoveBound::Uses to_uses_;
  const TensorType& type_;
  std::vector<Unit> units_;
  int64_t limit_ = 0;
  double seconds_ = 0, bytes_ = 0;  // of the layout that is expanded
  double best_ = 0;                 // of the best way to the goal so far
  absl::flat_hash_map<Layout, State> reached_;
  std::priority_queue<Entry> queue_;
};

// All sums first, then everything that differs is gathered and sharded again.
std::vector<ReshardStep> PlainSteps(const Layout& from, const Layout& to) {
  std::vector<ReshardStep> steps;
  Layout at = from;
  AxisList sums;
  for (int8_t a : from.Partial()) {
    if (to.UseOf(a) == Layout::Use::kPartial) continue;
    sums.push_back(a);
    at.Remove(a);
  }
  if (!sums.empty()) steps.push_back({Move::kAllReduce, sums, -1, -1, from, at});
  for (int d = 0; d < from.rank(); ++d) {
    const AxisList have = at.Dim(d), want = to.Dim(d);
    size_t same = 0;
    while (same < have.size() && same < want.size() && have[same] == want[same]) ++same;
    const AxisList rest(have.begin() + same, have.end());
    if (rest.empty()) continue;
    const Layout before = at;
    for (auto a = rest.rbegin(); a != rest.rend(); ++a) at.Remove(*a);
    steps.push_back({Move::kAllGather, rest, d, -1, before, at});
  }
  if (at != to) steps.push_back({Move::kSlice, {}, -1, -1, at, to});
  return steps;
}

// Neighbouring slices are one.
void MergeSlices(std::vector<ReshardStep>* steps) {
  std::vector<ReshardStep> out;
  for (ReshardStep& step : *steps) {
    if (step.kind == Move::kSlice && !out.empty() && out.back().kind == Move::kSlice)
      out.back().after = step.after;
    else
      out.push_back(std::move(step));
  }
  *steps = std::move(out);
}

// One box of an exchange, in the order in which all ranks go through theirs: in each round a rank has one partner.
struct Box {
  size_t round;
  int64_t source, target;
  std::vector<int64_t> places;  // where it begins in the source, in the target, its sizes
};

// What `target` takes of the part that `source` has.
absl::optional<Box> BoxOf(const Mesh& mesh, const ReshardStep& step, int64_t source, int64_t target,
                          const Shape& shape) {
  const Shape have = step.before.Local(mesh, shape), want = step.after.Local(mesh, shape);
  const Shape h = step.before.Begin(mesh, shape, source), w = step.after.Begin(mesh, shape, target);
  std::vector<int64_t> in_target, sizes;
  Box box{0, source, target, {}};
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t begin = std::max(h[d], w[d]), end = std::min(h[d] + have[d], w[d] + want[d]);
    if (begin >= end) return absl::nullopt;
    box.places.push_back(begin - h[d]);
    in_target.push_back(begin - w[d]);
    sizes.push_back(end - begin);
  }
  box.places.insert(box.places.end(), in_target.begin(), in_target.end());
  box.places.insert(box.places.end(), sizes.begin(), sizes.end());
  return box;
}

// The messages of an exchange that `rank` sends or gets. A rank takes what it lacks from the rank that is like it along
// the axes that do not shard the tensor.
std::vector<int64_t> Messages(const Mesh& mesh, const ReshardStep& step, int64_t rank, const Shape& shape) {
  AxisList sharding;
  for (int a = 0; a < mesh.axes(); ++a) {
    if (step.before.UseOf(a) == Layout::Use::kDim) sharding.push_back(static_cast<int8_t>(a));
  }
  const std::vector<int64_t> likes = mesh.Group(rank, sharding);  // sources of one rank are targets of each
  const size_t me = static_cast<size_t>(std::find(likes.begin(), likes.end(), rank) - likes.begin());
  std::vector<Box> boxes;
  const auto add = [&](int64_t source, int64_t target, size_t other) {
    absl::optional<Box> box = BoxOf(mesh, step, source, target, shape);
    if (!box) return;
    box->round = (me + other) % likes.size();  // no rank has two partners of one round
    boxes.push_back(*std::move(box));
  };
  for (size_t other = 0; other < likes.size(); ++other) {
    add(likes[other], rank, other);
    if (other != me) add(rank, likes[other], other);
  }
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) {
    return std::make_pair(a.round, a.source) < std::make_pair(b.round, b.source);
  });
  std::vector<int64_t> messages;
  for (const Box& box : boxes) {
    messages.insert(messages.end(), {box.source, box.target});
    messages.insert(messages.end(), box.places.begin(), box.places.end());
  }
  return messages;
}

// For each rank of `group`, the rank whose part it takes in a permutation.
std::vector<int64_t> Sources(const Mesh& mesh, const std::vector<int64_t>& group, const ReshardStep& step,
                             const Shape& shape) {
  std::vector<int64_t> sources(group.size(), -1);
  std::vector<bool> given(group.size(), false);
  std::vector<Shape> has, wants;
  for (int64_t r : group) {
    has.push_back(step.before.Begin(mesh, shape, r));
    wants.push_back(step.after.Begin(mesh, shape, r));
  }
  for (size_t i = 0; i < group.size(); ++i) {
    if (has[i] == wants[i]) sources[i] = group[i], given[i] = true;
  }
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = 0; sources[i] < 0 && j < group.size(); ++j) {
      if (!given[j] && has[j] == wants[i]) sources[i] = group[j], given[j] = true;
    }
  }
  return sources;
}

}  // namespace

const char* Name(Move kind) {
  constexpr const char* kNames[] = {"strided_slice", "reduce_scatter", "collective_permute", "all_to_all", "all_reduce",
                                    "all_gather",    "exchange"};
  return kNames[static_cast<int>(kind)];
}

StepCost CostOf(const Mesh& mesh, const LinkCosts& links, const ReshardStep& step, double bytes) {
  const LinkCosts::Link link = links.Slowest(step.axes);
  const double n = static_cast<double>(mesh.Size(step.axes)), rounds = std::log2(n);
  double received = 0, messages = 1 + rounds;
  switch (step.kind) {
    case Move::kSlice:
      return {links.copy_beta * bytes / n, 0};
    case Move::kReduceScatter:
    case Move::kAllToAll:
      received = bytes * (n - 1) / n;
      break;
    case Move::kPermute:
      received = bytes;
      messages = 2;
      break;
    case Move::kAllReduce:
      received = 2 * bytes * (n - 1) / n;
      messages = 1 + 2 * rounds;
      break;
    case Move::kAllGather:
      received = bytes * (n - 1);
      break;
    case Move::kExchange:
      received = bytes * ExchangedShare(mesh, step.before, step.after);
      messages = MessagesOfExchange(mesh);
      break;
  }
  return {link.alpha * messages + link.beta * received, received};
}

namespace {

using Names = std::array<int8_t, Mesh::kMaxAxes>;

// New names of the axes: those of one kind in the order in which `from`, then `to`, uses them.
Names CanonicalNames(const std::vector<AxisKind>& kinds, const Layout& from, const Layout& to) {
  Names names;
  std::iota(names.begin(), names.end(), static_cast<int8_t>(0));
  const auto place = [&](int8_t axis) { return std::make_pair(PlaceOf(from, axis), PlaceOf(to, axis)); };
  for (const AxisKind& kind : kinds) {
    AxisList used = kind.axes;
    std::stable_sort(used.begin(), used.end(), [&](int8_t a, int8_t b) { return place(a) < place(b); });
    for (size_t i = 0; i < used.size(); ++i) names[used[i]] = kind.axes[i];
  }
  return names;
}

// The same steps along the axes that have the new names.
ReshardPlan Renamed(const ReshardPlan& plan, const Names& names) {
  ReshardPlan out = plan;
  for (ReshardStep& step : out.steps) {
    for (int8_t& axis : step.axes) axis = names[axis];
    step.before = step.before.Renamed(names);
    step.after = step.after.Renamed(names);
  }
  return out;
}

}  // namespace

Resharder::Resharder(Mesh mesh, LinkCosts links)
    : mesh_(std::move(mesh)), links_(std::move(links)), kinds_(KindsOf(mesh_, links_)), bound_(mesh_, links_) {}

StatusOr<const ReshardPlan*> Resharder::Plan(const Layout& from, const Layout& to, const TensorType& type) {
  const auto known = plans_.find({from, to, type.shape, SizeOf(type.dtype)});
  if (known != plans_.end()) return known->second.get();
  const Names names = CanonicalNames(kinds_, from, to);
  const Layout same_from = from.Renamed(names), same_to = to.Renamed(names);
  std::unique_ptr<ReshardPlan> plan;
  if (same_from == from && same_to == to) {
    ASSIGN_OR_RETURN(plan, Make(from, to, type));
  } else {
    // Axes of one kind are as good as one another.
    ASSIGN_OR_RETURN(const ReshardPlan* same, Plan(same_from, same_to, type));
    Names back;
    for (int a = 0; a < Mesh::kMaxAxes; ++a) back[names[a]] = static_cast<int8_t>(a);
    plan = std::make_unique<ReshardPlan>(Renamed(*same, back));
  }
  return plans_.emplace(std::make_tuple(from, to, type.shape, SizeOf(type.dtype)), std::move(plan)).first->second.get();
}

StatusOr<std::unique_ptr<ReshardPlan>> Resharder::Make(const Layout& from, const Layout& to,
                                                       const TensorType& type) const {
  const auto bad = [&](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("resharding ", ToString(type), " from ", from.ToString(), " to ", to.ToString(), ": ", what));
  };
  if (from.rank() != type.rank() || to.rank() != type.rank()) return bad("another number of dimensions");
  if (!from.Divides(mesh_, type.shape) || !to.Divides(mesh_, type.shape)) return bad("a dimension does not divide");
  for (int8_t a : to.Partial()) {
    if (from.UseOf(a) != Layout::Use::kPartial || from.reduction() != to.reduction())
      return bad("no collective makes a partial value");
  }
  auto fresh = std::make_unique<ReshardPlan>();
  const int64_t limit = std::max(NumElements(from.Local(mesh_, type.shape)), NumElements(to.Local(mesh_, type.shape)));
  Search search(mesh_, links_, bound_, from, to, type);
  std::vector<ReshardStep> plain = PlainSteps(from, to);
  if (search.TooLarge())
    fresh->steps = std::move(plain);
  else if (from != to && !search.Find(limit, plain, &fresh->steps))
    return bad("no path");
  for (const ReshardStep& step : fresh->steps) {
    const auto bytes = [&](const Layout& l) { return NumElements(l.Local(mesh_, type.shape)) * SizeOf(type.dtype); };
    const StepCost cost = CostOf(mesh_, links_, step, static_cast<double>(bytes(step.before)));
    fresh->seconds += cost.seconds;
    fresh->bytes_received += cost.bytes_received;
    fresh->peak_bytes = std::max(fresh->peak_bytes, bytes(step.before) + bytes(step.after));
  }
  MergeSlices(&fresh->steps);
  return fresh;
}

Value EmitReshard(GraphBuilder& g, const Mesh& mesh, int64_t rank, const ReshardPlan& plan, Value x,
                  const TensorType& type) {
  for (const ReshardStep& step : plan.steps) {
    const std::vector<int64_t> group = mesh.Group(rank, step.axes);
    Attrs attrs;
    if (step.kind != Move::kSlice) attrs.Set("group", group);
    switch (step.kind) {
      case Move::kSlice: {
        const Shape had = step.before.Begin(mesh, type.shape, rank), has = step.after.Begin(mesh, type.shape, rank),
                    size = step.after.Local(mesh, type.shape);
        std::vector<int64_t> begin, end;
        for (size_t d = 0; d < had.size(); ++d) {
          begin.push_back(has[d] - had[d]);
          end.push_back(begin.back() + size[d]);
        }
        attrs.Set("begin", std::move(begin)).Set("end", std::move(end));
        break;
      }
      case Move::kReduceScatter:
        attrs.Set("op", std::string(Name(step.before.reduction()))).Set("axis", int64_t{step.to_dim});
        break;
      case Move::kPermute: {
        const std::vector<int64_t> sources = Sources(mesh, group, step, type.shape);
        const auto me = std::find(group.begin(), group.end(), rank) - group.begin();
        const auto taker = std::find(sources.begin(), sources.end(), rank) - sources.begin();
        attrs.Set("source", sources[static_cast<size_t>(me)]).Set("target", group[static_cast<size_t>(taker)]);
        break;
      }
      case Move::kAllToAll:
        attrs.Set("split_axis", int64_t{step.to_dim}).Set("concat_axis", int64_t{step.from_dim});
        break;
      case Move::kAllReduce:
        attrs.Set("op", std::string(Name(step.before.reduction())));
        break;
      case Move::kAllGather:
        attrs.Set("axis", int64_t{step.from_dim});
        break;
      case Move::kExchange: {
        const Shape size = step.after.Local(mesh, type.shape);
        attrs.Set("shape", std::vector<int64_t>(size.begin(), size.end()))
            .Set("messages", Messages(mesh, step, rank, type.shape));
        break;
      }
    }
    x = g.Op(Name(step.kind), {x}, std::move(attrs));
  }
  return x;
}

}  // namespace mslua
