#include "core/sharding/link_costs.h"

#include <algorithm>

namespace mslua {

LinkCosts::Link LinkCosts::Slowest(absl::Span<const int8_t> over) const {
  if (axes.empty()) return Link();
  Link slowest{0, 0};
  for (int8_t a : over) {
    slowest.alpha = std::max(slowest.alpha, axes[static_cast<size_t>(a)].alpha);
    slowest.beta = std::max(slowest.beta, axes[static_cast<size_t>(a)].beta);
  }
  return slowest;
}

LinkCosts::Link LinkCosts::Fastest() const {
  if (axes.empty()) return Link();
  Link fastest = axes[0];
  for (const Link& l : axes) {
    fastest.alpha = std::min(fastest.alpha, l.alpha);
    fastest.beta = std::min(fastest.beta, l.beta);
  }
  return fastest;
}

}  // namespace mslua
