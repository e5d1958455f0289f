#include "core/sharding/move_bound.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mslua {

std::vector<AxisKind> KindsOf(const Mesh& mesh, const LinkCosts& links) {
  std::vector<AxisKind> kinds;
  for (int a = 0; a < mesh.axes(); ++a) {
    const LinkCosts::Link link = links.axes.empty() ? LinkCosts::Link() : links.axes[static_cast<size_t>(a)];
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const AxisKind& k) {
      return k.size == mesh.size(a) && k.link.alpha == link.alpha && k.link.beta == link.beta;
    });
    if (kind == kinds.end()) {
      kinds.push_back({{}, mesh.size(a), 1, link});
      kind = kinds.end() - 1;
    }
    kind->axes.push_back(static_cast<int8_t>(a));
    kind->parts *= mesh.size(a);
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const AxisKind& a, const AxisKind& b) { return a.link.beta > b.link.beta; });
  return kinds;
}

MoveBound::MoveBound(const Mesh& mesh, const LinkCosts& links, int only)
    : axes_(mesh.axes()), kinds_(KindsOf(mesh, links)), only_(only), copy_beta_(links.copy_beta) {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const AxisKind& kind = kinds_[k];
    for (int8_t a : kind.axes) kind_of_[a] = static_cast<int8_t>(k);
    others_.push_back(static_cast<double>(mesh.ranks() / kind.parts));
    rounds_.push_back(std::log2(static_cast<double>(kind.size)));
    powers_.emplace_back();
    for (int n = -kMaxPower; n <= kMaxPower; ++n)
      powers_.back()[static_cast<size_t>(n + kMaxPower)] = std::pow(static_cast<double>(kind.size), n);
  }
  if (MayExchange(mesh)) exchange_messages_ = MessagesOfExchange(mesh);
}

MoveBound::Uses MoveBound::UsesOf(const Layout& layout) const {
  Uses uses;
  uses.kinds.resize(kinds_.size());
  for (int a = 0; a < axes_; ++a) {
    Uses::OfKind& kind = uses.kinds[kind_of_[a]];
    const Layout::Use use = layout.UseOf(a);
    kind.partial += use == Layout::Use::kPartial;
    if (use != Layout::Use::kDim) continue;
    ++kind.shards[layout.DimOf(a)];
    ++kind.all;
  }
  return uses;
}

// Steps that change how large parts are: an all-gather of q parts receives q - 1 of them, a reduce-scatter of q parts
// all but a q-th of one, an all-reduce as both. Slices are free. What a device wants and has not before comes by
// all-gathers, all-to-alls and permutations, which do not change how often each dimension is sharded.
MoveBound::Part MoveBound::Along(size_t k, const Uses::OfKind& from, const Uses::OfKind& to, bool conflict) const {
  int common = 0, joined = 0;  // shards of the best overlap; shards of dimensions that are joined
  for (int d = 0; d < kMaxRank; ++d) {
    common += std::max(from.shards[d], to.shards[d]);
    joined += std::max(0, from.shards[d] - to.shards[d]);
  }
  Part part;
  part.has = from.all;
  part.wants = to.all;
  part.summed = from.partial - to.partial;
  const double want = Power(k, -part.wants), lacks = conflict ? want : want - Power(k, -common);
  if (part.summed > 0) {
    // Before it is reduced a part can be sliced along the axes that replicate it: to summed / parts at least.
    const double summed = Power(k, part.summed), parts = static_cast<double>(kinds_[k].parts);
    part.received = std::max(want + (summed - 2) / parts, lacks + (summed - 1) / parts);
    part.reduced = (summed - 1) / parts;
    part.rounds = SumRounds(Rounds(k, part.summed), Rounds(k, joined),
                            Rounds(k, std::max(0, part.summed + part.has - part.wants)));
    part.moves = true;
    return part;
  }
  part.received = lacks;
  part.moves = joined > 0 || conflict;
  if (part.moves)
    part.rounds = Rounds(k, kinds_.size() == 1 ? joined : std::max(0, part.has - part.wants));
  else if (part.wants > part.has)
    part.copied = want;
  return part;
}

// Messages, without the first, that reduce, join parts and make parts larger, each by so many rounds.
double MoveBound::SumRounds(double sum, double joined, double grow) const {
  if (kinds_.size() > 1) return sum + grow;
  if (joined > 0) return 1 + sum + std::max(joined, grow);
  // One reduction for all that leaves parts small or whole, or two steps.
  return grow == 0 ? sum : std::min(2 * sum, 1 + sum + grow);
}

// A step over several kinds sends all its rounds by the slowest; kinds that are in none of these, of one speed, have a
// step of their own.
double MoveBound::SeparateRounds(const Parts& parts, size_t sliced) const {
  double seconds = 0, slowest = 0;
  absl::InlinedVector<double, 3> rounds;
  for (size_t k = 0; k < parts.size(); ++k) {
    rounds.push_back(std::max(parts[k].rounds, Crosses(parts[k]) ? 1.0 : 0.0) + (k == sliced ? Rounds(k, 1) : 0));
    if (rounds[k] == 0) continue;
    seconds += kinds_[k].link.alpha * rounds[k];
    slowest = std::max(slowest, kinds_[k].link.alpha);
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    const double alpha = kinds_[k].link.alpha;
    if (rounds[k] == 0 || alpha == slowest) continue;
    double next = slowest, alike = 0;  // rounds of kinds of this speed
    bool first = true;
    for (size_t j = 0; j < parts.size(); ++j) {
      if (rounds[j] > 0 && kinds_[j].link.alpha > alpha) next = std::min(next, kinds_[j].link.alpha);
      if (kinds_[j].link.alpha != alpha) continue;
      first &= j >= k || rounds[j] == 0;
      alike += rounds[j];
    }
    if (first) seconds += std::min(alpha, (next - alpha) * alike);
  }
  return seconds + slowest;
}

// What messages start takes. A permutation, of two rounds, can put fast axes in the place of slow ones, but for sums.
double MoveBound::MessageSeconds(const Parts& parts, size_t sliced) const {
  if (kinds_.size() == 1) return kinds_[0].link.alpha * (1 + std::max(parts[0].rounds, 1.0));
  double sums = 0, growth = 0, slowest_sum = 0, least = std::numeric_limits<double>::infinity(), most = 0, crossed = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const double alpha = kinds_[k].link.alpha;
    least = std::min(least, alpha);
    most = std::max(most, alpha);
    growth += Rounds(k, parts[k].has + parts[k].summed - parts[k].wants + (k == sliced ? 1 : 0));
    sums += alpha * Rounds(k, parts[k].summed);
    if (parts[k].summed > 0) slowest_sum = std::max(slowest_sum, alpha);
    if (Crosses(parts[k])) crossed = std::max(crossed, alpha);
  }
  // With two kinds a permutation over both is as slow as the slower.
  const double permuted =
      2 * (kinds_.size() == 2 ? most : std::max(least, crossed)) + sums + slowest_sum + least * std::max(0.0, growth);
  const bool resized = std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.rounds > 0; });
  return std::min(permuted, resized ? SeparateRounds(parts, sliced) : 2 * std::max(least, crossed));
}

bool MoveBound::CanSlice(size_t k, const Part& part) const {
  return std::max(part.has + part.summed, part.wants) < static_cast<int>(kinds_[k].axes.size());
}

// Reductions first along fast axes, then along slow ones, on ever smaller parts; then what devices lack comes along
// fast axes as far as the devices that differ along these have it between them. Replicated axes of a kind may be sliced
// before, which is undone by a gather. `overlap`: of a device's parts before and after, as a part of the tensor.
void MoveBound::Resize(const Parts& parts, double overlap, Coefficients* least) const {
  struct Kind {
    double share[2];       // without and with such slices: of a sum's parts after it
    double kept, reduced;  // of a part by a sum, and the rest
    double reach;          // a device's share of what devices that are alike in this and slower kinds want
    double lacks;          // and of what these lack at least
    bool sliced;
  };
  absl::InlinedVector<Kind, 3> kinds;
  double want = 1, faster = 1;
  bool sums = false;
  for (size_t k = 0; k < parts.size(); ++k) {
    const Part& p = parts[k];
    const int all = static_cast<int>(kinds_[k].axes.size()), most = std::max(p.has + p.summed, p.wants);
    const double kept = Power(k, -p.summed);
    kinds.push_back({{Power(k, p.summed - most), Power(k, p.summed - all)}, kept, 1 - kept, 0, 0, CanSlice(k, p)});
    want *= Power(k, -p.wants);
    sums |= p.summed > 0;
  }
  for (size_t k = parts.size(); k-- > 0;) {
    kinds[k].reach = want / faster;
    faster *= Power(k, static_cast<int>(kinds_[k].axes.size()) - parts[k].wants);
  }
  if (parts[0].summed == 0) kinds[0].lacks = parts[0].received / others_[0];
  if (!sums) kinds.back().lacks = std::max(kinds.back().lacks, want - overlap);
  double seconds[2] = {Coefficients::kNever.seconds, Coefficients::kNever.seconds}, bytes = seconds[0];
  for (uint32_t sliced = 0; sliced < (sums ? 1u << parts.size() : 1u); ++sliced) {
    double now = 1, summed = 1, received = 0, spent = 0;
    bool other = true;  // than with fewer slices
    for (size_t k = 0; k < kinds.size(); ++k) {
      const uint32_t slices = sliced >> k & 1;
      other &= slices == 0 || kinds[k].sliced;
      now *= kinds[k].share[slices];
    }
    if (!other) continue;
    for (size_t k = kinds.size(); k-- > 0;) {
      if (kinds[k].reduced > 0) summed = now;
      received += now * kinds[k].reduced;
      spent += kinds_[k].link.beta * now * kinds[k].reduced;
      now *= kinds[k].kept;
    }
    if (sliced != 0) spent += copy_beta_ * summed;  // a slice is copied, before the last sum
    double came = 0;                                // along kinds so far
    for (size_t k = 0; k < kinds.size(); ++k) {
      const double more = std::max({0.0, kinds[k].reach - now - came, kinds[k].lacks - came});
      spent += kinds_[k].link.beta * more;
      came += more;
    }
    double& best = seconds[sliced == 0 ? 0 : 1];
    best = std::min(best, spent);
    bytes = std::min(bytes, received + came);
  }
  least->sliced.seconds_per_byte = std::max(least->collectives.seconds_per_byte, seconds[1]);
  least->collectives.seconds_per_byte = std::max(least->collectives.seconds_per_byte, seconds[0]);
  least->bytes = std::max(least->bytes, bytes);
}

// Where dimensions are sharded as often as possible along the same axes.
double MoveBound::Overlap(const Uses& from, const Uses& to) const {
  double parts = 1;
  for (int d = 0; d < kMaxRank; ++d) {
    double has = 1, wants = 1;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      has *= Power(k, from.kinds[k].shards[d]);
      wants *= Power(k, to.kinds[k].shards[d]);
    }
    parts *= std::max(has, wants);
  }
  return 1 / parts;
}

// What an exchange and the sums before it take to start.
double MoveBound::ExchangeSeconds(const Parts& parts) const {
  double seconds = 0, least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < parts.size(); ++k) {
    least = std::min(least, kinds_[k].link.alpha);
    seconds += kinds_[k].link.alpha * Rounds(k, parts[k].summed);
  }
  return seconds + exchange_messages_ * least;
}

MoveBound::Conflicts MoveBound::ConflictsOf(const Layout& from, const Layout& to) const {
  Conflicts conflicts;
  for (int d = 0; d < from.rank(); ++d) {
    const AxisList has = from.Dim(d), wants = to.Dim(d);
    const size_t both = std::min(has.size(), wants.size());
    if (std::equal(has.begin(), has.begin() + both, wants.begin())) continue;
    conflicts.all = true;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      const auto next = [&](const AxisList& axes, size_t at) {
        while (at < axes.size() && kind_of_[axes[at]] != static_cast<int8_t>(k)) ++at;
        return at;
      };
      size_t h = next(has, 0), w = next(wants, 0);
      while (h < has.size() && w < wants.size() && has[h] == wants[w]) h = next(has, h + 1), w = next(wants, w + 1);
      if (h < has.size() && w < wants.size()) conflicts.kinds |= 1u << k;
    }
  }
  return conflicts;
}

MoveBound::Coefficients MoveBound::Of(const Uses& from, const Uses& to, const Conflicts& conflicts) const {
  if (from == to && !conflicts.all) return Coefficients();
  if (only_ >= 0) return OfKind(from, to);
  Coefficients least;
  Parts parts;
  double copied = 0;
  bool moves = conflicts.all;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const Part part = Along(k, from.kinds[k], to.kinds[k], (conflicts.kinds >> k & 1) != 0);
    // What comes from devices that differ along this kind's axes comes by steps over them.
    const double bytes = part.received / others_[k], seconds = kinds_[k].link.beta * bytes;
    least.bytes = std::max(least.bytes, bytes);
    least.collectives.seconds_per_byte = std::max(least.collectives.seconds_per_byte, seconds);
    copied = std::max(copied, part.copied / others_[k]);
    moves |= part.moves;
    parts.push_back(part);
  }
  if (exchange_messages_ > 0) least.exchange = {ExchangeSeconds(parts), least.collectives.seconds_per_byte};
  if (!moves) {
    least.collectives.seconds_per_byte += copy_beta_ * copied;
    return least;
  }
  least.collectives.seconds = MessageSeconds(parts, kNone);
  if (kinds_.size() == 1) return least;
  Resize(parts, conflicts.all ? 0 : Overlap(from, to), &least);
  if (std::isinf(least.sliced.seconds_per_byte)) {
    least.sliced = Coefficients::kNever;
    return least;
  }
  for (size_t k = 0; k < kinds_.size(); ++k) {
    if (CanSlice(k, parts[k])) least.sliced.seconds = std::min(least.sliced.seconds, MessageSeconds(parts, k));
  }
  return least;
}

// A step over several kinds counts for the slowest, but for what it reduces, which it could as well have done kind by
// kind.
MoveBound::Coefficients MoveBound::OfKind(const Uses& from, const Uses& to) const {
  const auto only = static_cast<size_t>(only_);
  const AxisKind& kind = kinds_[only];
  const Part part = Along(only, from.kinds[only], to.kinds[only], /*conflict=*/false);
  const double bytes = (only_ == 0 ? part.received : part.reduced) / others_[only];
  Coefficients least;
  least.collectives.seconds_per_byte = kind.link.beta * bytes;
  least.bytes = bytes;
  if (only_ == 0 && part.moves) least.collectives.seconds = kind.link.alpha * (1 + Rounds(only, part.summed));
  return least;
}

double MoveBound::AfterPermutation(const Uses& from, const Uses& to, double whole) const {
  if (kinds_.size() == 1) return Of(from, to).Seconds(whole);  // which axes shard does not matter
  double seconds = 0, slowest_sum = 0, growth = 0, least = std::numeric_limits<double>::infinity(), now = 1;
  double has = 1, want = 1;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const int summed = from.kinds[k].partial - to.kinds[k].partial;
    const double alpha = kinds_[k].link.alpha;
    least = std::min(least, alpha);
    if (summed > 0) slowest_sum = std::max(slowest_sum, alpha);
    seconds += alpha * Rounds(k, summed);
    growth += Rounds(k, from.kinds[k].all + summed - to.kinds[k].all);
    now *= Power(k, summed - static_cast<int>(kinds_[k].axes.size()));
    has *= Power(k, -from.kinds[k].all);
    want *= Power(k, -to.kinds[k].all);
  }
  // Sums of parts that are sliced as far as they can be.
  for (size_t k = kinds_.size(); k-- > 0;) {
    const double kept = Power(k, to.kinds[k].partial - from.kinds[k].partial);
    seconds += kinds_[k].link.beta * whole * now * (1 - kept);
    now *= kept;
  }
  seconds += slowest_sum + least * std::max(0.0, growth) + kinds_.back().link.beta * whole * std::max(0.0, want - has);
  return exchange_messages_ > 0 ? std::min(seconds, exchange_messages_ * least) : seconds;
}

}  // namespace mslua
