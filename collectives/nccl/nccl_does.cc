// Which calls NCCL makes: every build has this, for plans.
#include "collectives/nccl/nccl.h"

namespace mslua {

bool NcclDoes(const Call& call) {
  if (call.kind == Collective::kBarrier) return false;
  if (!Reduces(call.kind)) return true;
  if (call.reduce == ReduceOp::kMean) return IsFloat(call.dtype);
  return !IsFloat(call.dtype) || (call.reduce != ReduceOp::kMax && call.reduce != ReduceOp::kMin);
}

}  // namespace mslua
