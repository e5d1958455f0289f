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
    : kinds_(KindsOf(mesh, links)), only_(only), copy_beta_(links.copy_beta) {
  for (const AxisKind& kind : kinds_) {
    others_.push_back(static_cast<double>(mesh.ranks() / kind.parts));
  }
  if (MayExchange(mesh)) exchange_messages_ = MessagesOfExchange(mesh);
}

// Steps that change how large parts are: an all-gather of q parts receives q - 1 of them, a reduce-scatter of q parts
// all but a q-th of one, an all-reduce as both. Slices are free. What a device wants and has not before comes by
// all-gathers, all-to-alls and permutations, which leave alone how often each dimension is cut.
MoveBound::Part MoveBound::Along(const AxisKind& kind, const Layout& from, const Layout& to) const {
  std::array<double, kMaxRank> has, wants;
  has.fill(1);
  wants.fill(1);
  const double size = static_cast<double>(kind.size), parts = static_cast<double>(kind.parts);
  double summed = 1, has_parts = 1, wants_parts = 1;
  for (int8_t a : kind.axes) {
    const Layout::Use had = from.UseOf(a), wanted = to.UseOf(a);
    if (had == Layout::Use::kDim) has[from.DimOf(a)] *= size, has_parts *= size;
    if (wanted == Layout::Use::kDim) wants[to.DimOf(a)] *= size, wants_parts *= size;
    if (had == Layout::Use::kPartial && wanted != Layout::Use::kPartial) summed *= size;
  }
  double common = 1, joined = 1;  // parts of the best overlap; in how many parts dimensions are that are joined
  for (int d = 0; d < from.rank(); ++d) {
    common *= std::max(has[d], wants[d]);
    joined *= std::max(1.0, has[d] / wants[d]);
  }
  Part part;
  part.has = has_parts;
  part.wants = wants_parts;
  part.summed = summed;
  const double want = 1 / wants_parts, lacks = want - 1 / common;
  if (summed > 1) {
    // Before it is reduced a part can be sliced along the axes that replicate it: to summed / parts at least.
    part.received = std::max(want + (summed - 2) / parts, lacks + (summed - 1) / parts);
    part.reduced = (summed - 1) / parts;
    part.rounds = SumRounds(summed, joined, summed * has_parts / wants_parts);
    part.moves = true;
    return part;
  }
  part.received = lacks;
  part.moves = joined > 1;
  if (joined > 1)
    part.rounds = kinds_.size() == 1 ? std::log2(joined) : std::max(0.0, std::log2(has_parts / wants_parts));
  else if (wants_parts > has_parts)
    part.copied = want;
  return part;
}

// Messages, without the first, that reduce over `summed` devices, join `joined` parts and make parts larger by
// `growth`.
double MoveBound::SumRounds(double summed, double joined, double growth) const {
  const double sum = std::log2(summed), grow = std::log2(std::max(1.0, growth));
  if (kinds_.size() > 1) return sum + grow;
  if (joined > 1) return 1 + sum + std::max(std::log2(joined), grow);
  // One reduction for all that leaves parts small or whole, or two steps.
  return grow == 0 ? sum : std::min(2 * sum, 1 + sum + grow);
}

// A step over several kinds sends all its rounds by the slowest; a kind that is in none of these has a step of its own.
double MoveBound::SeparateRounds(const Parts& parts) const {
  double seconds = 0, slowest = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k].rounds == 0) continue;
    seconds += kinds_[k].link.alpha * parts[k].rounds;
    slowest = std::max(slowest, kinds_[k].link.alpha);
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    const double alpha = kinds_[k].link.alpha;
    if (parts[k].rounds == 0 || alpha == slowest) continue;
    double next = slowest;
    for (size_t j = 0; j < parts.size(); ++j) {
      if (parts[j].rounds > 0 && kinds_[j].link.alpha > alpha) next = std::min(next, kinds_[j].link.alpha);
    }
    seconds += std::min(alpha, (next - alpha) * parts[k].rounds);
  }
  return seconds + slowest;
}

// What messages start takes. A permutation, of two rounds, can put fast axes in the place of slow ones, but for sums.
double MoveBound::MessageSeconds(const Parts& parts) const {
  if (kinds_.size() == 1) return kinds_[0].link.alpha * (1 + parts[0].rounds);
  double sums = 0, growth = 1, slowest_sum = 0, least = std::numeric_limits<double>::infinity(), most = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const double alpha = kinds_[k].link.alpha;
    least = std::min(least, alpha);
    most = std::max(most, alpha);
    growth *= parts[k].has * parts[k].summed / parts[k].wants;
    sums += alpha * std::log2(parts[k].summed);
    if (parts[k].summed > 1) slowest_sum = std::max(slowest_sum, alpha);
  }
  // With two kinds a permutation over both is as slow as the slower.
  const double permuted =
      2 * (kinds_.size() == 2 ? most : least) + sums + slowest_sum + least * std::log2(std::max(1.0, growth));
  const bool resized = std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.rounds > 0; });
  return std::min(permuted, resized ? SeparateRounds(parts) : 2 * least);
}

// Reductions first along fast axes, then along slow ones, on ever smaller parts; gathers the other way round, or, after
// a permutation, all along fast ones. Replicated axes of a kind may be sliced before, which is undone by a gather.
void MoveBound::Resize(const Parts& parts, Coefficients* least) const {
  double seconds = std::numeric_limits<double>::infinity(), bytes = seconds;
  const double fast = kinds_.back().link.beta;
  for (uint32_t sliced = 0; sliced < 1u << parts.size(); ++sliced) {
    double now = 1, received = 0, spent = 0, want = 1;
    absl::InlinedVector<double, 3> cut;
    for (size_t k = 0; k < parts.size(); ++k) {
      const Part& p = parts[k];
      const double most = static_cast<double>(kinds_[k].parts) / (p.has * p.summed);
      const double slice = sliced >> k & 1 ? most : std::max(1.0, p.wants / (p.has * p.summed));
      cut.push_back(p.has * p.summed * slice);
      now /= p.has * slice;
      want /= p.wants;
    }
    for (size_t k = parts.size(); k-- > 0;) {
      received += now * (1 - 1 / parts[k].summed);
      spent += kinds_[k].link.beta * now * (1 - 1 / parts[k].summed);
      now /= parts[k].summed;
    }
    received += std::max(0.0, want - now);
    const double permuted = spent + fast * std::max(0.0, want - now);
    for (size_t k = 0; k < parts.size(); ++k) {
      const double growth = cut[k] / parts[k].wants;
      spent += kinds_[k].link.beta * now * (growth - 1);
      now *= growth;
    }
    seconds = std::min({seconds, spent, permuted});
    bytes = std::min(bytes, received);
  }
  least->collectives.seconds_per_byte = std::max(least->collectives.seconds_per_byte, seconds);
  least->bytes = std::max(least->bytes, bytes);
}

// What an exchange and the sums before it take to start.
double MoveBound::ExchangeSeconds(const Parts& parts) const {
  double seconds = 0, least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < parts.size(); ++k) {
    least = std::min(least, kinds_[k].link.alpha);
    seconds += kinds_[k].link.alpha * std::log2(parts[k].summed);
  }
  return seconds + exchange_messages_ * least;
}

MoveBound::Coefficients MoveBound::Of(const Layout& from, const Layout& to) const {
  if (from == to) return Coefficients();
  if (only_ >= 0) return OfKind(from, to);
  Coefficients least;
  Parts parts;
  double copied = 0;
  bool moves = false;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const Part part = Along(kinds_[k], from, to);
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
  least.collectives.seconds = MessageSeconds(parts);
  if (kinds_.size() > 1) Resize(parts, &least);
  return least;
}

// A step over several kinds counts for the slowest, but for what it reduces, which it could as well have done kind by
// kind.
MoveBound::Coefficients MoveBound::OfKind(const Layout& from, const Layout& to) const {
  const AxisKind& kind = kinds_[static_cast<size_t>(only_)];
  const Part part = Along(kind, from, to);
  const double bytes = (only_ == 0 ? part.received : part.reduced) / others_[static_cast<size_t>(only_)];
  Coefficients least;
  least.collectives.seconds_per_byte = kind.link.beta * bytes;
  least.bytes = bytes;
  if (only_ == 0 && part.moves) least.collectives.seconds = kind.link.alpha * (1 + std::log2(part.summed));
  return least;
}

}  // namespace mslua
