// What the operators between ranks share. They have no kernel here: core/runtime makes it of the operator's RankCall,
// over the rank's communicators. In a group of one rank nothing moves, and the reference kernel is the identity.
#pragma once

#include "core/graph/builder.h"
#include "core/op/op_def.h"
#include "core/op/rank_call.h"

namespace mslua {

// The attributes that name the ranks, in front of the operator's own: `group`, ranks of the world in the order of the
// group. Sets reference kernel, side effect, the check of the group, and how its ranks carry it out.
OpDef CollectiveOp(std::string name, std::string class_name, RankCall call, std::string doc);

// "root", "peer": a rank of the world that must be in the group.
OpDef& RankAttr(OpDef& op, const std::string& name, std::string doc);

inline int64_t GroupSize(const Attrs& attrs) { return static_cast<int64_t>(attrs.Ints("group").size()); }

// The attributes of the same group for another operator.
Attrs SameGroup(const Attrs& attrs);

// `send` and `recv`, all but the gradient: one end of a message between two ranks of the group.
OpDef MessageOp(std::string name, std::string class_name, RankCall call, std::string doc);
// The attributes of the message that goes the other way.
Attrs SameMessage(const Attrs& attrs);

// Of an all_reduce, where its reduction is linear; fails the builder elsewhere.
Value AllReduceGradient(GraphBuilder& g, const Attrs& attrs, Value dy);

// x with dimension `axis` times the size of the group, or divided by it.
StatusOr<std::vector<TensorType>> GatheredType(const Attrs& attrs, TensorType x, int64_t axis);
StatusOr<std::vector<TensorType>> ScatteredType(const Attrs& attrs, TensorType x, int64_t axis);

}  // namespace mslua
