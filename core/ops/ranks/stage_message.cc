#include <cstring>

#include "core/op/device_text.h"
#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

// A message between pipeline stages (core/sharding/pipeline.h). It travels while other nodes run: x stays in the memory
// of stage_send's result until stage_sent. A part of x travels as x does.
MSLUA_OPERATOR(stage_message) {
  OpDef send = MessageOp("stage_send", "", RankCall::kStartSend,
                         "Begins to send x to rank `peer`, which is of another pipeline stage.");
  send.Rule("*i -> *i");
  OpDef sent = MessageOp("stage_sent", "", RankCall::kEndSend, "What stage_send has sent, once rank `peer` has it.");
  sent.Rule("*i -> *i");

  OpDef recv = MessageOp("stage_recv", "", RankCall::kRecv, "What rank `peer` sends; zeros in a group of one rank.");
  recv.inputs.clear();
  recv.in_place.clear();
  recv.samples.clear();
  recv.Required("dtype", AttrKind::kDType, "the element type").Required("shape", AttrKind::kInts, "the shape");
  recv.Infer([](const Attrs& a, absl::Span<const TensorType>) -> StatusOr<std::vector<TensorType>> {
    const auto& shape = a.Ints("shape");
    return std::vector<TensorType>{{a.Type("dtype"), Shape(shape.begin(), shape.end())}};
  });
  recv.Reference([](const OpCall& call) {
    std::memset(call.outputs[0].data, 0, static_cast<size_t>(call.outputs[0].type.bytes()));
    return absl::OkStatus();
  });
  recv.OnDevice(
      [](const OpSpec& spec) { return OneStep(EachElement(spec.outputs[0].elements(), "  Set(y0[i], 0);")); });
  recv.AddSample({{},
                  {{"group", std::vector<int64_t>{0}},
                   {"peer", int64_t{0}},
                   {"dtype", DType::kF32},
                   {"shape", std::vector<int64_t>{3, 5}}}});
  return {send, sent, recv};
}

}  // namespace mslua
