#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

// The gradient's message travels the other way. The result ties the message into the graph of the rank that sends: that
// message is met only where a loss there depends on it.
MSLUA_OPERATOR(send) {
  OpDef op = MessageOp("send", "Send", RankCall::kSend, "Sends x to another rank; the result is x.");
  op.Grad([](GradContext& c) {
    if (GroupSize(c.attrs) == 1) return std::vector<Value>{c.dy[0]};
    return std::vector<Value>{Add(c.g, c.dy[0], c.g.Op("recv", {c.dy[0]}, SameMessage(c.attrs)))};
  });
  return {op};
}

}  // namespace mslua
