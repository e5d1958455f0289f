// The few different layouts in which the candidates of an edge's two ends make and want its value: costs of candidates'
// pairs are looked up by them.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/sharding/search/cost.h"

namespace mslua {

struct EdgeLayouts {
  struct Distinct {
    std::vector<Layout> layouts;
    std::vector<int> of;  // by candidate: the number of its layout
    absl::flat_hash_map<Layout, int> numbers;
    void Add(const Layout& layout);
  };
  // Of the value: as makers leave it, the same without what is still to be summed, in which they want its gradient, as
  // readers want it. Of its gradient, where one flows: as readers make it.
  Distinct made, reduced, wanted, gradient_made;
};
EdgeLayouts LayoutsOf(const ForwardGraph& forward, const ForwardGraph::Edge& edge,
                      const std::vector<const Sharding*>& makers, const std::vector<const Sharding*>& readers);

}  // namespace mslua
