#include "core/runtime/collective_kernel.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/communicator.h"
#include "core/base/round_up.h"
#include "core/op/exchange_boxes.h"
#include "core/op/rank_call.h"
#include "core/runtime/memory_plan.h"
#include "core/sharding/layout.h"

namespace mslua {
namespace {

ReduceOp ReductionOf(const Attrs& attrs) {
  const AttrValue* name = attrs.Find("op");
  if (name == nullptr) return ReduceOp::kSum;
  for (int i = 0; i < kNumReduceOps; ++i) {
    if (std::get<std::string>(*name) == Name(static_cast<ReduceOp>(i))) return static_cast<ReduceOp>(i);
  }
  return ReduceOp::kSum;
}

int PlaceIn(const std::vector<int64_t>& group, int64_t rank) {
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

Split SplitOf(const TensorType& whole, int64_t axis, int64_t parts) {
  Split split;
  split.parts = parts;
  for (int64_t d = 0; d < axis; ++d) split.outer *= whole.shape[d];
  split.block = split.outer == 0 ? 0 : whole.bytes() / (split.outer * parts);
  return split;
}

// From a tensor to its parts, one after the other, and back.
void ToParts(const Split& split, const void* whole, void* parts) {
  const auto* from = static_cast<const char*>(whole);
  for (int64_t p = 0; p < split.parts; ++p) {
    for (int64_t o = 0; o < split.outer; ++o) {
      std::memcpy(static_cast<char*>(parts) + (p * split.outer + o) * split.block,
                  from + (o * split.parts + p) * split.block, static_cast<size_t>(split.block));
    }
  }
}
void FromParts(const Split& split, const void* parts, void* whole) {
  const auto* from = static_cast<const char*>(parts);
  for (int64_t p = 0; p < split.parts; ++p) {
    for (int64_t o = 0; o < split.outer; ++o) {
      std::memcpy(static_cast<char*>(whole) + (o * split.parts + p) * split.block,
                  from + (p * split.outer + o) * split.block, static_cast<size_t>(split.block));
    }
  }
}

int64_t Aligned(int64_t bytes) { return RoundUp(bytes, 64); }

// What a rank needs beside its buffers to put the blocks of a call in order.
int64_t ScratchOf(const Split& in, const Split& out) {
  return (in.dense() ? 0 : Aligned(in.bytes())) + (out.dense() ? 0 : out.bytes());
}

// What all kernels share: the call that Run fills with addresses.
class CollectiveKernel : public Kernel {
 public:
  CollectiveKernel(const Groups* groups, Communicator* group, Call call, std::string source)
      : groups_(groups), group_(group), source_(std::move(source)), call_(call) {
    call_.At(source_).Within(groups->timeout());
  }

 protected:
  Status Send(const void* in, void* out) {
    call_.in = in;
    call_.out = out;
    // A node that no recipe line has made is an operator that is called line by line.
    if (source_.empty()) call_.At(groups_->caller());
    return group_->Run(call_);
  }
  // A message between this rank and another of the group.
  Status Message(Collective kind, int peer, const void* in, void* out) {
    call_.kind = kind;
    call_.peer = peer;
    return Send(in, out);
  }
  // How many elements the messages from now on have.
  void SetCount(int64_t count) { call_.count = count; }
  const Call& call() const { return call_; }
  int rank() const { return group_->rank(); }

 private:
  const Groups* const groups_;
  Communicator* const group_;
  const std::string source_;
  Call call_;
};

// all_reduce, and reduce, which leaves zeros where the root is not.
class ReduceKernel : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;
  Status Run(const Buffers& b) override {
    RETURN_IF_ERROR(Send(b.inputs[0], b.outputs[0]));
    if (call().kind == Collective::kReduce && call().peer != rank())
      std::memset(b.outputs[0], 0, static_cast<size_t>(call().count * SizeOf(call().dtype)));
    return absl::OkStatus();
  }
};

// broadcast, send and recv: calls on one buffer, which is the output.
class OneBufferKernel : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;
  Status Run(const Buffers& b) override {
    const bool given =
        call().kind == Collective::kSend || (call().kind == Collective::kBroadcast && call().peer == rank());
    if (given && b.inputs[0] != b.outputs[0])
      std::memcpy(b.outputs[0], b.inputs[0], static_cast<size_t>(call().count * SizeOf(call().dtype)));
    return Send(call().kind == Collective::kRecv ? nullptr : b.outputs[0],
                call().kind == Collective::kSend ? nullptr : b.outputs[0]);
  }
};

// collective_permute. Messages are ordered by their sender's place: a rank's two calls begin in that order, so that the
// first message not yet done is next on both its ends.
class PermuteKernel : public CollectiveKernel {
 public:
  PermuteKernel(const Groups* groups, Communicator* group, Call call, std::string source, int from, int to)
      : CollectiveKernel(groups, group, call, std::move(source)), from_(from), to_(to) {}
  Status Run(const Buffers& b) override {
    if (from_ == rank()) {
      std::memcpy(b.outputs[0], b.inputs[0], static_cast<size_t>(call().count * SizeOf(call().dtype)));
      return absl::OkStatus();
    }
    for (const bool sending : {rank() < from_, rank() > from_})
      RETURN_IF_ERROR(sending ? Message(Collective::kSend, to_, b.inputs[0], nullptr)
                              : Message(Collective::kRecv, from_, nullptr, b.outputs[0]));
    return absl::OkStatus();
  }

 private:
  const int from_, to_;
};

// exchange. Messages have one order on all ranks, so that the first one not yet done is next on both its ends.
class ExchangeKernel : public CollectiveKernel {
 public:
  struct Box {
    int from, to;  // places in the group
    Shape in_source, in_target, sizes;
  };
  ExchangeKernel(const Groups* groups, Communicator* group, Call call, std::string source, std::vector<Box> boxes,
                 const TensorType& x, const TensorType& y)
      : CollectiveKernel(groups, group, call, std::move(source)), boxes_(std::move(boxes)), x_(x), y_(y) {}
  int64_t scratch_bytes() const override { return ScratchOf(boxes_, x_.dtype); }
  // The largest message.
  static int64_t ScratchOf(const std::vector<Box>& boxes, DType dtype) {
    int64_t most = 0;
    for (const Box& box : boxes) most = std::max(most, NumElements(box.sizes) * SizeOf(dtype));
    return most;
  }
  Status Run(const Buffers& b) override {
    for (const Box& box : boxes_) {
      const Shape zeros(box.sizes.size(), 0);
      const BoxPlace source{x_.shape, box.in_source}, target{y_.shape, box.in_target}, alone{box.sizes, zeros};
      SetCount(NumElements(box.sizes));
      if (box.from == box.to) {
        CopyBox(x_.dtype, box.sizes, source, b.inputs[0], target, b.outputs[0]);
      } else if (box.from == rank()) {
        CopyBox(x_.dtype, box.sizes, source, b.inputs[0], alone, b.scratch);
        RETURN_IF_ERROR(Message(Collective::kSend, box.to, b.scratch, nullptr));
      } else {
        RETURN_IF_ERROR(Message(Collective::kRecv, box.from, nullptr, b.scratch));
        CopyBox(x_.dtype, box.sizes, alone, b.scratch, target, b.outputs[0]);
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Box> boxes_;
  const TensorType x_, y_;
};

std::vector<ExchangeKernel::Box> BoxesOf(const Node& node) {
  const std::vector<int64_t>& ranks = node.attrs.Ints("group");
  std::vector<ExchangeKernel::Box> boxes;
  for (const ExchangeBox& box : ExchangeBoxes(node.attrs))
    boxes.push_back({PlaceIn(ranks, box.from), PlaceIn(ranks, box.to), box.source, box.target, box.sizes});
  return boxes;
}

// all_gather, reduce_scatter and all_to_all: the ranks' blocks follow one another in the call's buffers. Where the
// tensor is sharded along an inner dimension they go through scratch memory.
class BlocksKernel : public CollectiveKernel {
 public:
  BlocksKernel(const Groups* groups, Communicator* group, Call call, std::string source, Split in, Split out)
      : CollectiveKernel(groups, group, call, std::move(source)), in_(in), out_(out) {}
  int64_t scratch_bytes() const override { return ScratchOf(in_, out_); }
  Status Run(const Buffers& b) override {
    auto* scratch = static_cast<char*>(b.scratch);
    const void* in = b.inputs[0];
    void* out = b.outputs[0];
    if (!in_.dense()) {
      ToParts(in_, in, scratch);
      in = scratch;
      scratch += Aligned(in_.bytes());
    }
    if (!out_.dense()) out = scratch;
    RETURN_IF_ERROR(Send(in, out));
    if (!out_.dense()) FromParts(out_, out, b.outputs[0]);
    return absl::OkStatus();
  }

 private:
  const Split in_, out_;
};

Split Whole(const TensorType& type) {
  Split split;
  split.block = type.bytes();
  return split;
}

// A bucket's tensors lie one after the other, BucketStride apart: what is between them travels along.
class StartKernel : public Kernel {
 public:
  StartKernel(StartedCalls* calls, StartedCalls::Started* mine, Call call, std::string source, absl::Duration timeout,
              std::vector<int64_t> bytes)
      : calls_(calls), mine_(mine), source_(std::move(source)), bytes_(std::move(bytes)), call_(call) {
    call_.At(source_).Within(timeout);
  }
  Status Run(const Buffers& b) override {
    for (size_t k = 0; k < bytes_.size(); ++k) {
      if (b.inputs[k] != b.outputs[k]) std::memcpy(b.outputs[k], b.inputs[k], static_cast<size_t>(bytes_[k]));
    }
    call_.in = call_.out = b.outputs[0];
    return calls_->Start(mine_, call_);
  }

 private:
  StartedCalls* const calls_;
  StartedCalls::Started* const mine_;
  const std::string source_;
  const std::vector<int64_t> bytes_;
  Call call_;
};

class WaitKernel : public Kernel {
 public:
  WaitKernel(StartedCalls* calls, StartedCalls::Started* mine) : calls_(calls), mine_(mine) {}
  Status Run(const Buffers&) override { return calls_->Wait(mine_); }

 private:
  StartedCalls* const calls_;
  StartedCalls::Started* const mine_;
};

}  // namespace

std::pair<Split, Split> SplitsOf(const Graph& graph, const Node& node) {
  const TensorType &in = graph.TypeOf(node.inputs[0]), &out = node.outputs[0];
  const auto n = static_cast<int64_t>(node.attrs.Ints("group").size());
  const RankCall call = RankCallOf(*node.op);
  if (call == RankCall::kAllGather) return {Whole(in), SplitOf(out, node.attrs.Int("axis"), n)};
  if (call == RankCall::kReduceScatter) return {SplitOf(in, node.attrs.Int("axis"), n), Whole(out)};
  return {SplitOf(in, node.attrs.Int("split_axis"), n), SplitOf(out, node.attrs.Int("concat_axis"), n)};
}

bool MovesBlocks(const Node& node) {
  const RankCall call = RankCallOf(*node.op);
  return call == RankCall::kAllGather || call == RankCall::kReduceScatter || call == RankCall::kAllToAll;
}

std::string SourceOf(const Graph& graph, const Node& node) {
  const Node* at = &node;
  while (!at->location && !at->inputs.empty()) at = &graph.nodes[at->inputs[0].node];
  if (!at->location) return "";
  const Location& l = *at->location;
  if (l.file.empty()) return l.scope;
  return absl::StrCat(l.file, ":", l.line, l.scope.empty() ? "" : " ", l.scope);
}

Call CallOf(const Graph& graph, const Node& node) {
  const std::vector<int64_t>& ranks = node.attrs.Ints("group");
  const TensorType in = graph.TypeOf(node.inputs[0]);
  const TensorType& out = node.outputs[0];
  const auto root = [&] { return PlaceIn(ranks, node.attrs.Int("root")); };
  switch (RankCallOf(*node.op)) {
    case RankCall::kStartAllReduce: {
      int64_t travels = 0;
      for (const TensorType& t : node.outputs) travels += BucketStride(t);
      return Call::AllReduce(ReductionOf(node.attrs), out.dtype, nullptr, nullptr, travels / SizeOf(out.dtype));
    }
    case RankCall::kAllGather:
      return Call::AllGather(in.dtype, nullptr, nullptr, in.elements());
    case RankCall::kReduceScatter:
      return Call::ReduceScatter(ReductionOf(node.attrs), in.dtype, nullptr, nullptr, out.elements());
    case RankCall::kAllToAll:
      return Call::AllToAll(in.dtype, nullptr, nullptr, in.elements() / static_cast<int64_t>(ranks.size()));
    case RankCall::kAllReduce:
      return Call::AllReduce(ReductionOf(node.attrs), in.dtype, nullptr, nullptr, in.elements());
    case RankCall::kReduce:
      return Call::Reduce(ReductionOf(node.attrs), in.dtype, nullptr, nullptr, in.elements(), root());
    case RankCall::kBroadcast:
      return Call::Broadcast(in.dtype, nullptr, in.elements(), root());
    default:  // no call of one buffer each way
      return Call();
  }
}

Status StartedCalls::Start(Started* mine, const Call& call) {
  ASSIGN_OR_RETURN(mine->handle, mine->group->Start(call));
  mine->running = true;
  ++running_;
  return absl::OkStatus();
}

Status StartedCalls::Wait(Started* mine) {
  mine->running = false;
  --running_;
  return mine->group->Wait(mine->handle);
}

Status StartedCalls::Progress() {
  Communicator* last = nullptr;
  for (const auto& [node, call] : calls_) {
    if (!call.running || call.group == last) continue;
    last = call.group;
    RETURN_IF_ERROR(last->Progress());
  }
  return absl::OkStatus();
}

int64_t CollectiveScratch(const Graph& graph, const Node& node) {
  if (RankCallOf(*node.op) == RankCall::kExchange)
    return ExchangeKernel::ScratchOf(BoxesOf(node), node.outputs[0].dtype);
  if (!MovesBlocks(node)) return 0;
  const auto [in, out] = SplitsOf(graph, node);
  return ScratchOf(in, out);
}

namespace {

// What the kernel of a node is made of.
struct Site {
  const Graph& graph;
  const Node& node;
  int32_t index;
  Groups* groups;
  Communicator* group;
  StartedCalls* calls;
  std::string source;
};
using Made = std::unique_ptr<Kernel>;

// A call from or to the rank that the node names.
Call MessageOf(const Site& s, Collective kind) {
  const TensorType& out = s.node.outputs[0];
  Call call;
  call.kind = kind;
  call.dtype = out.dtype;
  call.count = out.elements();
  call.peer = PlaceIn(s.node.attrs.Ints("group"), s.node.attrs.Int("peer"));
  call.tag = static_cast<int>(s.node.attrs.Int("tag"));
  return call;
}

// Of as many elements as the node reads.
Call PlainCall(const Site& s) {
  const TensorType in = s.graph.TypeOf(s.node.inputs[0]);
  Call call;
  call.dtype = in.dtype;
  call.count = in.elements();
  return call;
}

template <Collective kKind>
Made MakeMessage(const Site& s) {
  return std::make_unique<OneBufferKernel>(s.groups, s.group, MessageOf(s, kKind), s.source);
}

Made MakeStart(const Site& s, const Call& call) {
  StartedCalls::Started* const mine = s.calls->Of(s.index);
  mine->group = s.group;
  std::vector<int64_t> bytes;
  for (const TensorType& t : s.node.outputs) bytes.push_back(t.bytes());
  return std::make_unique<StartKernel>(s.calls, mine, call, s.source, s.groups->timeout(), std::move(bytes));
}

// A call lasts from its start to its end, both nodes of one graph: of an operator that runs alone the other is missing.
Status CheckPair(const Graph& graph, int32_t index) {
  const Node& node = graph.nodes[index];
  const auto call_of = [&](int32_t i) { return RankCallOf(*graph.nodes[i].op); };
  const auto missing = [&](const char* other) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", other, " in the same graph"));
  };
  const RankCall call = call_of(index);
  if (EndsOther(call)) {
    const bool sends = call == RankCall::kEndSend;
    const int32_t start = node.inputs[0].node;
    const bool one = std::all_of(node.inputs.begin(), node.inputs.end(), [&](Value v) { return v.node == start; });
    if (one && call_of(start) == (sends ? RankCall::kStartSend : RankCall::kStartAllReduce)) return absl::OkStatus();
    return missing(sends ? "the result of a stage_send" : "the results of one all_reduce_start");
  }
  if (call != RankCall::kStartAllReduce && call != RankCall::kStartSend) return absl::OkStatus();
  const bool sends = call == RankCall::kStartSend;
  for (int32_t i = index + 1; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    if (call_of(i) == (sends ? RankCall::kEndSend : RankCall::kEndAllReduce) && graph.nodes[i].inputs[0].node == index)
      return absl::OkStatus();
  }
  return missing(sends ? "a stage_sent" : "an all_reduce_wait");
}

Made MakeWait(const Site& s) { return std::make_unique<WaitKernel>(s.calls, s.calls->Of(s.node.inputs[0].node)); }

template <typename K>
Made MakeWhole(const Site& s) {
  return std::make_unique<K>(s.groups, s.group, CallOf(s.graph, s.node), s.source);
}

Made MakeBlocks(const Site& s) {
  const auto [in, out] = SplitsOf(s.graph, s.node);
  return std::make_unique<BlocksKernel>(s.groups, s.group, CallOf(s.graph, s.node), s.source, in, out);
}

Made MakePermute(const Site& s) {
  const std::vector<int64_t>& ranks = s.node.attrs.Ints("group");
  return std::make_unique<PermuteKernel>(s.groups, s.group, PlainCall(s), s.source,
                                         PlaceIn(ranks, s.node.attrs.Int("source")),
                                         PlaceIn(ranks, s.node.attrs.Int("target")));
}

Made MakeExchange(const Site& s) {
  return std::make_unique<ExchangeKernel>(s.groups, s.group, PlainCall(s), s.source, BoxesOf(s.node),
                                          s.graph.TypeOf(s.node.inputs[0]), s.node.outputs[0]);
}

// Whether the boxes that rank `own` of the group sends lie in x, and those that it gets lie apart from each other and
// make up the result.
Status CheckBoxes(const Graph& graph, const Node& node, int own) {
  const Shape &x = graph.TypeOf(node.inputs[0]).shape, &y = node.outputs[0].shape;
  int64_t filled = 0;
  std::vector<ExchangeKernel::Box> got;
  for (const ExchangeKernel::Box& box : BoxesOf(node)) {
    if (box.from != own && box.to != own)
      return absl::InvalidArgumentError("messages has a box that this rank neither sends nor gets");
    if (box.from == own && !LiesIn(box.in_source, box.sizes, x))
      return absl::InvalidArgumentError("messages has a box that does not lie in x");
    if (box.to != own || NumElements(box.sizes) == 0) continue;
    if (!LiesIn(box.in_target, box.sizes, y))
      return absl::InvalidArgumentError("messages has a box that does not lie in the result");
    for (const ExchangeKernel::Box& other : got) {
      bool apart = false;
      for (size_t d = 0; d < y.size(); ++d) {
        apart = apart || box.in_target[d] >= other.in_target[d] + other.sizes[d] ||
                other.in_target[d] >= box.in_target[d] + box.sizes[d];
      }
      if (!apart) return absl::InvalidArgumentError("messages has two boxes with the same place in the result");
    }
    filled += NumElements(box.sizes);
    got.push_back(box);
  }
  if (filled == NumElements(y)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("this rank gets ", filled, " elements, expected the ", NumElements(y), " of the result"));
}

// Null for what no other rank takes part in.
Made MakeKernel(const Site& s) {
  switch (RankCallOf(*s.node.op)) {
    case RankCall::kNone:
      return nullptr;
    case RankCall::kAllReduce:
    case RankCall::kReduce:
      return MakeWhole<ReduceKernel>(s);
    case RankCall::kBroadcast:
      return MakeWhole<OneBufferKernel>(s);
    case RankCall::kAllGather:
    case RankCall::kReduceScatter:
    case RankCall::kAllToAll:
      return MakeBlocks(s);
    case RankCall::kPermute:
      return MakePermute(s);
    case RankCall::kExchange:
      return MakeExchange(s);
    case RankCall::kSend:
      return MakeMessage<Collective::kSend>(s);
    case RankCall::kRecv:
      return MakeMessage<Collective::kRecv>(s);
    case RankCall::kStartAllReduce:
      return MakeStart(s, CallOf(s.graph, s.node));
    case RankCall::kStartSend:
      return MakeStart(s, MessageOf(s, Collective::kSend));
    case RankCall::kEndAllReduce:
    case RankCall::kEndSend:
      return MakeWait(s);
  }
  return nullptr;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeCollectiveKernel(const Graph& graph, int32_t index, Groups* groups,
                                                       StartedCalls* calls) {
  const Node& node = graph.nodes[index];
  const std::vector<int64_t>& ranks = node.attrs.Ints("group");
  if (groups == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(node.op->name, " over ", ranks.size(),
                                                   " ranks, but this job has one: start it with -n ", ranks.size()));
  }
  RETURN_IF_ERROR(CheckPair(graph, index));
  std::string source = SourceOf(graph, node);
  ASSIGN_OR_RETURN(Communicator* const group, groups->Get(ranks, source));
  if (RankCallOf(*node.op) == RankCall::kExchange) RETURN_IF_ERROR(CheckBoxes(graph, node, group->rank()));
  Made kernel = MakeKernel({graph, node, index, groups, group, calls, std::move(source)});
  if (kernel == nullptr)
    return absl::InternalError(
        absl::StrCat("the collective operator ", node.op->name, " has no call (core/op/rank_call.h)"));
  return kernel;
}

}  // namespace mslua
