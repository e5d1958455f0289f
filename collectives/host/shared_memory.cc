#include "collectives/host/shared_memory.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/host/channel.h"
#include "collectives/host/copy.h"
#include "collectives/reduce.h"
#include "core/base/clock.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {

// How often a waiter looks around for reasons to give up; bounds how late a death is noticed.
constexpr absl::Duration kLookAround = absl::Milliseconds(20);
constexpr absl::Duration kLookAroundWithMessages = absl::Milliseconds(1);
// Looks at a word before going to sleep. While every rank has a core, the first are a few microseconds of spinning.
// Each further look yields the core: the rank that is waited for may need it.
constexpr int kSpins = 200;
constexpr int kYields = 50;
constexpr int kMaxRanks = 256;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// True when a rank gives a block for each rank, false when it gives all ranks the same.
bool GivesBlocks(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kAllToAll || c == Collective::kScatter;
}

// What is fetched at a time of all peers, to be combined in a second-level cache.
constexpr int64_t kFetchedCache = 256 << 10;
struct Page {
  alignas(4096) char bytes[4096];
};
// What each of the peers has of it: at least a page.
constexpr int64_t FetchedPages(int64_t peers) {
  return std::max<int64_t>(1, kFetchedCache / peers / static_cast<int64_t>(sizeof(Page)));
}

// A fetch costs a system call.
constexpr int64_t kFetchBytes = 8 << 10;
// Whether one copy by the system, which looks at each page and counts its readers, takes less than two through
// windows; as measured on two cores (bench/results/collectives.md).
bool FetchingPays(const Call& call, int ranks) {
  const int64_t bytes = call.count * SizeOf(call.dtype);
  if (Sliced(call.kind) || bytes < kFetchBytes) return false;
  if (call.kind == Collective::kBroadcast) return ranks == 2 && bytes < (2 << 20);
  const bool many =
      call.kind == Collective::kAllGather || call.kind == Collective::kGather || call.kind == Collective::kAllToAll;
  return bytes * (many ? ranks : 1) * (ranks - 1) < (32 << 20);
}

// A part of a result of `whole` bytes.
void CopyResult(char* to, const char* from, int64_t bytes, int64_t whole) {
  if (to == from) return;
  if (whole >= kStreamBytes) {
    CopyPastCache(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

class SharedMemoryCommunicator : public Communicator {
 public:
  SharedMemoryCommunicator(std::shared_ptr<Host> host, std::vector<int> members, int place, std::string key,
                           uint32_t epoch, std::shared_ptr<FlightRecorder> recorder, std::shared_ptr<Siblings> siblings,
                           Board board)
      : Communicator(place, std::move(members), std::move(recorder), std::move(siblings)),
        host_(std::move(host)),
        key_(std::move(key)),
        epoch_(epoch),
        board_(std::move(board)),
        messages_(board_, *host_, this->members(), place),
        looks_(kYields + (host_->ranks() <= UsableCores() ? kSpins : 0)) {}

  ~SharedMemoryCommunicator() override { board_.words(rank()).closed.store(1); }

  StatusOr<Handle> Start(const Call& call) override;
  Status Wait(Handle handle) override;
  Status Progress() override;
  bool Done(Handle handle) const override {
    return handle.id % 2 == 1 ? !messages_.Has(handle.id) : done_ >= handle.id / 2;
  }
  bool busy() const override { return failed_.ok() && !waits_ && (done_ < begun_ || !messages_.empty()); }
  StatusOr<std::unique_ptr<Communicator>> Split(absl::Span<const int> ranks, absl::string_view source,
                                                absl::Duration limit) override;
  StatusOr<void*> AllocateShared(int64_t bytes, absl::string_view source) override;
  void Abort(const Status& why) override { Fail(Mine(why)).IgnoreError(); }

 private:
  enum class Way : uint8_t { kSmall, kDirect, kFetched, kStaged };
  struct Pending {
    Call call;
    uint64_t ticket = 0;
    int64_t step = 0;
    Way way = Way::kSmall;
  };
  struct Part {
    int64_t first = 0, count = 0;  // elements
  };
  using Pieces = std::array<const char*, kMaxRanks>;

  // Collectives. Those begun and not ended are done_ <= number < begun_.
  Pending& pending(uint64_t number) { return pending_[number % Board::kSlots]; }
  Status Announce(const Call& call);
  // One step of the oldest call. `block` false: only if no wait is needed; `*moved` says whether.
  Status Advance(bool block, bool* moved);
  Status Meet(Pending& p, bool block, bool* met);
  // The way at best, by what a rank announced about its buffers.
  Way WayTo(const Call& call, int r, const Announcement& a) const;
  // One step, for which all ranks have finished the one before.
  Status Carry(Pending& p, bool* finished);
  void CarryDirect(Pending& p, bool* finished);
  Status CarryFetched(Pending& p, bool* finished);
  Status FetchAndReduce(const Call& call);
  Status FetchPieces(const Call& call);
  // Bytes of what rank r gives.
  Status Fetch(int r, int64_t offset, void* to, int64_t bytes) const;
  void CarryStaged(Pending& p, bool* finished);
  void CarryStagedReduce(Pending& p, bool* finished);
  // This rank's slice of a part in all windows.
  void ReduceInWindows(const Call& call, Part part);
  // Takes one part's results out of this rank's window and puts another part's elements there.
  void ExchangeWindow(const Call& call, Part results, Part next);
  void Consume(const Call& call, const Pieces& pieces, int64_t first, int64_t count);
  bool NeedsIn(const Call& call, int r) const { return InElements(call, r, size()) > 0; }
  // Outputs that others write: those of all_reduce and reduce.
  bool NeedsOut(const Call& call, int r) const {
    return (call.kind == Collective::kAllReduce || call.kind == Collective::kReduce) &&
           OutElements(call, r, size()) > 0;
  }
  // Where rank r's buffers are while its announcement of the oldest call is there.
  Address InAddress(int r) const;
  const char* InOf(int r, const Call& call) const;
  char* OutOf(int r, const Call& call) const;
  int64_t SliceBegin(int64_t count, int64_t element, int r) const;
  void Step() { Publish(board_.words(rank()).stepped, ++stepped_, board_.words(rank()).sleepers); }

  // Waiting.
  void Look(int look) const {
    if (look < looks_ - kYields) {
      Pause();
    } else {
      sched_yield();
    }
  }
  Status WaitFor(std::atomic<uint32_t>& word, uint32_t target, int peer, const Call& call, bool for_announcement);
  Status Sleep(std::atomic<uint32_t>& word, uint32_t target, int peer, const Call& call, bool for_announcement);
  Status WaitForMessage(uint64_t id);
  Status MoveMessages(bool* moved);
  // What the siblings have begun, while this group waits.
  Status MoveSiblings();
  // What ended `call`: `seen`, or what a peer noted down before, which may be gone because of it.
  Status FirstCause(const Status& seen, const Call& call) const;
  // Not OK when `peer` cannot answer any more.
  Status Evidence(int peer, const Call& call) const;
  std::string Absent(uint32_t target, bool for_announcement) const;
  Call Announced(int r, uint64_t number) const;
  Status Error(absl::StatusCode code, const Call& call, const std::string& what) const;
  // Ends the group with `status`.
  Status Fail(const Status& status);

  const std::shared_ptr<Host> host_;
  const std::string key_;
  const uint32_t epoch_;
  const Board board_;
  Messages messages_;
  const int looks_;

  Status failed_;
  bool waits_ = false;  // in a call that must not be entered again
  std::array<Pending, Board::kSlots> pending_;
  std::array<uint32_t, kMaxRanks> peer_done_ = {};  // calls that each peer is known to have finished
  uint64_t begun_ = 0, done_ = 0;
  uint64_t next_message_ = 0;
  uint32_t stepped_ = 0;
  std::vector<Page> scratch_;  // for what is fetched on its way
  std::vector<uint64_t> ended_messages_;
  std::map<std::vector<int>, int> splits_;  // how often each list of ranks was split off
  int segments_ = 0;
};

// Handles: collectives are 2 * (number + 1), messages 2 * (number + 1) + 1.
StatusOr<Handle> SharedMemoryCommunicator::Start(const Call& call) {
  if (!failed_.ok()) return failed_;
  RETURN_IF_ERROR(Validate(call));
  if (IsPointToPoint(call.kind)) {
    const uint64_t id = 2 * ++next_message_ + 1;
    messages_.Start(call, id, recorder_->Begin(call, next_message_ - 1, size()));
    bool moved;
    RETURN_IF_ERROR(MoveMessages(&moved));
    return Handle{id};
  }
  RETURN_IF_ERROR(Announce(call));
  return Handle{2 * begun_};
}

Status SharedMemoryCommunicator::Wait(Handle handle) {
  if (handle.id % 2 == 1) return messages_.Has(handle.id) ? WaitForMessage(handle.id) : failed_;
  while (done_ < handle.id / 2) {
    RETURN_IF_ERROR(failed_);
    bool moved;
    RETURN_IF_ERROR(Advance(true, &moved));
  }
  return absl::OkStatus();
}

Status SharedMemoryCommunicator::Progress() {
  RETURN_IF_ERROR(failed_);
  if (waits_) return absl::OkStatus();
  const Status aborted = board_.Aborted();
  if (!aborted.ok()) return Fail(aborted);
  for (bool moved = true; moved;) {
    moved = false;
    if (done_ < begun_) RETURN_IF_ERROR(Advance(false, &moved));
    bool messages_moved = false;
    if (!messages_.empty()) RETURN_IF_ERROR(MoveMessages(&messages_moved));
    moved |= messages_moved;
  }
  return absl::OkStatus();
}

Status SharedMemoryCommunicator::Announce(const Call& call) {
  // A slot may be used again when every rank has finished the call that it held.
  while (begun_ - done_ == Board::kSlots) {
    bool moved;
    RETURN_IF_ERROR(Advance(true, &moved));
  }
  if (begun_ >= Board::kSlots) {
    const uint32_t needed = static_cast<uint32_t>(begun_ - Board::kSlots + 1);
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || Reached(peer_done_[r], needed)) continue;
      RETURN_IF_ERROR(WaitFor(board_.words(r).done, needed, r, call, false));
      peer_done_[r] = needed;
    }
  }

  Pending& p = pending(begun_);
  p.call = call;
  p.step = 0;
  const int64_t element = SizeOf(call.dtype);
  const int64_t payload = call.count * (GivesBlocks(call.kind) ? size() : 1) * element;
  p.way = payload <= Slot::kInlineBytes ? Way::kSmall : Way::kDirect;

  Slot& slot = board_.slot(rank(), static_cast<uint32_t>(begun_));
  Announcement& a = slot.call;
  Address in, out;
  if (p.way == Way::kSmall) {
    const int64_t bytes = InElements(call, rank(), size()) * element;
    if (bytes > 0) std::memcpy(slot.payload, call.in, bytes);
  } else {
    if (NeedsIn(call, rank())) in = host_->Locate(call.in, InElements(call, rank(), size()) * element);
    if (NeedsOut(call, rank())) out = host_->Locate(call.out, OutElements(call, rank(), size()) * element);
  }
  a.epoch = epoch_;
  a.done = static_cast<uint32_t>(done_);
  a.kind = static_cast<uint8_t>(call.kind);
  a.reduce = static_cast<uint8_t>(call.reduce);
  a.dtype = static_cast<uint8_t>(call.dtype);
  a.peer = static_cast<int16_t>(call.peer);
  a.count = call.count;
  a.in_segment = in.segment;
  a.in_offset = in.offset;
  a.out_segment = out.segment;
  a.out_offset = out.offset;
  a.source_size = static_cast<uint8_t>(call.source.copy(slot.source, sizeof slot.source));
  p.call.source = absl::string_view(slot.source, a.source_size);  // outlives the caller's text
  Publish(a.posted, static_cast<uint32_t>(begun_ + 1), board_.words(rank()).sleepers);
  p.ticket = recorder_->Begin(call, begun_, size());  // while the announcement is on its way
  ++begun_;
  return absl::OkStatus();
}

Status SharedMemoryCommunicator::Advance(bool block, bool* moved) {
  Pending& p = pending(done_);
  *moved = false;
  if (p.step == 0) {
    bool met = false;
    const Status status = Meet(p, block, &met);
    if (!status.ok()) return Fail(status);
    if (!met) return absl::OkStatus();
  }
  if (p.way != Way::kSmall) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      std::atomic<uint32_t>& stepped = board_.words(r).stepped;
      if (!block) {
        if (!Reached(stepped.load(std::memory_order_acquire), stepped_)) return absl::OkStatus();
      } else {
        const Status status = WaitFor(stepped, stepped_, r, p.call, false);
        if (!status.ok()) return Fail(status);
      }
    }
  }
  *moved = true;
  bool finished = false;
  const Status carried = Carry(p, &finished);
  if (!carried.ok()) return Fail(FirstCause(carried, p.call));
  ++p.step;
  if (finished) {
    ++done_;
    // Sleepers on this word look around soon enough: no fence here.
    board_.words(rank()).done.store(static_cast<uint32_t>(done_), std::memory_order_release);
    recorder_->End(p.ticket, true);
  }
  return absl::OkStatus();
}

// Waits for all announcements of the oldest call, compares them with this rank's and settles the way.
Status SharedMemoryCommunicator::Meet(Pending& p, bool block, bool* met) {
  const uint32_t number = static_cast<uint32_t>(done_);
  const Announcement& mine = board_.slot(rank(), number).call;
  for (int r = 0; r < size(); ++r) {
    Announcement& a = board_.slot(r, number).call;
    if (r != rank()) {
      if (!block) {
        if (!Reached(a.posted.load(std::memory_order_acquire), number + 1)) return absl::OkStatus();
      } else {
        RETURN_IF_ERROR(WaitFor(a.posted, number + 1, r, p.call, true));
      }
      peer_done_[r] = a.done;
    }
    if (a.epoch != mine.epoch) {
      return Error(absl::StatusCode::kFailedPrecondition, p.call,
                   absl::StrCat("rank ", r, " is of membership epoch ", a.epoch, ", this rank of epoch ", mine.epoch));
    }
    if (a.kind != mine.kind || a.reduce != mine.reduce || a.dtype != mine.dtype || a.peer != mine.peer ||
        a.count != mine.count) {
      const int low = std::min(r, rank()), high = std::max(r, rank());
      return absl::FailedPreconditionError(
          absl::StrCat(Me(), ": collective ", done_, " differs: rank ", low, " calls ", Describe(Announced(low, done_)),
                       "; rank ", high, " calls ", Describe(Announced(high, done_)),
                       "; all ranks of a group make the same calls in the same order"));
    }
    if (p.way != Way::kSmall && size() > 1) p.way = std::max(p.way, WayTo(p.call, r, a));
  }
  *met = true;
  return absl::OkStatus();
}

SharedMemoryCommunicator::Way SharedMemoryCommunicator::WayTo(const Call& call, int r, const Announcement& a) const {
  Way way = Way::kDirect;
  const auto reach = [&](int8_t segment) {
    way = std::max(way, segment >= 0 ? Way::kDirect : segment == Address::kReadable ? Way::kFetched : Way::kStaged);
  };
  if (NeedsIn(call, r)) reach(a.in_segment);
  if (NeedsOut(call, r)) reach(a.out_segment);
  return way == Way::kFetched && !FetchingPays(call, size()) ? Way::kStaged : way;
}

Status SharedMemoryCommunicator::Carry(Pending& p, bool* finished) {
  if (p.way == Way::kFetched) return CarryFetched(p, finished);
  if (p.way == Way::kSmall) {
    const int64_t my_block = GivesBlocks(p.call.kind) ? rank() * p.call.count * SizeOf(p.call.dtype) : 0;
    Pieces pieces;
    for (int r = 0; r < size(); ++r) pieces[r] = board_.slot(r, static_cast<uint32_t>(done_)).payload + my_block;
    Consume(p.call, pieces, 0, p.call.count);
    *finished = true;
  } else if (p.way == Way::kDirect) {
    CarryDirect(p, finished);
  } else if (Sliced(p.call.kind)) {
    CarryStagedReduce(p, finished);
  } else {
    CarryStaged(p, finished);
  }
  return absl::OkStatus();
}

void SharedMemoryCommunicator::CarryDirect(Pending& p, bool* finished) {
  const Call& call = p.call;
  const int n = size();
  const int64_t element = SizeOf(call.dtype);
  const int64_t my_block = GivesBlocks(call.kind) ? rank() * call.count * element : 0;
  if (p.step == 1) {  // nobody reads or writes this rank's buffers any more
    *finished = true;
    return;
  }
  Pieces pieces;
  for (int r = 0; r < n; ++r) pieces[r] = NeedsIn(call, r) ? InOf(r, call) + my_block : nullptr;
  if (Sliced(call.kind)) {
    const int64_t begin = SliceBegin(call.count, element, rank());
    const int64_t end = SliceBegin(call.count, element, rank() + 1);
    std::array<const void*, kMaxRanks> ins;
    std::array<void*, kMaxRanks> outs;
    int num_outs = 0;
    for (int r = 0; r < n; ++r) {
      ins[r] = pieces[r] + begin * element;
      if (NeedsOut(call, r)) outs[num_outs++] = OutOf(r, call) + begin * element;
    }
    Reduce(call.reduce, call.dtype, absl::MakeSpan(ins.data(), n), absl::MakeSpan(outs.data(), num_outs), end - begin);
  } else {
    Consume(call, pieces, 0, call.count);
  }
  Step();
}

// Step 0: what this rank is to have. Then it waits until nobody reads its buffers any more.
Status SharedMemoryCommunicator::CarryFetched(Pending& p, bool* finished) {
  *finished = p.step == 1;
  if (*finished) return absl::OkStatus();
  RETURN_IF_ERROR(p.call.kind == Collective::kReduceScatter ? FetchAndReduce(p.call) : FetchPieces(p.call));
  Step();
  return absl::OkStatus();
}

Status SharedMemoryCommunicator::FetchAndReduce(const Call& call) {
  const int n = size();
  const int64_t element = SizeOf(call.dtype), my_block = rank() * call.count * element;
  // What comes is to be in the cache still when it is combined.
  const int64_t pages = FetchedPages(n - 1), piece = pages * static_cast<int64_t>(sizeof(Page)) / element;
  scratch_.resize(pages * (n - 1));
  for (int64_t first = 0; first < call.count; first += piece) {
    const int64_t count = std::min(piece, call.count - first), offset = my_block + first * element;
    std::array<const void*, kMaxRanks> ins;
    char* next = scratch_[0].bytes;
    for (int r = 0; r < n; ++r) {
      if (r == rank() || InAddress(r).segment >= 0) {
        ins[r] = InOf(r, call) + offset;
        continue;
      }
      RETURN_IF_ERROR(Fetch(r, offset, next, count * element));
      ins[r] = next;
      next += piece * element;
    }
    void* out = static_cast<char*>(call.out) + first * element;
    Reduce(call.reduce, call.dtype, absl::MakeSpan(ins.data(), n), absl::MakeSpan(&out, 1), count);
  }
  return absl::OkStatus();
}

// This rank's result where it is the ranks' pieces one after the other.
Status SharedMemoryCommunicator::FetchPieces(const Call& call) {
  const int n = size();
  if (OutElements(call, rank(), n) == 0) return absl::OkStatus();
  const int64_t bytes = call.count * SizeOf(call.dtype);
  const int64_t my_block = GivesBlocks(call.kind) ? rank() * bytes : 0;
  const int64_t out_bytes = OutElements(call, rank(), n) * SizeOf(call.dtype);
  for (int k = 0; k < n; ++k) {
    const int r = (rank() + k) % n;
    if (!NeedsIn(call, r)) continue;
    char* to = static_cast<char*>(call.out) + (out_bytes == bytes ? 0 : r * bytes);
    if (r == rank()) {
      CopyResult(to, static_cast<const char*>(call.in) + my_block, bytes, out_bytes);
    } else {
      RETURN_IF_ERROR(Fetch(r, my_block, to, bytes));
    }
  }
  return absl::OkStatus();
}

// Round t: everybody publishes elements [t * piece, ...) of what it gives, but its own block, in half t % 2 of its
// window; one step later everybody reads them.
void SharedMemoryCommunicator::CarryStaged(Pending& p, bool* finished) {
  const Call& call = p.call;
  const int n = size();
  const int64_t element = SizeOf(call.dtype);
  const bool blocks = GivesBlocks(call.kind);
  const int64_t my_block = blocks ? rank() * call.count * element : 0;
  Pieces pieces;
  const int64_t half = board_.window_bytes() / 2;
  const int64_t piece = half / ((blocks ? n - 1 : 1) * element);
  const int64_t rounds = CeilDiv(call.count, piece);
  const char* in = static_cast<const char*>(call.in);
  if (p.step >= 1) {
    const int64_t first = (p.step - 1) * piece, count = std::min(piece, call.count - first);
    for (int r = 0; r < n; ++r) {
      if (r == rank()) {
        pieces[r] = NeedsIn(call, r) ? in + my_block + first * element : nullptr;
      } else {
        pieces[r] = board_.window(r) + (p.step - 1) % 2 * half;
        if (blocks) pieces[r] += (rank() < r ? rank() : rank() - 1) * count * element;
      }
    }
    Consume(call, pieces, first, count);
  }
  if (p.step < rounds && NeedsIn(call, rank())) {
    const int64_t first = p.step * piece, count = std::min(piece, call.count - first);
    char* window = board_.window(rank()) + p.step % 2 * half;
    if (blocks) {
      for (int r = 0; r < n; ++r) {
        if (r == rank()) continue;
        std::memcpy(window, in + (r * call.count + first) * element, count * element);
        window += count * element;
      }
    } else {
      std::memcpy(window, in + first * element, count * element);
    }
  }
  Step();
  *finished = p.step == rounds;
}

// all_reduce and reduce through the windows, two steps a round. Even ones: each takes the results of the round before
// out of its window and puts the elements that others reduce in their place. Odd ones: each reduces its slice of all
// windows, where it lies. So a cache line moves between two cores only.
void SharedMemoryCommunicator::CarryStagedReduce(Pending& p, bool* finished) {
  const Call& call = p.call;
  const int64_t element = SizeOf(call.dtype), piece = board_.window_bytes() / element;
  const int64_t round = p.step / 2, rounds = CeilDiv(call.count, piece);
  const auto part = [&](int64_t of_round) {
    const int64_t first = of_round * piece;
    return Part{first, std::max<int64_t>(0, std::min(piece, call.count - first))};
  };
  if (p.step % 2 == 1) {
    ReduceInWindows(call, part(round));
  } else {
    ExchangeWindow(call, round > 0 ? part(round - 1) : Part(), part(round));
    *finished = round == rounds;
  }
  Step();
}

void SharedMemoryCommunicator::ReduceInWindows(const Call& call, Part part) {
  const int n = size();
  const int64_t element = SizeOf(call.dtype);
  const int64_t begin = SliceBegin(part.count, element, rank()), end = SliceBegin(part.count, element, rank() + 1);
  std::array<const void*, kMaxRanks> ins;
  std::array<void*, kMaxRanks> outs;
  int num_outs = 0;
  for (int r = 0; r < n; ++r) {
    char* const there = board_.window(r) + begin * element;
    ins[r] = r == rank() ? static_cast<const char*>(call.in) + (part.first + begin) * element : there;
    if (!NeedsOut(call, r)) continue;
    outs[num_outs++] = r == rank() ? static_cast<char*>(call.out) + (part.first + begin) * element : there;
  }
  Reduce(call.reduce, call.dtype, absl::MakeSpan(ins.data(), n), absl::MakeSpan(outs.data(), num_outs), end - begin);
}

void SharedMemoryCommunicator::ExchangeWindow(const Call& call, Part results, Part next) {
  const int64_t element = SizeOf(call.dtype);
  char* const window = board_.window(rank());
  const char* const in = static_cast<const char*>(call.in) + next.first * element;
  char* const out = NeedsOut(call, rank()) ? static_cast<char*>(call.out) + results.first * element : nullptr;
  // What others reduce: all before and all after this rank's slice.
  const auto each = [&](int64_t count, const auto& move) {
    const int64_t begin = SliceBegin(count, element, rank()) * element;
    const int64_t end = SliceBegin(count, element, rank() + 1) * element;
    move(0, begin);
    move(end, count * element - end);
  };
  if (out != nullptr && results.count == next.count) {
    return each(next.count, [&](int64_t at, int64_t bytes) { Exchange(window + at, in + at, out + at, bytes); });
  }
  if (out != nullptr) {
    each(results.count, [&](int64_t at, int64_t bytes) { std::memcpy(out + at, window + at, bytes); });
  }
  each(next.count, [&](int64_t at, int64_t bytes) { std::memcpy(window + at, in + at, bytes); });
}

// Takes elements [first, first + count) of this rank's result from each rank's piece of them.
void SharedMemoryCommunicator::Consume(const Call& call, const Pieces& pieces, int64_t first, int64_t count) {
  const int n = size();
  const int64_t element = SizeOf(call.dtype);
  const int64_t bytes = count * element;
  char* out = static_cast<char*>(call.out);
  if (count == 0 || OutElements(call, rank(), n) == 0) return;
  const int64_t whole = OutElements(call, rank(), n) * element;
  const auto copy = [&](int64_t at, const char* piece) { CopyResult(out + at * element, piece, bytes, whole); };
  switch (call.kind) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter: {
      std::array<const void*, kMaxRanks> ins;
      std::copy_n(pieces.begin(), n, ins.begin());
      void* to = out + first * element;
      Reduce(call.reduce, call.dtype, absl::MakeSpan(ins.data(), n), absl::MakeSpan(&to, 1), count);
      return;
    }
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllToAll:
      for (int r = 0; r < n; ++r) copy(r * call.count + first, pieces[r]);
      return;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return copy(first, pieces[call.peer]);
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return;
  }
}

Address SharedMemoryCommunicator::InAddress(int r) const {
  const Announcement& a = board_.slot(r, static_cast<uint32_t>(done_)).call;
  return {a.in_segment, a.in_offset};
}

const char* SharedMemoryCommunicator::InOf(int r, const Call& call) const {
  return r == rank() ? static_cast<const char*>(call.in) : host_->Resolve(members()[r], InAddress(r));
}

char* SharedMemoryCommunicator::OutOf(int r, const Call& call) const {
  if (r == rank()) return static_cast<char*>(call.out);
  const Announcement& a = board_.slot(r, static_cast<uint32_t>(done_)).call;
  return host_->Resolve(members()[r], {a.out_segment, a.out_offset});
}

Status SharedMemoryCommunicator::Fetch(int r, int64_t offset, void* to, int64_t bytes) const {
  Address from = InAddress(r);
  from.offset += offset;
  return host_->Fetch(members()[r], from, to, bytes);
}

// Slices of whole cache lines, so that no two ranks write to one.
int64_t SharedMemoryCommunicator::SliceBegin(int64_t count, int64_t element, int r) const {
  const int64_t per_line = 64 / element;
  const int64_t lines = CeilDiv(count, per_line);
  return std::min(count, lines * r / size() * per_line);
}

Status SharedMemoryCommunicator::WaitFor(std::atomic<uint32_t>& word, uint32_t target, int peer, const Call& call,
                                         bool for_announcement) {
  for (int look = 0; look < looks_; ++look) {
    if (Reached(word.load(std::memory_order_acquire), target)) return absl::OkStatus();
    Look(look);
  }
  return Sleep(word, target, peer, call, for_announcement);
}

Status SharedMemoryCommunicator::Sleep(std::atomic<uint32_t>& word, uint32_t target, int peer, const Call& call,
                                       bool for_announcement) {
  const MonotonicTime deadline = MonotonicNow() + call.timeout;
  std::atomic<uint32_t>& sleepers = board_.words(peer).sleepers;
  sleepers.fetch_add(1);
  Status status;
  while (true) {
    const uint32_t value = word.load();
    if (Reached(value, target)) break;
    // Looked for before the word is read again: what a peer did before it left counts.
    status = Evidence(peer, call);
    const absl::Duration left = deadline - MonotonicNow();
    if (status.ok() && left <= absl::ZeroDuration()) {
      status = Error(absl::StatusCode::kDeadlineExceeded, call,
                     absl::StrCat("no answer within ", absl::FormatDuration(call.timeout), "; ",
                                  Absent(target, for_announcement)));
    }
    if (!status.ok()) {
      if (Reached(word.load(), target)) status = absl::OkStatus();
      break;
    }
    if (!messages_.empty()) {
      bool moved;
      status = MoveMessages(&moved);
      if (!status.ok()) break;
    }
    status = MoveSiblings();
    if (!status.ok()) break;
    const bool moving = !messages_.empty() || siblings_->Busy(this);
    FutexWait(word, value, std::min(left, moving ? kLookAroundWithMessages : kLookAround));
  }
  sleepers.fetch_sub(1);
  return status;
}

Status SharedMemoryCommunicator::WaitForMessage(uint64_t id) {
  RankWords& mine = board_.words(rank());
  MonotonicTime deadline = MonotonicTime::InfiniteFuture();
  for (int look = 0; messages_.Has(id); ++look) {
    RETURN_IF_ERROR(failed_);
    const uint32_t bell = mine.bell.load();
    bool moved = false, collectives_moved = false;
    RETURN_IF_ERROR(MoveMessages(&moved));
    if (done_ < begun_) RETURN_IF_ERROR(Advance(false, &collectives_moved));
    if (moved || collectives_moved) {
      look = 0;
      deadline = MonotonicTime::InfiniteFuture();
      continue;
    }
    if (look < looks_) {
      Look(look);
      continue;
    }
    const Call call = messages_.Find(id);
    if (deadline == MonotonicTime::InfiniteFuture()) deadline = MonotonicNow() + call.timeout;
    Status status = Evidence(call.peer, call);
    if (status.ok() && MonotonicNow() >= deadline) {
      status = Error(absl::StatusCode::kDeadlineExceeded, call,
                     absl::StrCat("no answer from rank ", call.peer, " within ", absl::FormatDuration(call.timeout)));
    }
    if (!status.ok()) {
      RETURN_IF_ERROR(MoveMessages(&moved));  // what the peer did before it left counts
      if (moved) continue;
      return Fail(status);
    }
    status = MoveSiblings();
    if (!status.ok()) return Fail(status);
    const bool moving = done_ < begun_ || siblings_->Busy(this);
    mine.listening.store(1);
    if (mine.bell.load() == bell) FutexWait(mine.bell, bell, moving ? kLookAroundWithMessages : kLookAround);
    mine.listening.store(0);
  }
  return absl::OkStatus();
}

Status SharedMemoryCommunicator::MoveMessages(bool* moved) {
  StatusOr<bool> result = messages_.Progress(&ended_messages_);
  for (uint64_t ticket : ended_messages_) recorder_->End(ticket, true);
  ended_messages_.clear();
  if (!result.ok()) return Fail(Annotate(result.status(), Me()));
  *moved = *result;
  return absl::OkStatus();
}

Status SharedMemoryCommunicator::MoveSiblings() {
  waits_ = true;
  const Status moved = siblings_->Progress(this);
  waits_ = false;
  return moved;
}

Status SharedMemoryCommunicator::FirstCause(const Status& seen, const Call& call) const {
  const Status aborted = board_.Aborted();
  const Status& cause = aborted.ok() ? seen : aborted;
  return Error(cause.code(), call, std::string(cause.message()));
}

Status SharedMemoryCommunicator::Evidence(int peer, const Call& call) const {
  const Status aborted = board_.Aborted();
  if (!aborted.ok()) return Error(aborted.code(), call, std::string(aborted.message()));
  for (int r = 0; r < size(); ++r) {
    // Any rank's end is the end of a collective; a message needs its other end alone.
    if (r == rank() || (IsPointToPoint(call.kind) && r != peer)) continue;
    if (r == peer && board_.words(r).closed.load() != 0) {
      return Error(absl::StatusCode::kUnavailable, call,
                   absl::StrCat("rank ", r, " has left the group after ", board_.words(r).done.load(),
                                " collectives; this is number ", done_));
    }
    const std::string gone = host_->Gone(members()[r]);
    if (gone.empty()) continue;
    return FirstCause(absl::UnavailableError(absl::StrCat("rank ", r, " is gone: ", gone)), call);
  }
  return absl::OkStatus();
}

// "2 of 4 ranks have come; missing: rank 1 (last in barrier at train.lua:80)".
std::string SharedMemoryCommunicator::Absent(uint32_t target, bool for_announcement) const {
  std::vector<std::string> absent;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const std::atomic<uint32_t>& word =
        for_announcement ? board_.slot(r, target - 1).call.posted : board_.words(r).stepped;
    if (Reached(word.load(), target)) continue;
    // The slot of the call before the missing one is still there: its rank needs this one's answer to reuse it.
    absent.push_back(!for_announcement ? absl::StrCat("rank ", r, " (has begun this call)")
                     : done_ == 0      ? absl::StrCat("rank ", r, " (has made no call yet)")
                                  : absl::StrCat("rank ", r, " (last in ", Describe(Announced(r, done_ - 1)), ")"));
  }
  return absl::StrCat(size() - absent.size(), " of ", size(),
                      " ranks have come, missing: ", absl::StrJoin(absent, ", "));
}

Call SharedMemoryCommunicator::Announced(int r, uint64_t number) const {
  const Slot& slot = board_.slot(r, static_cast<uint32_t>(number));
  Call call;
  call.kind = static_cast<Collective>(slot.call.kind);
  call.reduce = static_cast<ReduceOp>(slot.call.reduce);
  call.dtype = static_cast<DType>(slot.call.dtype % kNumDTypes);
  call.peer = slot.call.peer;
  call.count = slot.call.count;
  call.source = absl::string_view(slot.source, std::min<size_t>(slot.call.source_size, sizeof slot.source));
  return call;
}

Status SharedMemoryCommunicator::Error(absl::StatusCode code, const Call& call, const std::string& what) const {
  return Status(code, absl::StrCat(Me(), ": ", Describe(call), ": ", what));
}

Status SharedMemoryCommunicator::Fail(const Status& status) {
  if (!failed_.ok()) return failed_;
  failed_ = status;
  board_.Abort(status);
  for (uint64_t k = done_; k < begun_; ++k) recorder_->End(pending(k).ticket, false);
  return status;
}

StatusOr<std::unique_ptr<Communicator>> SharedMemoryCommunicator::Split(absl::Span<const int> ranks,
                                                                        absl::string_view source,
                                                                        absl::Duration limit) {
  RETURN_IF_ERROR(failed_);
  ASSIGN_OR_RETURN(const int place, PlaceIn(ranks));
  std::vector<int> group;
  for (int r : ranks) group.push_back(members()[r]);
  const std::string key = absl::StrCat(key_, "/", absl::StrJoin(group, ","), "#", splits_[group]++);
  ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> made,
      MakeSharedMemoryCommunicator(host_, std::move(group), place, key, epoch_, recorder_, limit, siblings_));
  RETURN_IF_ERROR(made->Run(Call::Barrier().At(source).Within(limit)));
  return made;
}

StatusOr<void*> SharedMemoryCommunicator::AllocateShared(int64_t bytes, absl::string_view source) {
  RETURN_IF_ERROR(failed_);
  const Call barrier = Call::Barrier().At(source);
  StatusOr<void*> memory = host_->AddSegment(bytes, barrier.timeout);
  if (!memory.ok()) return Fail(Annotate(memory.status(), Me()));
  RETURN_IF_ERROR(Run(barrier));
  return memory;
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> MakeSharedMemoryCommunicator(
    std::shared_ptr<Host> host, std::vector<int> members, int place, std::string key, uint32_t epoch,
    std::shared_ptr<FlightRecorder> recorder, absl::Duration limit, std::shared_ptr<Siblings> siblings) {
  if (members.size() > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group on one host has at most ", kMaxRanks, " ranks, not ", members.size()));
  }
  ASSIGN_OR_RETURN(Board board, host->Join(members, place, key, limit));
  return std::unique_ptr<Communicator>(new SharedMemoryCommunicator(std::move(host), std::move(members), place,
                                                                    std::move(key), epoch, std::move(recorder),
                                                                    std::move(siblings), std::move(board)));
}

}  // namespace mslua
