#include "core/runtime/device_collective.h"

#include "absl/strings/str_cat.h"
#include "core/op/rank_call.h"
#include "core/runtime/device_layout.h"

namespace mslua {
namespace {

// From a tensor to its parts, one after the other, and back.
Status ToParts(DeviceStream& stream, const Split& split, const void* whole, void* parts) {
  for (int64_t p = 0; p < split.parts; ++p)
    RETURN_IF_ERROR(stream.CopyRows(static_cast<char*>(parts) + p * split.outer * split.block, split.block,
                                    static_cast<const char*>(whole) + p * split.block, split.parts * split.block,
                                    split.block, split.outer));
  return absl::OkStatus();
}
Status FromParts(DeviceStream& stream, const Split& split, const void* parts, void* whole) {
  for (int64_t p = 0; p < split.parts; ++p)
    RETURN_IF_ERROR(stream.CopyRows(static_cast<char*>(whole) + p * split.block, split.parts * split.block,
                                    static_cast<const char*>(parts) + p * split.outer * split.block, split.block,
                                    split.block, split.outer));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<DeviceCollective> DeviceCollective::Make(const Graph& graph, int32_t index, NcclWorld* world,
                                                         NcclGroup* group, const std::vector<void*>& pointers,
                                                         void* scratch, absl::Duration timeout) {
  const Node& node = graph.nodes[index];
  const RankCall call = RankCallOf(*node.op);
  auto made = std::make_unique<DeviceCollective>();
  DeviceCollective& c = *made;
  c.world_ = world;
  c.group_ = group;
  c.source_ = SourceOf(graph, node);
  const size_t inputs = node.inputs.size();
  void* const* const outputs = pointers.data() + inputs;
  const auto copy = [&](size_t k, std::vector<Copy>* to) {
    if (outputs[k] != pointers[k]) to->push_back({outputs[k], pointers[k], graph.TypeOf(node.inputs[k]).bytes()});
  };
  if (call == RankCall::kEndAllReduce) {
    for (size_t k = 0; k < inputs; ++k) copy(k, &c.copies_back_);
    return made;
  }
  c.call_ = CallOf(graph, node);
  c.call_.At(c.source_).Within(timeout);
  c.call_.in = pointers[0];
  c.call_.out = outputs[0];
  if (call == RankCall::kStartAllReduce) {
    for (size_t k = 0; k < inputs; ++k) copy(k, &c.copies_);
    c.call_.in = outputs[0];
  } else if (call == RankCall::kBroadcast) {
    if (c.call_.peer == group->rank()) copy(0, &c.copies_);
    c.call_.in = outputs[0];
  } else if (call == RankCall::kReduce && c.call_.peer != group->rank()) {
    c.cleared_ = node.outputs[0].bytes();
  } else if (MovesBlocks(node)) {
    std::tie(c.split_in_, c.split_out_) = SplitsOf(graph, node);
    if (!c.split_in_.dense()) {
      c.whole_in_ = pointers[0];
      c.call_.in = scratch;
    }
    if (!c.split_out_.dense()) {
      c.whole_out_ = outputs[0];
      c.call_.out = static_cast<char*>(scratch) + BlocksOf(graph, node).first;
    }
  }
  return made;
}

Status DeviceCollective::Pack(DeviceStream& stream) const {
  for (const Copy& c : copies_) RETURN_IF_ERROR(stream.CopyWithin(c.to, c.from, c.bytes));
  return whole_in_ == nullptr ? absl::OkStatus() : ToParts(stream, split_in_, whole_in_, const_cast<void*>(call_.in));
}

Status DeviceCollective::Enqueue(DeviceStream& stream) {
  ASSIGN_OR_RETURN(number_, group_->Enqueue(call_, stream));
  called_ = true;
  return absl::OkStatus();
}

Status DeviceCollective::After(DeviceStream& stream) const {
  return called_ ? world_->After(number_, stream) : absl::OkStatus();
}

Status DeviceCollective::Unpack(DeviceStream& stream) const {
  for (const Copy& c : copies_back_) RETURN_IF_ERROR(stream.CopyWithin(c.to, c.from, c.bytes));
  if (whole_out_ != nullptr) RETURN_IF_ERROR(FromParts(stream, split_out_, call_.out, whole_out_));
  return cleared_ == 0 ? absl::OkStatus() : stream.Fill(call_.out, 0, cleared_);
}

}  // namespace mslua
