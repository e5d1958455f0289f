// A collective call as a value: what is done, over which buffers, asked for where.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/dtype.h"

namespace mslua {

enum class Collective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kRecv,
};
inline constexpr int kNumCollectives = 11;
const char* Name(Collective c);  // "all_reduce", ...

// On integers: sum and prod wrap around, mean is the wrapped sum divided with truncation. On bool: sum and max are
// "or", prod and min are "and", mean is refused. On floats: max and min of a NaN and anything are NaN.
enum class ReduceOp : uint8_t { kSum, kProd, kMax, kMin, kMean };
inline constexpr int kNumReduceOps = 5;
const char* Name(ReduceOp op);  // "sum", ...

// One call. `count` is in elements and the same on all ranks; n is the size of the group, B the bytes of `count`
// elements. Buffers are aligned to their elements, stay untouched until the call ends, and do not overlap unless
// "in place" below says how. "reads" and "sends" are what one rank moves between ranks: on one host out of its peers'
// memory, between hosts through its network interface. A step is one wait for the other ranks.
struct Call {
  // out[i] = reduction over ranks of in[i]. In place: out == in. 2 steps, moves 2 B (n-1)/n.
  static Call AllReduce(ReduceOp op, DType t, const void* in, void* out, int64_t count);
  // in[n * count]; out[i] = reduction over ranks of in[rank * count + i]. In place: out is in's own block.
  // 2 steps (1 between hosts), moves B (n-1).
  static Call ReduceScatter(ReduceOp op, DType t, const void* in, void* out, int64_t count);
  // in[count] of every rank, in rank order, in out[n * count]. In place: in is out's own block. 2 steps, moves B (n-1).
  static Call AllGather(DType t, const void* in, void* out, int64_t count);
  // data[count] of `root` on every rank. 2 steps, moves B.
  static Call Broadcast(DType t, void* data, int64_t count, int root);
  // AllReduce whose result only `root` gets; `out` may be null elsewhere. 2 steps, moves 2 B (n-1)/n.
  static Call Reduce(ReduceOp op, DType t, const void* in, void* out, int64_t count, int root);
  // AllGather whose result only `root` gets; `out` may be null elsewhere. 2 steps, the root moves B (n-1).
  static Call Gather(DType t, const void* in, void* out, int64_t count, int root);
  // Block r of root's in[n * count] to out[count] of rank r; `in` may be null elsewhere. 2 steps, the root moves
  // B (n-1).
  static Call Scatter(DType t, const void* in, void* out, int64_t count, int root);
  // out block k = rank k's in block `rank`; in and out are [n * count]. Not in place. 2 steps, moves B (n-1).
  static Call AllToAll(DType t, const void* in, void* out, int64_t count);
  // Returns when every rank has called it. 1 step.
  static Call Barrier();
  // data[count] to rank `peer`; ends when the peer has it. Matched with the peer's Recv by order and `tag`.
  static Call Send(DType t, const void* data, int64_t count, int peer, int tag = 0);
  static Call Recv(DType t, void* data, int64_t count, int peer, int tag = 0);

  // Where the user asked for it ("train.lua:88 grad.fc1.weight"), for messages; the first 95 bytes are kept.
  Call& At(absl::string_view where) { return source = where, *this; }
  // How long `Wait` waits without any rank's progress; over: DeadlineExceeded.
  Call& Within(absl::Duration limit) { return timeout = limit, *this; }

  Collective kind = Collective::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kU8;
  int peer = 0;  // root, or the other end of send and recv
  int tag = 0;
  int64_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
  absl::string_view source;
  absl::Duration timeout = absl::Seconds(30);
  void* stream = nullptr;  // of the device where the buffers live; null on CPU
};

bool Reduces(Collective c);         // all_reduce, reduce_scatter, reduce
bool Sliced(Collective c);          // all_reduce, reduce: each rank combines a slice of all elements
bool HasRoot(Collective c);         // broadcast, reduce, gather, scatter
bool IsPointToPoint(Collective c);  // send, recv
// Elements of the buffer that this rank gives or receives, 0 where it has none.
int64_t InElements(const Call& call, int rank, int size);
int64_t OutElements(const Call& call, int rank, int size);

// "all_reduce sum f32[128] at train.lua:88"; the peer of point-to-point calls and roots included.
std::string Describe(const Call& call);

}  // namespace mslua
