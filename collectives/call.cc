#include "collectives/call.h"

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

Call Make(Collective kind, ReduceOp op, DType t, const void* in, void* out, int64_t count, int peer) {
  Call call;
  call.kind = kind;
  call.reduce = op;
  call.dtype = t;
  call.in = in;
  call.out = out;
  call.count = count;
  call.peer = peer;
  return call;
}

}  // namespace

const char* Name(Collective c) {
  static constexpr const char* kNames[kNumCollectives] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                          "reduce",     "gather",         "scatter",    "all_to_all",
                                                          "barrier",    "send",           "recv"};
  const int i = static_cast<int>(c);
  return i < kNumCollectives ? kNames[i] : "unknown";
}

const char* Name(ReduceOp op) {
  static constexpr const char* kNames[kNumReduceOps] = {"sum", "prod", "max", "min", "mean"};
  const int i = static_cast<int>(op);
  return i < kNumReduceOps ? kNames[i] : "unknown";
}

Call Call::AllReduce(ReduceOp op, DType t, const void* in, void* out, int64_t count) {
  return Make(Collective::kAllReduce, op, t, in, out, count, 0);
}
Call Call::ReduceScatter(ReduceOp op, DType t, const void* in, void* out, int64_t count) {
  return Make(Collective::kReduceScatter, op, t, in, out, count, 0);
}
Call Call::AllGather(DType t, const void* in, void* out, int64_t count) {
  return Make(Collective::kAllGather, ReduceOp::kSum, t, in, out, count, 0);
}
Call Call::Broadcast(DType t, void* data, int64_t count, int root) {
  return Make(Collective::kBroadcast, ReduceOp::kSum, t, data, data, count, root);
}
Call Call::Reduce(ReduceOp op, DType t, const void* in, void* out, int64_t count, int root) {
  return Make(Collective::kReduce, op, t, in, out, count, root);
}
Call Call::Gather(DType t, const void* in, void* out, int64_t count, int root) {
  return Make(Collective::kGather, ReduceOp::kSum, t, in, out, count, root);
}
Call Call::Scatter(DType t, const void* in, void* out, int64_t count, int root) {
  return Make(Collective::kScatter, ReduceOp::kSum, t, in, out, count, root);
}
Call Call::AllToAll(DType t, const void* in, void* out, int64_t count) {
  return Make(Collective::kAllToAll, ReduceOp::kSum, t, in, out, count, 0);
}
Call Call::Barrier() { return Call(); }
Call Call::Send(DType t, const void* data, int64_t count, int peer, int tag) {
  Call call = Make(Collective::kSend, ReduceOp::kSum, t, data, nullptr, count, peer);
  call.tag = tag;
  return call;
}
Call Call::Recv(DType t, void* data, int64_t count, int peer, int tag) {
  Call call = Make(Collective::kRecv, ReduceOp::kSum, t, nullptr, data, count, peer);
  call.tag = tag;
  return call;
}

bool Reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduceScatter || c == Collective::kReduce;
}
bool Sliced(Collective c) { return c == Collective::kAllReduce || c == Collective::kReduce; }

bool HasRoot(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}
bool IsPointToPoint(Collective c) { return c == Collective::kSend || c == Collective::kRecv; }

int64_t InElements(const Call& call, int rank, int size) {
  switch (call.kind) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kSend:
      return call.count;
    case Collective::kBroadcast:
      return rank == call.peer ? call.count : 0;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return size * call.count;
    case Collective::kScatter:
      return rank == call.peer ? size * call.count : 0;
    case Collective::kRecv:
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

int64_t OutElements(const Call& call, int rank, int size) {
  switch (call.kind) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kRecv:
      return call.count;
    case Collective::kBroadcast:
      return rank == call.peer ? 0 : call.count;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return size * call.count;
    case Collective::kReduce:
      return rank == call.peer ? call.count : 0;
    case Collective::kGather:
      return rank == call.peer ? size * call.count : 0;
    case Collective::kSend:
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

std::string Describe(const Call& call) {
  std::string text = Name(call.kind);
  if (Reduces(call.kind)) absl::StrAppend(&text, " ", Name(call.reduce));
  if (call.kind != Collective::kBarrier) absl::StrAppend(&text, " ", Name(call.dtype), "[", call.count, "]");
  if (HasRoot(call.kind)) absl::StrAppend(&text, " root ", call.peer);
  if (call.kind == Collective::kSend) absl::StrAppend(&text, " to ", call.peer, " tag ", call.tag);
  if (call.kind == Collective::kRecv) absl::StrAppend(&text, " from ", call.peer, " tag ", call.tag);
  if (!call.source.empty()) absl::StrAppend(&text, " at ", call.source);
  return text;
}

}  // namespace mslua
