// What messages cost along each axis of a mesh.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "core/sharding/mesh.h"

namespace mslua {

struct LinkCosts {
  struct Link {
    double alpha = 10e-6;  // seconds to start a round of messages
    double beta = 0.5e-9;  // seconds a byte
  };
  std::vector<Link> axes;     // one a mesh axis; none: the default link everywhere
  double copy_beta = 0.1e-9;  // seconds a byte copied within a device
  Link Slowest(absl::Span<const int8_t> over) const;
  // Along whichever axes: no step starts sooner or moves bytes faster.
  Link Fastest() const;
};

// An exchange has a message for each pair of ranks: on large meshes no plan has one.
inline bool MayExchange(const Mesh& mesh) { return mesh.ranks() <= 16; }
// What all exchanges of a mesh cost alike, so that two never cost less than one: a message to each rank and from each.
inline double MessagesOfExchange(const Mesh& mesh) { return 2 * static_cast<double>(mesh.ranks()); }

}  // namespace mslua
