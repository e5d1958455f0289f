#include "collectives/net/network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/reduce.h"
#include "core/base/clock.h"
#include "core/base/hash.h"

namespace mslua {
namespace {

constexpr absl::Duration kLookAround = absl::Milliseconds(50);
constexpr absl::Duration kLookAroundWithLocal = absl::Milliseconds(1);
// A call that sends no more than this goes with its announcement: one step instead of two or three.
constexpr int64_t kEagerBytes = 256 << 10;
// all_reduce and reduce go in parts with slices of this size, which stay in the cache while they are checked, sent,
// received and summed.
constexpr int64_t kSliceBytes = 512 << 10;
// Stages of a frame's key: announcements, exchanges 1 and 2, messages and their answers.
constexpr uint8_t kAnnounceStage = 0, kMessageStage = 250, kAnswerStage = 251;

struct Range {
  const char* from = nullptr;
  char* to = nullptr;
  int64_t bytes = 0;
};

class NetworkCommunicator : public Communicator {
 public:
  // `exchange` has the members of group.local.
  NetworkCommunicator(NetworkGroup group, std::unique_ptr<Communicator> exchange)
      : Communicator(group.place, std::move(group.members), std::move(group.recorder), group.local->siblings()),
        key_(std::move(group.key)),
        id_(GroupId(key_)),
        epoch_(group.epoch),
        local_(std::move(group.local)),
        exchange_(std::move(exchange)),
        one_a_host_(group.one_a_host),
        links_(std::move(group.links)),
        local_rank_(size(), -1) {
    for (size_t i = 0; i < group.local_members.size(); ++i) {
      const auto at = std::find(members().begin(), members().end(), group.local_members[i]);
      local_rank_[at - members().begin()] = static_cast<int>(i);
    }
    for (int r = 0; r < size(); ++r) {
      if (Remote(r)) remote_.push_back(members()[r]);
    }
  }
  ~NetworkCommunicator() override { links_->Drop(id_); }

  StatusOr<Handle> Start(const Call& call) override;
  Status Wait(Handle handle) override;
  Status Progress() override;
  bool Done(Handle handle) const override {
    if (handle.id % 2 == 0) return done_ >= handle.id / 2;
    return std::none_of(messages_.begin(), messages_.end(), [&](const auto& m) { return m->id == handle.id; });
  }
  bool busy() const override { return failed_.ok() && !(operations_.empty() && messages_.empty()); }
  StatusOr<std::unique_ptr<Communicator>> Split(absl::Span<const int> ranks, absl::string_view source,
                                                absl::Duration limit) override;
  StatusOr<void*> AllocateShared(int64_t bytes, absl::string_view source) override;
  void Abort(const Status& why) override { Fail(Mine(why)).IgnoreError(); }

 private:
  struct Operation {
    Call call;
    Call part;  // of it, which is exchanged now
    std::string source;
    uint64_t number = 0, ticket = 0;
    int stage = 0;
    int64_t first = 0;            // of the part
    std::vector<char> mine, all;  // announcements within the host
    std::vector<Range> ranges;    // of the exchange under way, by rank
    std::vector<std::shared_ptr<Arrival>> announced, arrivals;
    std::vector<Handle> local;
    int unsent = 0;
  };
  struct Message {
    Call call;
    std::string source;
    uint64_t id = 0, ticket = 0, sequence = 0;
    std::shared_ptr<Arrival> arrival;  // the message, or the answer to it
    Handle local;
    bool is_local = false;
    int unsent = 0;
  };
  // What ranks of a host tell each other before an exchange.
  struct Announcement {
    int64_t count;
    int32_t peer;
    uint8_t kind, reduce, dtype, source_size;
    char source[kMaxSourceBytes];
  };

  bool Remote(int r) const { return r != rank() && local_rank_[r] < 0; }
  Frame MakeFrame(Frame::Type type, uint8_t stage, uint64_t sequence, const Call& call, const void* payload,
                  int64_t bytes) const;
  // What rank `from` gives rank `to`: bytes of its `in`.
  struct Piece {
    int64_t begin = 0, bytes = 0;
  };
  Piece PieceOf(const Call& call, int from, int to) const;
  bool Eager(const Call& call) const;
  Status Announce(Operation& op);
  Status FinishEager(const Operation& op);
  Status Exchange(Operation& op);
  void PlanStage(Operation& op);
  Status FinishStage(Operation& op, bool* finished);
  Status FinishAnnouncing(Operation& op, bool* finished);
  // The part from element `first` on.
  Status BeginPart(Operation& op, int64_t first);
  Status Compare(const Operation& op, int r, const Call& theirs);
  Status Settle(const Arrival& arrival, char* into, int64_t bytes, int r) const;
  int64_t SliceBegin(const Call& call, int r) const { return call.count * r / size(); }

  // Moves what can move; `*moved` says whether anything did.
  Status Turn(bool* moved);
  Status TurnMessages(bool* moved);
  bool StageDone(const Operation& op) const;
  // Waits until done().
  Status WaitUntil(const Call& call, const std::function<bool()>& done);
  Status Fail(const Status& status);
  Status Error(absl::StatusCode code, const Call& call, absl::string_view what) const {
    return Status(code, absl::StrCat(Me(), ": ", Describe(call), ": ", what));
  }

  const std::string key_;
  const uint64_t id_;
  const uint32_t epoch_;
  // Of this host: the callers' messages, and the collectives' parts, which need not come in the same order.
  const std::unique_ptr<Communicator> local_, exchange_;
  const bool one_a_host_;
  const std::shared_ptr<Links> links_;
  std::vector<char> scratch_;    // of the operation under way: what is to be reduced, by rank; then the result
  std::vector<int> local_rank_;  // in local_, by rank; -1: on another host
  std::vector<int> remote_;      // world ranks elsewhere
  Status failed_;
  std::deque<std::unique_ptr<Operation>> operations_;
  uint64_t begun_ = 0, done_ = 0, next_message_ = 0;
  std::deque<std::unique_ptr<Message>> messages_;
  std::map<int, uint64_t> sent_, received_;  // messages, by peer
  std::map<std::vector<int>, int> splits_;
};

Frame NetworkCommunicator::MakeFrame(Frame::Type type, uint8_t stage, uint64_t sequence, const Call& call,
                                     const void* payload, int64_t bytes) const {
  Frame frame;
  frame.type = type;
  frame.stage = stage;
  frame.epoch = epoch_;
  frame.group = id_;
  frame.sequence = sequence;
  frame.bytes = bytes;
  frame.payload_crc = Crc32c(payload, bytes);
  frame.call = call;
  return frame;
}

StatusOr<Handle> NetworkCommunicator::Start(const Call& call) {
  RETURN_IF_ERROR(failed_);
  RETURN_IF_ERROR(Validate(call));
  if (!IsPointToPoint(call.kind)) {
    auto op = std::make_unique<Operation>();
    op->call = call;
    op->source = std::string(call.source.substr(0, kMaxSourceBytes));
    op->call.source = op->source;
    op->number = begun_++;
    op->ticket = recorder_->Begin(call, op->number, size());
    operations_.push_back(std::move(op));
    // One at a time goes through the exchanges: the next is announced when the one before has ended.
    if (operations_.size() == 1) {
      const Status status = Announce(*operations_.front());
      if (!status.ok()) return Fail(status);
    }
    return Handle{2 * begun_};
  }
  auto message = std::make_unique<Message>();
  Message& m = *message;
  m.call = call;
  m.source = std::string(call.source.substr(0, kMaxSourceBytes));
  m.call.source = m.source;
  m.id = 2 * ++next_message_ + 1;
  m.ticket = recorder_->Begin(call, next_message_ - 1, size());
  const int64_t bytes = call.count * SizeOf(call.dtype);
  const int peer = members()[call.peer];
  if (!Remote(call.peer)) {
    m.is_local = true;
    m.call.peer = local_rank_[call.peer];
    auto handle = local_->Start(m.call);
    if (!handle.ok()) return Fail(handle.status());
    m.local = *handle;
  } else if (call.kind == Collective::kSend) {
    m.sequence = sent_[peer]++;
    m.arrival = links_->Expect(peer, id_, m.sequence, kAnswerStage, nullptr, 0);
    links_->Send(peer, MakeFrame(Frame::Type::kData, kMessageStage, m.sequence, m.call, call.in, bytes), call.in,
                 &m.unsent);
  } else {
    m.sequence = received_[peer]++;
    m.arrival = links_->Expect(peer, id_, m.sequence, kMessageStage, call.out, bytes);
  }
  messages_.push_back(std::move(message));
  return Handle{2 * next_message_ + 1};
}

Status NetworkCommunicator::Wait(Handle handle) {
  if (Done(handle)) return absl::OkStatus();
  RETURN_IF_ERROR(failed_);
  Call call;
  if (handle.id % 2 == 0) {
    call = operations_[handle.id / 2 - 1 - done_]->call;
  } else {
    for (const auto& m : messages_) {
      if (m->id == handle.id) call = m->call;
    }
  }
  const std::string source(call.source);
  call.source = source;
  return WaitUntil(call, [&] { return Done(handle); });
}

Status NetworkCommunicator::Progress() {
  for (bool moved = true; moved;) RETURN_IF_ERROR(Turn(&moved));
  return absl::OkStatus();
}

Status NetworkCommunicator::WaitUntil(const Call& call, const std::function<bool()>& done) {
  MonotonicTime deadline = MonotonicNow() + call.timeout;
  while (true) {
    bool moved = false;
    RETURN_IF_ERROR(Turn(&moved));
    if (done()) return absl::OkStatus();
    if (moved) {
      deadline = MonotonicNow() + call.timeout;
      continue;
    }
    const bool local = local_ != nullptr &&
                       ((!operations_.empty() && !operations_.front()->local.empty()) ||
                        std::any_of(messages_.begin(), messages_.end(), [](const auto& m) { return m->is_local; }));
    const Status siblings = siblings_->Progress(this);
    if (!siblings.ok()) return Fail(siblings);
    // Nothing moves until a frame has come or gone, a rank of this host has done something, or a sibling's call moves.
    const bool looks = local || siblings_->Busy(this);
    const Status status = links_->Wait(id_, looks ? kLookAroundWithLocal : kLookAround, [&](std::vector<int>* awaited) {
      if (!operations_.empty()) {
        const Operation& op = *operations_.front();
        if (op.local.empty() && StageDone(op)) return true;
        for (int r = 0; r < size(); ++r) {
          const std::shared_ptr<Arrival>& a = op.stage == 0 ? op.announced[r] : op.arrivals[r];
          if (Remote(r) && (op.unsent > 0 || (a != nullptr && !a->complete))) awaited->push_back(members()[r]);
        }
      }
      for (const auto& m : messages_) {
        if (m->is_local) continue;
        if (m->arrival->complete && m->unsent == 0) return true;
        awaited->push_back(members()[m->call.peer]);
      }
      return false;
    });
    if (absl::IsDeadlineExceeded(status)) {
      if (MonotonicNow() < deadline) continue;
      std::vector<std::string> missing;
      if (!operations_.empty() && operations_.front()->stage == 0) {
        const Operation& op = *operations_.front();
        for (int r = 0; r < size(); ++r) {
          if (Remote(r) && !links_->Check([&] { return op.announced[r]->complete; }))
            missing.push_back(absl::StrCat("rank ", r));
          if (r != rank() && !Remote(r) && !op.local.empty()) missing.push_back(absl::StrCat("perhaps rank ", r));
        }
      }
      return Fail(Error(absl::StatusCode::kDeadlineExceeded, call,
                        absl::StrCat("no answer within ", absl::FormatDuration(call.timeout),
                                     missing.empty() ? "" : "; missing: ", absl::StrJoin(missing, ", "))));
    }
    if (!status.ok()) {
      // A peer that has done its part may leave.
      RETURN_IF_ERROR(Turn(&moved));
      if (done()) return absl::OkStatus();
      if (moved) continue;
      return Fail(Error(status.code(), call, status.message()));
    }
  }
}

bool NetworkCommunicator::StageDone(const Operation& op) const {
  const auto& awaited = op.stage == 0 ? op.announced : op.arrivals;
  return op.unsent == 0 &&
         std::all_of(awaited.begin(), awaited.end(), [](const auto& a) { return a == nullptr || a->complete; });
}

Status NetworkCommunicator::Turn(bool* moved) {
  *moved = false;
  RETURN_IF_ERROR(failed_);
  Status progress = local_->Progress();
  if (progress.ok()) progress = exchange_->Progress();
  if (!progress.ok()) return Fail(progress);
  RETURN_IF_ERROR(TurnMessages(moved));
  while (!operations_.empty()) {
    Operation& op = *operations_.front();
    op.local.erase(std::remove_if(op.local.begin(), op.local.end(), [&](Handle h) { return exchange_->Done(h); }),
                   op.local.end());
    if (!op.local.empty()) return absl::OkStatus();
    if (!links_->Check([&] { return StageDone(op); })) {
      return absl::OkStatus();
    }
    bool finished = false;
    const Status status = FinishStage(op, &finished);
    if (!status.ok()) return Fail(status);
    *moved = true;
    if (finished) {
      recorder_->End(op.ticket, true);
      operations_.pop_front();
      ++done_;
      if (!operations_.empty()) {
        const Status announced = Announce(*operations_.front());
        if (!announced.ok()) return Fail(announced);
      }
    }
  }
  return absl::OkStatus();
}

Status NetworkCommunicator::TurnMessages(bool* moved) {
  for (size_t i = 0; i < messages_.size();) {
    Message& m = *messages_[i];
    bool ended = false;
    if (m.is_local) {
      ended = local_->Done(m.local);
    } else {
      ended = links_->Check([&] { return m.arrival->complete && m.unsent == 0; });
    }
    if (!ended) {
      ++i;
      continue;
    }
    *moved = true;
    if (!m.is_local) {
      const int peer = members()[m.call.peer];
      Call theirs = m.arrival->frame.call;
      theirs.source = m.arrival->source;
      const auto differ = [&] {
        return Fail(
            Error(absl::StatusCode::kFailedPrecondition, m.call,
                  absl::StrCat("the two ends of a message differ: rank ", m.call.peer, " calls ", Describe(theirs))));
      };
      if (m.call.kind == Collective::kSend) {
        if (m.arrival->frame.status != 0) return differ();
      } else {
        const bool same = theirs.count == m.call.count && theirs.dtype == m.call.dtype && theirs.tag == m.call.tag;
        Frame answer = MakeFrame(Frame::Type::kAnswer, kAnswerStage, m.sequence, m.call, nullptr, 0);
        answer.status = same ? 0 : static_cast<uint16_t>(absl::StatusCode::kFailedPrecondition);
        links_->Send(peer, answer, nullptr, nullptr);
        if (!same) return differ();
        const Status status =
            Settle(*m.arrival, static_cast<char*>(m.call.out), m.call.count * SizeOf(m.call.dtype), m.call.peer);
        if (!status.ok()) return Fail(status);
      }
    }
    recorder_->End(m.ticket, true);
    messages_.erase(messages_.begin() + i);
  }
  return absl::OkStatus();
}

NetworkCommunicator::Piece NetworkCommunicator::PieceOf(const Call& call, int from, int to) const {
  const int64_t block = call.count * SizeOf(call.dtype);
  switch (call.kind) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
      return {0, block};
    case Collective::kReduce:
    case Collective::kGather:
      return {0, to == call.peer ? block : 0};
    case Collective::kBroadcast:
      return {0, from == call.peer ? block : 0};
    case Collective::kScatter:
      return from == call.peer ? Piece{to * block, block} : Piece();
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return {to * block, block};
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return {};
  }
  return {};
}

// The same on all ranks: a rank of a host with others would have to tell them too.
bool NetworkCommunicator::Eager(const Call& call) const {
  return one_a_host_ && call.count * SizeOf(call.dtype) * (size() - 1) <= kEagerBytes;
}

// The result, from the data in the announcements.
Status NetworkCommunicator::FinishEager(const Operation& op) {
  const Call& call = op.call;
  const int64_t block = call.count * SizeOf(call.dtype);
  std::vector<const void*> pieces(size(), nullptr);
  for (int r = 0; r < size(); ++r) {
    const Piece piece = PieceOf(call, r, rank());
    if (piece.bytes == 0) continue;
    if (r != rank()) RETURN_IF_ERROR(Settle(*op.announced[r], nullptr, piece.bytes, r));
    pieces[r] = r == rank() ? static_cast<const char*>(call.in) + piece.begin : op.announced[r]->heap.get();
  }
  if (block == 0 || OutElements(call, rank(), size()) == 0) return absl::OkStatus();
  char* const out = static_cast<char*>(call.out);
  if (Reduces(call.kind)) {
    void* result = out;
    Reduce(call.reduce, call.dtype, pieces, {&result, 1}, call.count);
    return absl::OkStatus();
  }
  const bool whole = call.kind == Collective::kBroadcast || call.kind == Collective::kScatter;
  for (int r = 0; r < size(); ++r) {
    char* const to = whole ? out : out + r * block;
    if (pieces[r] != nullptr && pieces[r] != to) std::memcpy(to, pieces[r], block);
  }
  return absl::OkStatus();
}

Status NetworkCommunicator::Announce(Operation& op) {
  op.announced.resize(size());
  for (int r = 0; r < size(); ++r) {
    if (!Remote(r)) continue;
    op.announced[r] = links_->Expect(members()[r], id_, op.number, kAnnounceStage, nullptr, 0);
    const Piece piece = Eager(op.call) ? PieceOf(op.call, rank(), r) : Piece();
    const char* data = static_cast<const char*>(op.call.in) + piece.begin;
    links_->Send(members()[r], MakeFrame(Frame::Type::kAnnounce, kAnnounceStage, op.number, op.call, data, piece.bytes),
                 piece.bytes > 0 ? data : nullptr, &op.unsent);
  }
  Announcement mine = {};
  mine.count = op.call.count;
  mine.peer = op.call.peer;
  mine.kind = static_cast<uint8_t>(op.call.kind);
  mine.reduce = static_cast<uint8_t>(op.call.reduce);
  mine.dtype = static_cast<uint8_t>(op.call.dtype);
  mine.source_size = static_cast<uint8_t>(op.source.size());
  std::memcpy(mine.source, op.source.data(), op.source.size());
  op.mine.assign(reinterpret_cast<char*>(&mine), reinterpret_cast<char*>(&mine + 1));
  op.all.resize(sizeof mine * exchange_->size());
  ASSIGN_OR_RETURN(const Handle handle,
                   exchange_->Start(Call::AllGather(DType::kU8, op.mine.data(), op.all.data(), sizeof mine)
                                        .At(op.source)
                                        .Within(op.call.timeout)));
  op.local.push_back(handle);
  return absl::OkStatus();
}

Status NetworkCommunicator::Compare(const Operation& op, int r, const Call& theirs) {
  if (SameCall(op.call, theirs)) return absl::OkStatus();
  const Call& low = r < rank() ? theirs : op.call;
  const Call& high = r < rank() ? op.call : theirs;
  return absl::FailedPreconditionError(absl::StrCat(
      Me(), ": collective ", op.number, " differs: rank ", std::min(r, rank()), " calls ", Describe(low), "; rank ",
      std::max(r, rank()), " calls ", Describe(high), "; all ranks of a group make the same calls in the same order"));
}

// Whether the payload came whole; and to where it belongs (null: it stays), if it came early.
Status NetworkCommunicator::Settle(const Arrival& arrival, char* into, int64_t bytes, int r) const {
  if (static_cast<int64_t>(arrival.frame.bytes) != bytes) {
    return absl::UnavailableError(
        absl::StrCat(Me(), ": rank ", r, " sent ", arrival.frame.bytes, " bytes, expected ", bytes));
  }
  if (arrival.crc != arrival.frame.payload_crc) {
    return absl::UnavailableError(
        absl::StrCat(Me(), ": data from rank ", r, " was damaged on its way: its CRC32C differs"));
  }
  if (arrival.heap != nullptr && into != nullptr && bytes > 0) std::memcpy(into, arrival.heap.get(), bytes);
  return absl::OkStatus();
}

// What goes to and comes from each rank in the coming exchange.
void NetworkCommunicator::PlanStage(Operation& op) {
  const Call& call = op.part;
  const int n = size(), me = rank();
  const int64_t element = SizeOf(call.dtype), block = call.count * element;
  const char* in = static_cast<const char*>(call.in);
  char* out = static_cast<char*>(call.out);
  op.ranges.assign(n, Range());
  const bool root = me == call.peer;
  const int64_t mine = SliceBegin(call, me) * element, mine_bytes = SliceBegin(call, me + 1) * element - mine;
  for (int r = 0; r < n; ++r) {
    Range& range = op.ranges[r];
    const int64_t slice = SliceBegin(call, r) * element, slice_bytes = SliceBegin(call, r + 1) * element - slice;
    // Sizes of both directions differ only in all_reduce and reduce; `bytes` is of what comes, see Exchange.
    switch (call.kind) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        if (op.stage == 1) {
          range = {in + slice, scratch_.data() + r * mine_bytes, mine_bytes};
        } else if (call.kind == Collective::kAllReduce) {
          range = {out + mine, out + slice, slice_bytes};
        } else {
          range = {r == call.peer ? scratch_.data() : nullptr, root ? out + slice : nullptr, slice_bytes};
        }
        break;
      case Collective::kReduceScatter:
        range = {in + r * block, scratch_.data() + r * block, block};
        break;
      case Collective::kAllGather:
        range = {in, out + r * block, block};
        break;
      case Collective::kBroadcast:
        range = {root ? in : nullptr, r == call.peer ? out : nullptr, block};
        break;
      case Collective::kGather:
        range = {r == call.peer ? in : nullptr, root ? out + r * block : nullptr, block};
        break;
      case Collective::kScatter:
        range = {root ? in + r * block : nullptr, r == call.peer ? out : nullptr, block};
        break;
      case Collective::kAllToAll:
        range = {in + r * block, out + r * block, block};
        break;
      case Collective::kBarrier:
      case Collective::kSend:
      case Collective::kRecv:
        break;
    }
  }
}

Status NetworkCommunicator::Exchange(Operation& op) {
  const Call& call = op.part;
  const int64_t element = SizeOf(call.dtype);
  const auto slice_bytes = [&](int r) { return (SliceBegin(call, r + 1) - SliceBegin(call, r)) * element; };
  const bool sliced = Sliced(call.kind);
  op.arrivals.assign(size(), nullptr);
  PlanStage(op);
  for (int r = 0; r < size(); ++r) {
    const Range& range = op.ranges[r];
    if (r == rank()) continue;
    const int64_t out_bytes = !sliced ? range.bytes : op.stage == 1 ? slice_bytes(r) : slice_bytes(rank());
    const bool sends = range.from != nullptr && out_bytes > 0, receives = range.to != nullptr && range.bytes > 0;
    if (Remote(r)) {
      const uint8_t stage = static_cast<uint8_t>(op.stage);
      if (receives) op.arrivals[r] = links_->Expect(members()[r], id_, op.number, stage, range.to, range.bytes);
      if (sends) {
        links_->Send(members()[r], MakeFrame(Frame::Type::kData, stage, op.number, call, range.from, out_bytes),
                     range.from, &op.unsent);
      }
      continue;
    }
    if (sends) {
      ASSIGN_OR_RETURN(
          const Handle handle,
          exchange_->Start(
              Call::Send(DType::kU8, range.from, out_bytes, local_rank_[r], -1).At(op.source).Within(call.timeout)));
      op.local.push_back(handle);
    }
    if (receives) {
      ASSIGN_OR_RETURN(
          const Handle handle,
          exchange_->Start(
              Call::Recv(DType::kU8, range.to, range.bytes, local_rank_[r], -1).At(op.source).Within(call.timeout)));
      op.local.push_back(handle);
    }
  }
  return absl::OkStatus();
}

Status NetworkCommunicator::FinishAnnouncing(Operation& op, bool* finished) {
  const Call& call = op.call;
  const int n = size(), me = rank();
  for (int r = 0; r < n; ++r) {
    Call theirs;
    Announcement a;
    if (Remote(r)) {
      theirs = op.announced[r]->frame.call;
      theirs.source = op.announced[r]->source;
      if (op.announced[r]->frame.epoch != epoch_) {
        return Error(absl::StatusCode::kFailedPrecondition, call,
                     absl::StrCat("rank ", r, " is of membership epoch ", op.announced[r]->frame.epoch,
                                  ", this rank of epoch ", epoch_));
      }
    } else if (r != me) {
      std::memcpy(&a, op.all.data() + local_rank_[r] * sizeof a, sizeof a);
      theirs.kind = static_cast<Collective>(a.kind);
      theirs.reduce = static_cast<ReduceOp>(a.reduce);
      theirs.dtype = static_cast<DType>(a.dtype % kNumDTypes);
      theirs.peer = a.peer;
      theirs.count = a.count;
      theirs.source = absl::string_view(a.source, std::min<size_t>(a.source_size, sizeof a.source));
    } else {
      continue;
    }
    RETURN_IF_ERROR(Compare(op, r, theirs));
  }
  if (Eager(call)) {
    *finished = true;
    return FinishEager(op);
  }
  if (call.kind == Collective::kBarrier || call.count == 0) {
    *finished = true;
    return absl::OkStatus();
  }
  return BeginPart(op, 0);
}

Status NetworkCommunicator::BeginPart(Operation& op, int64_t first) {
  const int64_t element = SizeOf(op.call.dtype);
  op.stage = 1;
  op.first = first;
  op.part = op.call;
  int64_t needed = size() * op.call.count * element;
  if (Sliced(op.call.kind)) {
    Call& part = op.part;
    part.count = std::min(op.call.count - first, size() * kSliceBytes / element);
    part.in = static_cast<const char*>(part.in) + first * element;
    if (part.out != nullptr) part.out = static_cast<char*>(part.out) + first * element;
    needed = size() * (SliceBegin(part, rank() + 1) - SliceBegin(part, rank())) * element;
  }
  // It stays for the next operation: fresh memory costs as much as the sums.
  if (Reduces(op.call.kind) && static_cast<int64_t>(scratch_.size()) <= needed) scratch_.resize(needed + 1);
  return Exchange(op);
}

Status NetworkCommunicator::FinishStage(Operation& op, bool* finished) {
  if (op.stage == 0) return FinishAnnouncing(op, finished);
  const Call& call = op.part;
  const int n = size(), me = rank();
  const int64_t element = SizeOf(call.dtype);
  const bool sliced = Sliced(call.kind);
  for (int r = 0; r < n; ++r) {
    if (op.arrivals[r] != nullptr) RETURN_IF_ERROR(Settle(*op.arrivals[r], op.ranges[r].to, op.ranges[r].bytes, r));
  }
  // This rank's own part.
  const Range& own = op.ranges[me];
  if (op.stage == 1 && Reduces(call.kind)) {
    const int64_t mine = SliceBegin(call, me), count = sliced ? SliceBegin(call, me + 1) - mine : call.count;
    std::vector<const void*> sources(n);
    for (int r = 0; r < n; ++r) sources[r] = r == me ? own.from : op.ranges[r].to;
    void* result = call.kind == Collective::kReduce ? scratch_.data()
                   : sliced                         ? static_cast<char*>(call.out) + mine * element
                                                    : call.out;
    Reduce(call.reduce, call.dtype, sources, {&result, 1}, count);
    if (sliced) {
      op.stage = 2;
      return Exchange(op);
    }
  } else if (own.from != nullptr && own.to != nullptr && own.from != own.to) {
    std::memcpy(own.to, own.from, own.bytes);
  }
  if (sliced && op.first + call.count < op.call.count) return BeginPart(op, op.first + call.count);
  *finished = true;
  return absl::OkStatus();
}

Status NetworkCommunicator::Fail(const Status& status) {
  if (!failed_.ok()) return failed_;
  failed_ = status;
  Frame frame = MakeFrame(Frame::Type::kAbort, 0, 0, Call(), nullptr, 0);
  const Status seen = AsSeenByOthers(status);
  frame.status = static_cast<uint16_t>(seen.code());
  const std::string reason(seen.message().substr(0, 1000));
  for (int r : remote_) links_->SendAbort(r, frame, reason);
  local_->Abort(status);
  exchange_->Abort(status);
  links_->Drop(id_);
  for (const auto& op : operations_) recorder_->End(op->ticket, false);
  for (const auto& m : messages_) recorder_->End(m->ticket, false);
  return status;
}

StatusOr<std::unique_ptr<Communicator>> NetworkCommunicator::Split(absl::Span<const int> ranks,
                                                                   absl::string_view source, absl::Duration limit) {
  RETURN_IF_ERROR(failed_);
  NetworkGroup group;
  ASSIGN_OR_RETURN(group.place, PlaceIn(ranks));
  std::vector<int> local_ranks;
  for (int r : ranks) {
    group.members.push_back(members()[r]);
    if (!Remote(r)) {
      local_ranks.push_back(local_rank_[r]);
      group.local_members.push_back(members()[r]);
    }
  }
  group.key = absl::StrCat(key_, "/", absl::StrJoin(group.members, ","), "#", splits_[group.members]++);
  group.epoch = epoch_;
  group.one_a_host = one_a_host_;
  ASSIGN_OR_RETURN(group.local, local_->Split(local_ranks, source, limit));
  if (local_ranks.size() == ranks.size()) return std::move(group.local);  // no need of the network
  group.links = links_;
  group.recorder = recorder_;
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> made, MakeNetworkCommunicator(std::move(group)));
  RETURN_IF_ERROR(made->Run(Call::Barrier().At(source).Within(limit)));
  return made;
}

StatusOr<void*> NetworkCommunicator::AllocateShared(int64_t bytes, absl::string_view source) {
  RETURN_IF_ERROR(failed_);
  return local_->AllocateShared(bytes, source);
}

}  // namespace

uint64_t GroupId(absl::string_view key) { return std::stoull(Blake2bHex(key).substr(0, 16), nullptr, 16); }

StatusOr<std::unique_ptr<Communicator>> MakeNetworkCommunicator(NetworkGroup group) {
  std::vector<int> all(group.local->size());
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> exchange, group.local->Split(all, group.key, Call().timeout));
  return std::unique_ptr<Communicator>(new NetworkCommunicator(std::move(group), std::move(exchange)));
}

}  // namespace mslua
