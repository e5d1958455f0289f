#include "core/runtime/device_collective.h"

#include "absl/strings/str_cat.h"
#include "core/op/rank_call.h"
#include "core/runtime/memory_plan.h"

namespace mslua {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// From a tensor to its parts, one after the other, and back.
Status ToParts(DeviceStream& stream, const Cut& cut, const void* whole, void* parts) {
  for (int64_t p = 0; p < cut.parts; ++p)
    RETURN_IF_ERROR(stream.CopyRows(static_cast<char*>(parts) + p * cut.outer * cut.block, cut.block,
                                    static_cast<const char*>(whole) + p * cut.block, cut.parts * cut.block, cut.block,
                                    cut.outer));
  return absl::OkStatus();
}
Status FromParts(DeviceStream& stream, const Cut& cut, const void* parts, void* whole) {
  for (int64_t p = 0; p < cut.parts; ++p)
    RETURN_IF_ERROR(stream.CopyRows(static_cast<char*>(whole) + p * cut.block, cut.parts * cut.block,
                                    static_cast<const char*>(parts) + p * cut.outer * cut.block, cut.block, cut.block,
                                    cut.outer));
  return absl::OkStatus();
}

}  // namespace

bool RunsOverNccl(const Graph& graph, const Node& node) {
  switch (RankCallOf(*node.op)) {
    case RankCall::kEndAllReduce:
      return RunsOverNccl(graph, graph.nodes[node.inputs[0].node]);
    case RankCall::kStartAllReduce:
    case RankCall::kAllReduce:
    case RankCall::kReduce:
    case RankCall::kBroadcast:
    case RankCall::kAllGather:
    case RankCall::kReduceScatter:
    case RankCall::kAllToAll:
      return NcclDoes(CallOf(graph, node));
    default:
      return false;
  }
}

StatusOr<std::unique_ptr<DeviceCollective>> DeviceCollective::Make(const Graph& graph, int32_t index, NcclWorld* world,
                                                                   NcclGroup* group, const std::vector<void*>& pointers,
                                                                   const DeviceCollective* started, Device* device,
                                                                   absl::Duration timeout) {
  const Node& node = graph.nodes[index];
  const RankCall call = RankCallOf(*node.op);
  auto made = std::make_unique<DeviceCollective>();
  DeviceCollective& c = *made;
  c.world_ = world;
  c.group_ = group;
  c.started_ = started;
  c.source_ = SourceOf(graph, node);
  const size_t inputs = node.inputs.size();
  void* const* const outputs = pointers.data() + inputs;
  const auto copy = [&](size_t k) {
    if (outputs[k] != pointers[k]) c.copies_.push_back({outputs[k], pointers[k], graph.TypeOf(node.inputs[k]).bytes()});
  };
  if (call == RankCall::kEndAllReduce) {
    for (size_t k = 0; k < inputs; ++k) copy(k);
    return made;
  }
  c.starts_ = call == RankCall::kStartAllReduce;
  c.call_ = CallOf(graph, node);
  c.call_.At(c.source_).Within(timeout);
  c.call_.in = pointers[0];
  c.call_.out = outputs[0];
  if (c.starts_) {
    for (size_t k = 0; k < inputs; ++k) copy(k);
    c.call_.in = outputs[0];
  } else if (call == RankCall::kBroadcast) {
    if (c.call_.peer == group->rank()) copy(0);
    c.call_.in = outputs[0];
  } else if (call == RankCall::kReduce && c.call_.peer != group->rank()) {
    c.cleared_ = node.outputs[0].bytes();
  } else if (MovesBlocks(node)) {
    std::tie(c.cut_in_, c.cut_out_) = CutsOf(graph, node);
    const int64_t in = c.cut_in_.dense() ? 0 : Aligned(c.cut_in_.bytes());
    const int64_t out = c.cut_out_.dense() ? 0 : Aligned(c.cut_out_.bytes());
    if (in + out > 0) {
      ASSIGN_OR_RETURN(c.scratch_, device->Allocate(in + out));
    }
    if (in > 0) {
      c.whole_in_ = pointers[0];
      c.call_.in = c.scratch_.data();
    }
    if (out > 0) {
      c.whole_out_ = outputs[0];
      c.call_.out = static_cast<char*>(c.scratch_.data()) + in;
    }
  }
  return made;
}

Status DeviceCollective::Enqueue(DeviceStream& stream) {
  if (started_ != nullptr) {
    RETURN_IF_ERROR(world_->After(started_->number_, stream));
    for (const Copy& c : copies_) RETURN_IF_ERROR(stream.CopyWithin(c.to, c.from, c.bytes));
    return absl::OkStatus();
  }
  for (const Copy& c : copies_) RETURN_IF_ERROR(stream.CopyWithin(c.to, c.from, c.bytes));
  if (whole_in_ != nullptr) RETURN_IF_ERROR(ToParts(stream, cut_in_, whole_in_, const_cast<void*>(call_.in)));
  ASSIGN_OR_RETURN(number_, group_->Enqueue(call_, stream));
  if (starts_) return absl::OkStatus();
  RETURN_IF_ERROR(world_->After(number_, stream));
  if (whole_out_ != nullptr) RETURN_IF_ERROR(FromParts(stream, cut_out_, call_.out, whole_out_));
  if (cleared_ > 0) RETURN_IF_ERROR(stream.Fill(call_.out, 0, cleared_));
  return absl::OkStatus();
}

}  // namespace mslua
