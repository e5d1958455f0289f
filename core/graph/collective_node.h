// Which nodes are collective.
#pragma once

#include "core/graph/graph.h"

namespace mslua {

// Whether a node moves data between the ranks of its attribute `group`: ranks of the world, in the order of the group.
// All of them run the same such nodes in the same order; their side effect keeps them so in every pass.
inline bool IsCollective(const Node& node) { return node.op->side_effect && node.attrs.Has("group"); }

}  // namespace mslua
