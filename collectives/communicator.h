// Collectives: what the ranks of a group do together.
//
// Every rank of a group makes the same calls in the same order. A call is a value (`Call`): it is run at once
// (`Run`), or started and waited for (`Start`, `Wait`). No call blocks for ever: it succeeds, or it returns within
// its deadline an error that names this rank, the peer, the operation, the recipe line and the evidence. After an
// error the group is of no more use and every later call repeats the error.
//
// Reductions combine the ranks' values in rank order, 16-bit floats in f32 with one rounding at the end, so results
// are bitwise repeatable and the same whichever way the bytes travelled (mpi: repeatable on the same world).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/flight_recorder.h"
#include "core/base/dtype.h"
#include "core/base/status.h"

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

bool Reduces(Collective c);  // all_reduce, reduce_scatter, reduce
bool Sliced(Collective c);   // all_reduce, reduce: each rank combines a slice of all elements
bool HasRoot(Collective c);  // broadcast, reduce, gather, scatter
bool IsPointToPoint(Collective c);
// Elements of the buffer that this rank gives or receives, 0 where it has none.
int64_t InElements(const Call& call, int rank, int size);
int64_t OutElements(const Call& call, int rank, int size);

// "all_reduce sum f32[128] at train.lua:88"; the peer of point-to-point calls and roots included.
std::string Describe(const Call& call);

// A started call; dies with its communicator.
struct Handle {
  uint64_t id = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  // World ranks of the members, by rank in this group.
  const std::vector<int>& members() const { return members_; }
  virtual const char* backend() const = 0;  // "inproc", "native", "mpi"

  // Begins `call`. Calls end in the order in which they began, whatever order they are waited for in.
  // InvalidArgument (a call that cannot be right) leaves the group usable.
  virtual StatusOr<Handle> Start(const Call& call) = 0;
  // Ends it. Waiting twice is harmless.
  virtual Status Wait(Handle handle) = 0;
  // Does what can be done now without waiting: for use between computations.
  virtual Status Progress() = 0;
  // True when the call has ended.
  virtual bool Done(Handle handle) const = 0;
  // Start and Wait.
  virtual Status Run(const Call& call);

  // A group of these ranks of this group, in this order; called by its members alone, each with the same list.
  // Groups made from one another share nothing that a caller must order. InvalidArgument: empty, repeated or
  // unknown ranks, or this rank not among them.
  virtual StatusOr<std::unique_ptr<Communicator>> Split(absl::Span<const int> ranks, absl::string_view source) = 0;

  // Called by all ranks of the world group with the same size: memory that peers of the host reduce in place, with
  // no copy; lives as long as any group of the world. 64-byte aligned, zeroed. Any backend accepts any
  // buffer; these are the fast ones.
  virtual StatusOr<void*> AllocateShared(int64_t bytes, absl::string_view source) = 0;

  // Makes all ranks' present and later calls fail, quoting `why` (not OK) and this rank.
  virtual void Abort(const Status& why) = 0;

  // Called by all ranks on the world group, after their last call: ends what would wait for other ranks when the
  // process ends (MPI_Finalize). Nothing may be called afterwards.
  virtual void Close() {}

  // The last calls of this rank, over all its groups.
  const FlightRecorder& recorder() const { return *recorder_; }

 protected:
  Communicator(int rank, std::vector<int> members, std::shared_ptr<FlightRecorder> recorder)
      : recorder_(std::move(recorder)), rank_(rank), members_(std::move(members)) {}

  // InvalidArgument when `call` cannot be right whatever the peers do.
  Status Validate(const Call& call) const;
  // This rank's place in the group of `ranks`.
  StatusOr<int> PlaceIn(absl::Span<const int> ranks) const;
  // "rank 2/4".
  std::string Me() const;
  // `why` with this rank before its message, unless a rank is there.
  Status Mine(const Status& why) const;

  std::shared_ptr<FlightRecorder> recorder_;

 private:
  const int rank_;
  const std::vector<int> members_;
};

// What other ranks report when one failed with `status`: differences between ranks concern all alike and stay as they
// are (FailedPrecondition); anything else is Aborted, "stopped because another rank failed: ...".
Status AsSeenByOthers(const Status& status);

}  // namespace mslua
