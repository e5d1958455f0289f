// How the ranks of a group carry an operator out.
#pragma once

#include <cstdint>
#include <string>

#include "core/op/op_def.h"

namespace mslua {

// By which of its attributes beside `group` an operator says what is done (core/runtime/collective_kernel.h). An
// operator without an attribute `op` takes the sum.
enum class RankCall : uint8_t {
  kNone,           // no other rank takes part
  kAllReduce,      // op
  kReduce,         // op, root: zeros where the root is not
  kBroadcast,      // root
  kAllGather,      // axis
  kReduceScatter,  // op, axis
  kAllToAll,       // split_axis, concat_axis
  kPermute,        // source, target
  kExchange,       // messages
  kSend,           // peer, tag
  kRecv,           // peer, tag
  // Calls that travel while other nodes run, and their ends.
  kStartAllReduce,  // op: of all inputs, as one message
  kEndAllReduce,
  kStartSend,  // peer, tag
  kEndSend,
};

// Whether a call sends nothing, and waits for what another one has started.
inline bool EndsOther(RankCall call) { return call == RankCall::kEndAllReduce || call == RankCall::kEndSend; }

// Declares the call of an operator, where the operator is defined.
void SetRankCall(const std::string& op, RankCall call);
// kNone for an operator that has declared none.
RankCall RankCallOf(const OpDef& op);

}  // namespace mslua
