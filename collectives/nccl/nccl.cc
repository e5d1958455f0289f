#include "collectives/nccl/nccl.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

// How often the thread that waits looks at what is not the device's: NCCL's errors, other ranks.
constexpr absl::Duration kLook = absl::Milliseconds(5);
// NCCL's own word of a lost peer says less than the host's, which comes a moment later.
constexpr absl::Duration kFirstCause = absl::Seconds(1);
// Bytes of what a rank says of itself: a count that no other call has.
constexpr int kPlace = 191;
// For the other ranks to say where they are, and to end their communicators together.
constexpr absl::Duration kEvidence = absl::Seconds(1), kEnd = absl::Seconds(2);
// A wait ends a moment before those of the host's groups, so that a rank that waits there still answers.
absl::Duration LimitOf(absl::Duration timeout) { return timeout - std::min(timeout / 4, absl::Seconds(2)); }

int TypeOf(DType t) {
  switch (t) {
    case DType::kF16:
      return cuda::kNcclF16;
    case DType::kBF16:
      return cuda::kNcclBF16;
    case DType::kF32:
      return cuda::kNcclF32;
    case DType::kF64:
      return cuda::kNcclF64;
    case DType::kI32:
      return cuda::kNcclI32;
    case DType::kI64:
      return cuda::kNcclI64;
    case DType::kU8:
    case DType::kBool:
      break;
  }
  return cuda::kNcclU8;
}

// Bytes of bool are 0 and 1: "or" is their maximum, "and" their minimum.
int ReductionOf(const Call& call) {
  const bool boolean = call.dtype == DType::kBool;
  switch (call.reduce) {
    case ReduceOp::kSum:
      return boolean ? cuda::kNcclMax : cuda::kNcclSum;
    case ReduceOp::kProd:
      return boolean ? cuda::kNcclMin : cuda::kNcclProd;
    case ReduceOp::kMax:
      return cuda::kNcclMax;
    case ReduceOp::kMin:
      return cuda::kNcclMin;
    case ReduceOp::kMean:
      break;
  }
  return cuda::kNcclMean;
}

// Beginning and end of a text for which there are 95 bytes.
std::string Shortened(const std::string& text) {
  constexpr size_t kBegin = 32, kTail = 54;
  return text.size() <= kBegin + kTail ? text
                                       : absl::StrCat(text.substr(0, kBegin), "..", text.substr(text.size() - kTail));
}

// Spins at first: most waits are short.
class Pause {
 public:
  void Rest() {
    if (++turns_ < 2000)
      sched_yield();
    else
      absl::SleepFor(absl::Microseconds(50));
  }

 private:
  int turns_ = 0;
};

}  // namespace

// What the ranks of a group tell one another before they use NCCL.
struct NcclWorld::Member {
  char problem[600];  // empty: none
  int32_t version;
  cuda::Uuid device;
};

NcclWorld::Member NcclWorld::Mine() const {
  Member mine = {};
  const auto refuse = [&](const Status& why) {
    why.message().copy(mine.problem, sizeof mine.problem - 1);
    return mine;
  };
  const auto library = cuda::OpenNccl();
  if (!library.ok()) return refuse(library.status());
  const Status asked = cuda::CheckNccl(**library, (*library)->call.ncclGetVersion(&mine.version), "ncclGetVersion");
  if (!asked.ok()) return refuse(asked);
  const auto device = device_->Identifier();
  if (!device.ok()) return refuse(device.status());
  mine.device = *device;
  return mine;
}

StatusOr<std::string> NcclWorld::Decide(Communicator& host, absl::string_view source) const {
  const Member mine = Mine();
  std::vector<Member> all(static_cast<size_t>(host.size()));
  RETURN_IF_ERROR(
      host.Run(Call::AllGather(DType::kU8, &mine, all.data(), sizeof mine).At(source).Within(groups_->timeout())));
  const auto rank_of = [&](size_t i) { return absl::StrCat("rank ", host.members()[i]); };
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].problem[sizeof all[i].problem - 1] = 0;
    if (*all[i].problem != 0) return absl::StrCat(rank_of(i), ": ", all[i].problem);
  }
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].version != all[0].version)
      return absl::StrCat(rank_of(0), " has NCCL ", cuda::NcclVersionText(all[0].version), " and ", rank_of(i), " has ",
                          cuda::NcclVersionText(all[i].version), ": give all ranks the same");
    for (size_t k = 0; k < i; ++k) {
      if (std::memcmp(&all[k].device, &all[i].device, sizeof all[i].device) == 0)
        return absl::StrCat(rank_of(k), " and ", rank_of(i),
                            " use one device, and NCCL needs a device for each: start fewer ranks");
    }
  }
  return std::string();
}

StatusOr<std::unique_ptr<NcclWorld>> NcclWorld::Make(std::shared_ptr<Groups> groups, Device* device, NcclUse use,
                                                     std::function<void(const std::string&)> staged) {
  auto world = std::unique_ptr<NcclWorld>(new NcclWorld(std::move(groups), device, use));
  world->staged_ = std::move(staged);
  RETURN_IF_ERROR(device->Enter());
  ASSIGN_OR_RETURN(world->stream_, device->MakeStream());
  return world;
}

NcclWorld::~NcclWorld() {
  if (!device_->Enter().ok()) return;
  // Enqueued and not waited for: the peers' calls may never come.
  if (!pending_.empty() && failed_.ok()) Fail(absl::CancelledError("the rank has ended")).IgnoreError();
  DropGraphs();
  made_.clear();
}

void NcclWorld::DropGraphs() {
  for (const auto& weak : graphs_) {
    if (const auto graph = weak.lock()) graph->graph_ = CapturedGraph();
  }
}

StatusOr<NcclGroup*> NcclWorld::Get(absl::Span<const int64_t> ranks, absl::string_view source) {
  RETURN_IF_ERROR(failed_);
  ASSIGN_OR_RETURN(Communicator* const host, groups_->Get(ranks, source));
  const auto at = made_.find(host);
  if (at != made_.end()) return at->second.get();
  ASSIGN_OR_RETURN(const std::string problem, Decide(*host, source));
  std::unique_ptr<NcclGroup> group;
  if (problem.empty()) {
    ASSIGN_OR_RETURN(group, MakeGroup(host, source));
  } else if (use_ == NcclUse::kAlways) {
    return WithExitCode(absl::FailedPreconditionError(
                            absl::StrCat("NCCL cannot be used: ", problem,
                                         "; or set MSLUA_SHARE_DEVICE=1: collectives then go through host memory")),
                        kExitEnvironment);
  } else if (staged_) {
    std::exchange(staged_, nullptr)(problem);
  }
  return (made_[host] = std::move(group)).get();
}

StatusOr<std::unique_ptr<NcclGroup>> NcclWorld::MakeGroup(Communicator* host, absl::string_view source) {
  ASSIGN_OR_RETURN(library_, cuda::OpenNccl());
  const std::string what = absl::StrCat("making a communicator of ", host->size(), " ranks at ", source);
  auto group = std::unique_ptr<NcclGroup>(new NcclGroup(this, host));
  const auto make = [&]() -> Status {
    cuda::NcclId id = {};
    // The others wait for the id: they are told of a failure by Fail.
    if (host->rank() == 0) RETURN_IF_ERROR(Check(library_->call.ncclGetUniqueId(&id), "ncclGetUniqueId"));
    RETURN_IF_ERROR(host->Run(Call::Broadcast(DType::kU8, &id, sizeof id, 0).At(source).Within(groups_->timeout())));
    RETURN_IF_ERROR(device_->Enter());
    cuda::NcclConfig config;
    RETURN_IF_ERROR(Check(library_->call.ncclCommInitRankConfig(&group->comm_, host->size(), id, host->rank(), &config),
                          "ncclCommInitRankConfig"));
    return group->Settle(what);
  };
  const Status made = make();
  if (made.ok()) return group;
  const Status why = Fail(Annotate(made, what));
  group->Leave();
  host->Abort(why);
  return why;
}

Status NcclWorld::Check(cuda::Result result, const char* function) const {
  return result == cuda::kNcclInProgress ? absl::OkStatus() : cuda::CheckNccl(*library_, result, function);
}

StatusOr<DeviceEvent> NcclWorld::TakeEvent() {
  if (events_.empty()) return device_->MakeEvent();
  DeviceEvent event = std::move(events_.back());
  events_.pop_back();
  return event;
}

StatusOr<bool> NcclWorld::Retire() {
  bool any = false;
  while (!pending_.empty()) {
    Pending& p = pending_.front();
    ASSIGN_OR_RETURN(const bool ended, p.Done().Reached());
    if (!ended) break;
    groups_->world().recorder().End(p.ticket, true);
    if (p.graph == nullptr) {
      events_.push_back(std::move(p.ready));
      events_.push_back(std::move(p.done));
    }
    pending_.pop_front();
    ++first_;
    any = true;
  }
  return any;
}

Status NcclWorld::After(uint64_t number, DeviceStream& stream) {
  RETURN_IF_ERROR(failed_);
  if ((number & kInGraph) != 0) {
    if (capturing_ == nullptr) return absl::OkStatus();  // its graph was run on a stream, which comes behind it
    const NcclGraph::Recorded& recorded = capturing_->calls_[number & ~kInGraph];
    return Annotate(stream.WaitFor(recorded.joined), recorded.what);
  }
  if (number < first_) return absl::OkStatus();
  const Pending& pending = pending_[number - first_];
  const Status status = stream.WaitFor(pending.Done());
  return status.ok() ? status : Fail(Annotate(status, pending.what));
}

StatusOr<std::shared_ptr<NcclGraph>> NcclWorld::Capture(DeviceStream& stream, const std::function<Status()>& enqueue) {
  RETURN_IF_ERROR(failed_);
  auto graph = std::make_shared<NcclGraph>();
  RETURN_IF_ERROR(stream.BeginCapture());
  capturing_ = graph.get();
  Status made = enqueue();
  // The stream of the calls has to come back into the one that is captured.
  if (made.ok() && !graph->calls_.empty()) made = stream.WaitFor(graph->calls_.back().joined);
  capturing_ = nullptr;
  auto captured = stream.EndCapture();
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(captured.status());
  graph->graph_ = *std::move(captured);
  graphs_.erase(std::remove_if(graphs_.begin(), graphs_.end(), [](const auto& g) { return g.expired(); }),
                graphs_.end());
  graphs_.push_back(graph);
  return graph;
}

Status NcclWorld::Run(const std::shared_ptr<NcclGraph>& graph, DeviceStream& stream) {
  RETURN_IF_ERROR(failed_);
  RETURN_IF_ERROR(stream.Run(graph->graph_));
  for (size_t i = 0; i < graph->calls_.size(); ++i) {
    const NcclGraph::Recorded& recorded = graph->calls_[i];
    Pending pending;
    pending.group = recorded.group;
    pending.what = recorded.what;
    pending.ticket = groups_->world().recorder().Begin(recorded.call, recorded.group->calls_++, recorded.group->size());
    pending.graph = graph;
    pending.in_graph = i;
    pending_.push_back(std::move(pending));
  }
  return absl::OkStatus();
}

Status NcclWorld::Look() {
  const Status others = groups_->Health();
  RETURN_IF_ERROR(others);
  for (const auto& [host, group] : made_) {
    if (group == nullptr || group->comm_ == nullptr) continue;
    cuda::Result state = cuda::kSuccess;
    Status status = Check(library_->call.ncclCommGetAsyncError(group->comm_, &state), "ncclCommGetAsyncError");
    if (status.ok()) status = Check(state, "NCCL");
    if (status.ok()) continue;
    // Where another rank has ended, the host knows which one.
    const MonotonicTime until = MonotonicNow() + kFirstCause;
    while (MonotonicNow() < until) {
      RETURN_IF_ERROR(groups_->Health());
      absl::SleepFor(kLook);
    }
    return status;
  }
  return absl::OkStatus();
}

Status NcclWorld::TooLate(const std::string& what) {
  const std::string late = absl::StrCat("no progress for ", absl::FormatDuration(LimitOf(groups_->timeout())));
  // A rank that does something else there is named by the host's groups, which compare what their ranks call.
  std::array<char, kPlace> mine = {};
  what.copy(mine.data(), mine.size() - 1);
  std::vector<std::array<char, kPlace>> all(static_cast<size_t>(groups_->size()));
  const std::string where = absl::StrCat("NCCL: ", Shortened(what));
  const Status others =
      groups_->world().Run(Call::AllGather(DType::kU8, mine.data(), all.data(), kPlace).At(where).Within(kEvidence));
  if (!others.ok()) return absl::DeadlineExceededError(absl::StrCat(late, ": ", others.message()));
  for (size_t r = 0; r < all.size(); ++r) {
    all[r].back() = 0;
    if (all[r] != mine)
      return absl::DeadlineExceededError(absl::StrCat(late, ": rank ", r, " waits for ", all[r].data()));
  }
  return absl::DeadlineExceededError(absl::StrCat(late, ": all ranks wait for it, NCCL does not answer"));
}

Status NcclWorld::Wait(DeviceStream& stream) {
  RETURN_IF_ERROR(failed_);
  const Status status = Watch(stream);
  if (status.ok()) return status;
  return Fail(pending_.empty() ? status : Annotate(status, pending_.front().what));
}

Status NcclWorld::Watch(DeviceStream& stream) {
  MonotonicTime looked = MonotonicNow(), moved = looked;
  Pause pause;
  for (;;) {
    ASSIGN_OR_RETURN(const bool any, Retire());
    ASSIGN_OR_RETURN(const bool done, stream.Done());
    if (done && pending_.empty()) return absl::OkStatus();
    const MonotonicTime now = MonotonicNow();
    // Only the time that NCCL takes counts: not that of the work before the call.
    bool waits = false;
    if (!pending_.empty() && !any) {
      ASSIGN_OR_RETURN(waits, pending_.front().Ready().Reached());
    }
    if (!waits) moved = now;
    if (now - looked >= kLook) {
      looked = now;
      RETURN_IF_ERROR(Look());
      if (now - moved > LimitOf(groups_->timeout())) return TooLate(pending_.front().what);
    }
    pause.Rest();
  }
}

Status NcclWorld::Fail(const Status& why) {
  if (!failed_.ok()) return failed_;
  const std::string me = absl::StrCat("rank ", groups_->rank(), "/", groups_->size());
  // "rank 1/4: all_reduce sum f32[128] at train.lua:88: rank 1/4: ..." names the rank once.
  const std::string once = absl::StrCat(me, ": ");
  std::string text(why.message());
  for (size_t at = text.find(once); at != text.npos; at = text.find(once)) text.erase(at, once.size());
  Status named(why.code(), absl::StrCat(once, text));
  failed_ = ExitCodeIn(why) == kExitOk ? named : WithExitCode(named, ExitCodeIn(why));
  for (const Pending& p : pending_) groups_->world().recorder().End(p.ticket, false);
  DropGraphs();
  for (const auto& [host, group] : made_) {
    if (group != nullptr) group->Leave();
    host->Abort(failed_);
  }
  pending_.clear();
  groups_->world().Abort(failed_);
  return failed_;
}

NcclGroup::~NcclGroup() { Leave(); }

// Together with the others where all went well; by itself, and without waiting, after a failure.
void NcclGroup::Leave() {
  if (comm_ == nullptr) return;
  const auto& call = world_->library_->call;
  bool together = world_->failed_.ok();
  if (together) {
    cuda::Result state = call.ncclCommFinalize(comm_);
    const MonotonicTime until = MonotonicNow() + kEnd;
    while (state == cuda::kNcclInProgress && MonotonicNow() < until) {
      if (call.ncclCommGetAsyncError(comm_, &state) != cuda::kSuccess) break;
      if (state == cuda::kNcclInProgress) absl::SleepFor(absl::Microseconds(200));
    }
    together = state == cuda::kSuccess;
  }
  if (together)
    call.ncclCommDestroy(comm_);
  else
    call.ncclCommAbort(comm_);
  comm_ = nullptr;
}

Status NcclGroup::Settle(const std::string& what) {
  const MonotonicTime begun = MonotonicNow();
  MonotonicTime looked = begun;
  Pause pause;
  for (;;) {
    cuda::Result state = cuda::kSuccess;
    RETURN_IF_ERROR(
        world_->Check(world_->library_->call.ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
    if (state != cuda::kNcclInProgress) return world_->Check(state, "NCCL");
    const MonotonicTime now = MonotonicNow();
    if (now - looked >= kLook) {
      looked = now;
      RETURN_IF_ERROR(world_->Look());
      if (now - begun > LimitOf(world_->groups_->timeout())) return world_->TooLate(what);
    }
    pause.Rest();
  }
}

Status NcclGroup::Begin(const Call& call) {
  const auto& nccl = world_->library_->call;
  const cuda::StreamHandle stream = world_->stream_.handle();
  const int type = TypeOf(call.dtype), reduction = ReductionOf(call), n = size();
  const auto count = static_cast<size_t>(call.count);
  const int64_t bytes = call.count * SizeOf(call.dtype);
  const auto* const in = static_cast<const char*>(call.in);
  auto* const out = static_cast<char*>(call.out);
  const auto check = [this](cuda::Result result, const char* function) { return world_->Check(result, function); };
  // Messages that are under way together: the block of `in` that rank r gets, and of `out` that it gives.
  const auto given_to = [&](int r) -> const void* {
    if (call.kind == Collective::kGather) return r == call.peer ? in : nullptr;
    return call.kind == Collective::kAllToAll || call.peer == rank() ? in + r * bytes : nullptr;
  };
  const auto got_from = [&](int r) -> void* {
    if (call.kind == Collective::kScatter) return r == call.peer ? out : nullptr;
    return call.kind == Collective::kAllToAll || call.peer == rank() ? out + r * bytes : nullptr;
  };
  const auto messages = [&]() -> Status {
    for (int r = 0; r < n; ++r) {
      const void* const from = given_to(r);
      void* const to = got_from(r);
      if (r == rank() && from == to) continue;
      if (from != nullptr) RETURN_IF_ERROR(check(nccl.ncclSend(from, count, type, r, comm_, stream), "ncclSend"));
      if (to != nullptr) RETURN_IF_ERROR(check(nccl.ncclRecv(to, count, type, r, comm_, stream), "ncclRecv"));
    }
    return absl::OkStatus();
  };
  switch (call.kind) {
    case Collective::kAllReduce:
      return check(nccl.ncclAllReduce(in, out, count, type, reduction, comm_, stream), "ncclAllReduce");
    case Collective::kReduce:
      return check(nccl.ncclReduce(in, out, count, type, reduction, call.peer, comm_, stream), "ncclReduce");
    case Collective::kReduceScatter:
      return check(nccl.ncclReduceScatter(in, out, count, type, reduction, comm_, stream), "ncclReduceScatter");
    case Collective::kAllGather:
      return check(nccl.ncclAllGather(in, out, count, type, comm_, stream), "ncclAllGather");
    case Collective::kBroadcast:
      return check(nccl.ncclBroadcast(out, out, count, type, call.peer, comm_, stream), "ncclBroadcast");
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: {
      RETURN_IF_ERROR(check(nccl.ncclGroupStart(), "ncclGroupStart"));
      const Status status = messages();
      const Status ended = check(nccl.ncclGroupEnd(), "ncclGroupEnd");
      return status.ok() ? ended : status;
    }
    case Collective::kSend:
      return check(nccl.ncclSend(in, count, type, call.peer, comm_, stream), "ncclSend");
    case Collective::kRecv:
      return check(nccl.ncclRecv(out, count, type, call.peer, comm_, stream), "ncclRecv");
    case Collective::kBarrier:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("NCCL has no ", Name(call.kind)));
}

// An error leaves the communicators as they are: the capture has to end first.
StatusOr<uint64_t> NcclGroup::Record(const Call& call, const std::string& what, DeviceStream& stream) {
  NcclGraph::Recorded recorded;
  recorded.group = this;
  recorded.call = call;
  recorded.what = what;
  DeviceEvent fork;
  const auto record = [&]() -> Status {
    for (DeviceEvent* const event : {&fork, &recorded.ready, &recorded.done, &recorded.joined}) {
      ASSIGN_OR_RETURN(*event, world_->TakeEvent());
    }
    DeviceStream& own = world_->stream_;
    RETURN_IF_ERROR(stream.Record(fork));
    RETURN_IF_ERROR(own.WaitFor(fork));
    RETURN_IF_ERROR(own.RecordInLaunches(recorded.ready));
    if (call.count > 0) {
      RETURN_IF_ERROR(Begin(call));
      RETURN_IF_ERROR(Settle(what));
    }
    RETURN_IF_ERROR(own.RecordInLaunches(recorded.done));
    return own.Record(recorded.joined);
  };
  const Status status = record();
  if (!status.ok()) return Annotate(status, what);
  std::vector<NcclGraph::Recorded>& calls = world_->capturing_->calls_;
  calls.push_back(std::move(recorded));
  return NcclWorld::kInGraph | (calls.size() - 1);
}

StatusOr<uint64_t> NcclGroup::Enqueue(const Call& call, DeviceStream& stream) {
  RETURN_IF_ERROR(world_->failed_);
  const std::string what = Describe(call);
  if (!NcclDoes(call)) return absl::InvalidArgumentError(absl::StrCat(what, ": NCCL does not do this"));
  if (world_->capturing_ != nullptr) return Record(call, what, stream);
  NcclWorld::Pending pending;
  pending.group = this;
  pending.what = what;
  const auto enqueue = [&]() -> Status {
    ASSIGN_OR_RETURN(pending.ready, world_->TakeEvent());
    ASSIGN_OR_RETURN(pending.done, world_->TakeEvent());
    RETURN_IF_ERROR(stream.Record(pending.ready));
    RETURN_IF_ERROR(world_->stream_.WaitFor(pending.ready));
    if (call.count > 0) {
      RETURN_IF_ERROR(Begin(call));
      // What follows in the stream comes behind the call only when NCCL has enqueued it.
      RETURN_IF_ERROR(Settle(what));
    }
    return world_->stream_.Record(pending.done);
  };
  pending.ticket = world_->groups_->world().recorder().Begin(call, calls_++, size());
  const Status status = enqueue();
  if (!status.ok()) {
    world_->groups_->world().recorder().End(pending.ticket, false);
    return world_->Fail(Annotate(status, what));
  }
  world_->pending_.push_back(std::move(pending));
  return world_->first_ + world_->pending_.size() - 1;
}

}  // namespace mslua
