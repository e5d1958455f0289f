#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

// The gradient goes back to the rank that sent, and nothing of it to x, which the result does not depend on.
MSLUA_OPERATOR(recv) {
  OpDef op = MessageOp("recv", "Receive", RankCall::kRecv,
                       "What rank `peer` sends; x gives its type, its values are not used.");
  op.Grad([](GradContext& c) {
    if (GroupSize(c.attrs) == 1) return std::vector<Value>{c.dy[0]};
    const Value sent = c.g.Op("send", {c.dy[0]}, SameMessage(c.attrs));
    return std::vector<Value>{ZerosLike(c.g, sent)};
  });
  return {op};
}

}  // namespace mslua
