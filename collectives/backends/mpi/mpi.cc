#include "collectives/backends/mpi/mpi.h"

#include <dlfcn.h>
#define OMPI_SKIP_MPICXX 1  // the C++ bindings would need the library at link time
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/backends/define.h"
#include "core/base/clock.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {

constexpr int kMaxSource = 95;
constexpr int kSplitTag = 1 << 14;  // and above: one for each group
enum Tag { kHeader = 1, kData, kAnswer, kAbortTag };

// Open MPI's functions and handles; its headers name handles as global variables of the library.
#define MSLUA_MPI_FUNCTIONS(F) \
  F(Init_thread)               \
  F(Finalize)                  \
  F(Comm_rank)                 \
  F(Comm_size)                 \
  F(Comm_free)                 \
  F(Comm_group)                \
  F(Comm_create_group)         \
  F(Comm_set_errhandler)       \
  F(Group_incl)                \
  F(Group_free)                \
  F(Type_contiguous)           \
  F(Type_commit)               \
  F(Op_create)                 \
  F(Test)                      \
  F(Iprobe)                    \
  F(Recv)                      \
  F(Isend)                     \
  F(Irecv)                     \
  F(Iallreduce)                \
  F(Ireduce)                   \
  F(Ireduce_scatter_block)     \
  F(Iallgather) F(Igather) F(Iscatter) F(Ialltoall) F(Ibcast) F(Error_string) F(Get_library_version)

// The main thread's way in and out of the library, for StuckWatch. Open MPI is opened once a process.
struct Inside {
  std::atomic<uint64_t> turns{0};  // odd while the thread is in the library
  std::atomic<const char*> function{""};
  std::atomic<int64_t> limit_ms{0};  // how long it may stay there

  void Cross() { turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
} inside;

// A function of the library; its calls are seen by StuckWatch.
template <class Pointer>
class Function;
template <class... Arguments>
class Function<int (*)(Arguments...)> {
 public:
  void Find(const char* name, void* symbol) {
    name_ = name;
    pointer_ = reinterpret_cast<int (*)(Arguments...)>(symbol);
  }
  explicit operator bool() const { return pointer_ != nullptr; }
  int operator()(Arguments... arguments) const {
    inside.function.store(name_, std::memory_order_relaxed);
    inside.Cross();
    const int code = pointer_(arguments...);
    inside.Cross();
    return code;
  }

 private:
  const char* name_ = "";
  int (*pointer_)(Arguments...) = nullptr;
};

// Notices that the main thread does not come back from a function of Open MPI's: some wait without a limit (MPI_Init,
// MPI_Finalize, a transport that reads a socket), and nothing can interrupt them.
class StuckWatch {
 public:
  StuckWatch(std::function<void(const Status&)> stuck, std::shared_ptr<FlightRecorder> recorder)
      : stuck_(std::move(stuck)), recorder_(std::move(recorder)), thread_([this] { Run(); }) {}
  ~StuckWatch() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  static constexpr absl::Duration kLook = absl::Milliseconds(100);

  void Run() {
    uint64_t seen = 0;
    absl::Duration there;  // in one call
    MonotonicTime looked = MonotonicNow();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, absl::ToChronoNanoseconds(kLook), [this] { return ended_; })) {
      const MonotonicTime now = MonotonicNow();
      // The time that the whole process was stopped for does not count.
      const absl::Duration passed = std::min(now - looked, 2 * kLook);
      looked = now;
      const uint64_t turns = inside.turns.load(std::memory_order_acquire);
      there = turns == seen && turns % 2 == 1 ? there + passed : absl::ZeroDuration();
      seen = turns;
      const absl::Duration limit = absl::Milliseconds(inside.limit_ms.load(std::memory_order_relaxed));
      if (there < limit) continue;
      std::string what =
          absl::StrCat(inside.function.load(std::memory_order_relaxed), " of Open MPI has not returned for ",
                       absl::FormatDuration(limit), ", and nothing can interrupt it");
      for (const RecordedCall& call : recorder_->Last(1)) {
        if (call.state == "waiting") absl::StrAppend(&what, "; it is part of ", call.what);
      }
      stuck_(absl::DeadlineExceededError(what));
      return;
    }
  }

  const std::function<void(const Status&)> stuck_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

struct Library {
#define MSLUA_DECLARE(name) Function<decltype(&MPI_##name)> name;
  MSLUA_MPI_FUNCTIONS(MSLUA_DECLARE)
#undef MSLUA_DECLARE
  MPI_Comm world;
  MPI_Errhandler errors_return;
  MPI_Datatype byte, f32, f64, i32, i64, boolean;
  MPI_Op sum, prod, max, min, any, all;
  MPI_Op max_f32, max_f64, min_f32, min_f64;  // of our own: what MPI's give for NaN depends on the order of ranks
  MPI_Datatype elements[4];                   // 1, 2, 4 and 8 opaque bytes
  bool failed = false;                        // MPI_Finalize would wait for what never comes
  bool initialized = false, finalized = false;
  absl::Duration timeout;  // of MPI_Init and MPI_Finalize
  std::unique_ptr<StuckWatch> watch;

  // Whether its functions may be called.
  bool Usable() const { return initialized && !failed && !finalized; }
  void Close() {
    if (!Usable()) return;
    inside.limit_ms = absl::ToInt64Milliseconds(timeout);
    Finalize();
    finalized = true;
  }
  ~Library() { Close(); }
};

StatusOr<std::shared_ptr<Library>> OpenLibrary() {
  void* handle = nullptr;
  // Global, since the library's own plug-ins look its symbols up.
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
    if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  }
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("Open MPI is not installed (", dlerror(), "); install openmpi-bin"));
  }
  auto mpi = std::make_shared<Library>();
  std::string missing;
  const auto find = [&](const char* name) {
    void* symbol = dlsym(handle, name);
    if (symbol == nullptr) missing = name;
    return symbol;
  };
#define MSLUA_FIND(name) mpi->name.Find("MPI_" #name, find("MPI_" #name));
  MSLUA_MPI_FUNCTIONS(MSLUA_FIND)
#undef MSLUA_FIND
  mpi->world = static_cast<MPI_Comm>(find("ompi_mpi_comm_world"));
  mpi->errors_return = static_cast<MPI_Errhandler>(find("ompi_mpi_errors_return"));
  const std::pair<MPI_Datatype*, const char*> types[] = {
      {&mpi->byte, "ompi_mpi_byte"},   {&mpi->f32, "ompi_mpi_float"},   {&mpi->f64, "ompi_mpi_double"},
      {&mpi->i32, "ompi_mpi_int32_t"}, {&mpi->i64, "ompi_mpi_int64_t"}, {&mpi->boolean, "ompi_mpi_c_bool"}};
  for (const auto& [type, name] : types) *type = static_cast<MPI_Datatype>(find(name));
  const std::pair<MPI_Op*, const char*> ops[] = {{&mpi->sum, "ompi_mpi_op_sum"}, {&mpi->prod, "ompi_mpi_op_prod"},
                                                 {&mpi->max, "ompi_mpi_op_max"}, {&mpi->min, "ompi_mpi_op_min"},
                                                 {&mpi->any, "ompi_mpi_op_lor"}, {&mpi->all, "ompi_mpi_op_land"}};
  for (const auto& [op, name] : ops) *op = static_cast<MPI_Op>(find(name));
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat("libmpi has no ", missing, ": it is not Open MPI 4"));
  }
  return mpi;
}

// Of Library::elements.
int ElementIndex(DType t) {
  switch (SizeOf(t)) {
    case 1:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    default:
      return 3;
  }
}

// What ranks compare before they act.
struct Announcement {
  int64_t count;
  int32_t peer, tag;
  uint8_t kind, reduce, dtype, source_size;
  char source[kMaxSource + 1];
};

Announcement Announce(const Call& call) {
  Announcement a = {};
  a.count = call.count;
  a.peer = call.peer;
  a.tag = call.tag;
  a.kind = static_cast<uint8_t>(call.kind);
  a.reduce = static_cast<uint8_t>(call.reduce);
  a.dtype = static_cast<uint8_t>(call.dtype);
  a.source_size = static_cast<uint8_t>(call.source.copy(a.source, kMaxSource));
  return a;
}

Call ToCall(const Announcement& a) {
  Call call;
  call.count = a.count;
  call.peer = a.peer;
  call.tag = a.tag;
  call.kind = static_cast<Collective>(a.kind);
  call.reduce = static_cast<ReduceOp>(a.reduce);
  call.dtype = static_cast<DType>(a.dtype % kNumDTypes);
  call.source = absl::string_view(a.source, std::min<size_t>(a.source_size, kMaxSource));
  return call;
}

template <class T>
void DivideAll(void* data, int64_t count, int by) {
  T* p = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      p[i] /= static_cast<T>(by);
    } else {
      p[i] = static_cast<T>(static_cast<int64_t>(p[i]) / by);
    }
  }
}

// 16-bit floats to f32, bytes to i32, and back.
void Widen(DType t, const void* in, int64_t count, void* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (t == DType::kF16) {
      static_cast<float*>(out)[i] = static_cast<const F16*>(in)[i];
    } else if (t == DType::kBF16) {
      static_cast<float*>(out)[i] = static_cast<const BF16*>(in)[i];
    } else {
      static_cast<int32_t*>(out)[i] = static_cast<const uint8_t*>(in)[i];
    }
  }
}
void Narrow(DType t, const void* in, int64_t count, void* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (t == DType::kF16) {
      static_cast<F16*>(out)[i] = F16(static_cast<const float*>(in)[i]);
    } else if (t == DType::kBF16) {
      static_cast<BF16*>(out)[i] = BF16(static_cast<const float*>(in)[i]);
    } else {
      static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(static_cast<const int32_t*>(in)[i]);
    }
  }
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Library> mpi, MPI_Comm data, int place, std::vector<int> members,
                  std::shared_ptr<FlightRecorder> recorder)
      : Communicator(place, std::move(members), std::move(recorder)), mpi_(std::move(mpi)), comm_(data) {}
  ~MpiCommunicator() override {
    if (comm_ != mpi_->world && mpi_->Usable()) mpi_->Comm_free(&comm_);
    for (void* memory : shared_) free(memory);
  }

  StatusOr<Handle> Start(const Call& call) override;
  Status Wait(Handle handle) override;
  Status Progress() override;
  bool Done(Handle handle) const override {
    if (handle.id % 2 == 0) return done_ >= handle.id / 2;
    return std::none_of(messages_.begin(), messages_.end(), [&](const auto& m) { return m->id == handle.id; });
  }
  StatusOr<std::unique_ptr<Communicator>> Split(absl::Span<const int> ranks, absl::string_view source,
                                                absl::Duration limit) override;
  StatusOr<void*> AllocateShared(int64_t bytes, absl::string_view source) override;
  void Abort(const Status& why) override { Fail(Mine(why)).IgnoreError(); }
  void Close() override { mpi_->Close(); }

 private:
  struct Operation {
    Call call;
    std::string source;
    uint64_t number = 0, ticket = 0;
    bool announced = false;
    Announcement mine;
    std::vector<Announcement> all;
    // While they are reduced, 16-bit floats are f32 and bytes, whose sums Open MPI's AVX code saturates, are i32.
    std::vector<uint32_t> wide_in, wide_out;
    MPI_Request request;
  };
  struct Message {
    Call call;
    std::string source;
    uint64_t id = 0, ticket = 0;
    Announcement mine, theirs;
    MPI_Request header, data, answer;
    bool header_done = false, data_begun = false, data_done = false, answer_done = false;
  };

  Status Check(int code, const char* what) const;
  StatusOr<bool> Ended(MPI_Request* request) const;
  Status Begin(Operation& op);
  // Not OK: the ranks have announced different calls.
  Status CheckAgreement(const Operation& op) const;
  // In which the elements are reduced, and how.
  MPI_Datatype TypeOfSum(DType dtype) const;
  MPI_Op OpOf(const Call& call) const;
  Status BeginReduction(Operation& op);
  Status BeginData(Operation& op);
  void Finish(Operation& op);
  Status Turn(bool* moved);
  Status TurnMessage(Message& m, bool* ended, bool* moved);
  // Whether another rank has given up.
  Status Heard() const;
  Status Fail(const Status& status);

  const std::shared_ptr<Library> mpi_;
  MPI_Comm comm_;
  Status failed_;
  std::deque<std::unique_ptr<Operation>> operations_;
  std::deque<std::unique_ptr<Message>> messages_;
  uint64_t begun_ = 0, done_ = 0, next_message_ = 0;
  std::map<std::vector<int>, int> splits_;
  std::vector<void*> shared_;
  std::vector<char> abort_text_;
};

Status MpiCommunicator::Check(int code, const char* what) const {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  mpi_->Error_string(code, text, &size);
  return absl::InternalError(absl::StrCat(Me(), ": ", what, ": ", absl::string_view(text, size)));
}

StatusOr<bool> MpiCommunicator::Ended(MPI_Request* request) const {
  int ended = 0;
  RETURN_IF_ERROR(Check(mpi_->Test(request, &ended, MPI_STATUS_IGNORE), "MPI_Test"));
  return ended != 0;
}

StatusOr<Handle> MpiCommunicator::Start(const Call& call) {
  RETURN_IF_ERROR(failed_);
  RETURN_IF_ERROR(Validate(call));
  if (call.count > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(Me(), ": ", Describe(call), ": MPI counts end at 2^31 - 1 elements"));
  }
  inside.limit_ms.store(absl::ToInt64Milliseconds(call.timeout), std::memory_order_relaxed);
  if (!IsPointToPoint(call.kind)) {
    operations_.push_back(std::make_unique<Operation>());
    Operation& op = *operations_.back();
    op.call = call;
    op.source = std::string(call.source.substr(0, kMaxSource));
    op.call.source = op.source;
    op.number = begun_++;
    op.ticket = recorder_->Begin(call, op.number, size());
    if (operations_.size() == 1) {
      const Status status = Begin(op);
      if (!status.ok()) return Fail(status);
    }
    return Handle{2 * begun_};
  }
  messages_.push_back(std::make_unique<Message>());
  Message& m = *messages_.back();
  m.call = call;
  m.source = std::string(call.source.substr(0, kMaxSource));
  m.call.source = m.source;
  m.id = 2 * ++next_message_ + 1;
  m.ticket = recorder_->Begin(call, next_message_ - 1, size());
  m.mine = Announce(m.call);
  const int bytes = sizeof(Announcement);
  Status status;
  if (call.kind == Collective::kSend) {
    const MPI_Datatype type = mpi_->elements[ElementIndex(call.dtype)];
    status = Check(mpi_->Isend(&m.mine, bytes, mpi_->byte, call.peer, kHeader, comm_, &m.header), "MPI_Isend");
    if (status.ok()) {
      status = Check(mpi_->Irecv(&m.theirs, bytes, mpi_->byte, call.peer, kAnswer, comm_, &m.answer), "MPI_Irecv");
    }
    if (status.ok()) {
      status = Check(mpi_->Isend(call.in, static_cast<int>(call.count), type, call.peer, kData, comm_, &m.data),
                     "MPI_Isend");
    }
    m.data_begun = true;
  } else {
    status = Check(mpi_->Irecv(&m.theirs, bytes, mpi_->byte, call.peer, kHeader, comm_, &m.header), "MPI_Irecv");
  }
  if (!status.ok()) return Fail(status);
  return Handle{m.id};
}

Status MpiCommunicator::Wait(Handle handle) {
  MonotonicTime deadline = MonotonicTime::InfinitePast();
  for (int look = 0; !Done(handle); ++look) {
    RETURN_IF_ERROR(failed_);
    bool moved = false;
    RETURN_IF_ERROR(Turn(&moved));
    if (moved) {
      look = 0;
      continue;
    }
    if (look < 100) continue;
    sched_yield();
    if (look < 1000) continue;
    const Call* call = nullptr;
    if (handle.id % 2 == 0) {
      call = &operations_[handle.id / 2 - 1 - done_]->call;
    } else {
      for (const auto& m : messages_) {
        if (m->id == handle.id) call = &m->call;
      }
    }
    if (look == 1000) deadline = MonotonicNow() + call->timeout;
    const Status heard = Heard();
    if (!heard.ok()) return Fail(Annotate(heard, absl::StrCat(Me(), ": ", Describe(*call))));
    if (MonotonicNow() >= deadline) {
      return Fail(absl::DeadlineExceededError(
          absl::StrCat(Me(), ": ", Describe(*call), ": no answer within ", absl::FormatDuration(call->timeout),
                       IsPointToPoint(call->kind)
                           ? absl::StrCat(" from rank ", call->peer)
                           : absl::StrCat("; MPI does not say which of rank 0 to rank ", size() - 1, " is missing"))));
    }
    absl::SleepFor(absl::Microseconds(std::min(look - 999, 200)));
  }
  return absl::OkStatus();
}

Status MpiCommunicator::Progress() {
  for (bool moved = true; moved;) RETURN_IF_ERROR(Turn(&moved));
  return absl::OkStatus();
}

Status MpiCommunicator::Turn(bool* moved) {
  *moved = false;
  RETURN_IF_ERROR(failed_);
  for (size_t i = 0; i < messages_.size();) {
    Message& m = *messages_[i];
    // Only the oldest message of a direction may move.
    const bool behind = std::any_of(messages_.begin(), messages_.begin() + i, [&](const auto& other) {
      return other->call.kind == m.call.kind && other->call.peer == m.call.peer;
    });
    bool ended = false;
    if (!behind) {
      const Status status = TurnMessage(m, &ended, moved);
      if (!status.ok()) return Fail(status);
    }
    if (ended) {
      recorder_->End(m.ticket, true);
      messages_.erase(messages_.begin() + i);
      *moved = true;
    } else {
      ++i;
    }
  }
  while (!operations_.empty()) {
    Operation& op = *operations_.front();
    const auto ended = Ended(&op.request);
    if (!ended.ok()) return Fail(ended.status());
    if (!*ended) return absl::OkStatus();
    *moved = true;
    if (!op.announced) {
      op.announced = true;
      const Status status = BeginData(op);
      if (!status.ok()) return Fail(status);
      if (op.call.kind != Collective::kBarrier && op.call.count > 0) continue;
    } else {
      Finish(op);
    }
    recorder_->End(op.ticket, true);
    operations_.pop_front();
    ++done_;
    if (!operations_.empty()) {
      const Status status = Begin(*operations_.front());
      if (!status.ok()) return Fail(status);
    }
  }
  return absl::OkStatus();
}

Status MpiCommunicator::TurnMessage(Message& m, bool* ended, bool* moved) {
  const auto step = [&](MPI_Request* request, bool* done) -> Status {
    if (*done) return absl::OkStatus();
    ASSIGN_OR_RETURN(*done, Ended(request));
    *moved |= *done;
    return absl::OkStatus();
  };
  const auto compare = [&]() -> Status {
    if (m.theirs.count == m.mine.count && m.theirs.dtype == m.mine.dtype && m.theirs.tag == m.mine.tag) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(Me(), ": the two ends of a message differ: rank ", rank(),
                                                      " calls ", Describe(m.call), "; rank ", m.call.peer, " calls ",
                                                      Describe(ToCall(m.theirs))));
  };
  RETURN_IF_ERROR(step(&m.header, &m.header_done));
  if (m.call.kind == Collective::kSend) {
    RETURN_IF_ERROR(step(&m.answer, &m.answer_done));
    if (m.answer_done) RETURN_IF_ERROR(compare());
    RETURN_IF_ERROR(step(&m.data, &m.data_done));
  } else if (m.header_done) {
    if (!m.data_begun) {
      m.data_begun = true;
      RETURN_IF_ERROR(
          Check(mpi_->Isend(&m.mine, sizeof m.mine, mpi_->byte, m.call.peer, kAnswer, comm_, &m.answer), "MPI_Isend"));
      RETURN_IF_ERROR(compare());
      const MPI_Datatype type = mpi_->elements[ElementIndex(m.call.dtype)];
      RETURN_IF_ERROR(
          Check(mpi_->Irecv(m.call.out, static_cast<int>(m.call.count), type, m.call.peer, kData, comm_, &m.data),
                "MPI_Irecv"));
    }
    RETURN_IF_ERROR(step(&m.answer, &m.answer_done));
    RETURN_IF_ERROR(step(&m.data, &m.data_done));
  }
  *ended = m.header_done && m.answer_done && m.data_done;
  return absl::OkStatus();
}

Status MpiCommunicator::Begin(Operation& op) {
  op.mine = Announce(op.call);
  op.all.resize(size());
  return Check(mpi_->Iallgather(&op.mine, sizeof op.mine, mpi_->byte, op.all.data(), sizeof op.mine, mpi_->byte, comm_,
                                &op.request),
               "MPI_Iallgather");
}

Status MpiCommunicator::CheckAgreement(const Operation& op) const {
  const Call& call = op.call;
  for (int r = 0; r < size(); ++r) {
    const Call theirs = ToCall(op.all[r]);
    if (theirs.kind == call.kind && theirs.reduce == call.reduce && theirs.dtype == call.dtype &&
        theirs.peer == call.peer && theirs.count == call.count) {
      continue;
    }
    const int low = std::min(r, rank()), high = std::max(r, rank());
    return absl::FailedPreconditionError(absl::StrCat(Me(), ": collective ", op.number, " differs: rank ", low,
                                                      " calls ", Describe(ToCall(op.all[low])), "; rank ", high,
                                                      " calls ", Describe(ToCall(op.all[high])),
                                                      "; all ranks of a group make the same calls in the same order"));
  }
  return absl::OkStatus();
}

MPI_Datatype MpiCommunicator::TypeOfSum(DType dtype) const {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
      return mpi_->f32;
    case DType::kF64:
      return mpi_->f64;
    case DType::kU8:
    case DType::kI32:
      return mpi_->i32;
    case DType::kI64:
      return mpi_->i64;
    case DType::kBool:
      return mpi_->boolean;
  }
  return mpi_->f32;
}

MPI_Op MpiCommunicator::OpOf(const Call& call) const {
  const bool boolean = call.dtype == DType::kBool;
  if (IsFloat(call.dtype) && (call.reduce == ReduceOp::kMax || call.reduce == ReduceOp::kMin)) {
    const bool largest = call.reduce == ReduceOp::kMax;
    if (call.dtype == DType::kF64) return largest ? mpi_->max_f64 : mpi_->min_f64;
    return largest ? mpi_->max_f32 : mpi_->min_f32;
  }
  switch (call.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return boolean ? mpi_->any : mpi_->sum;
    case ReduceOp::kProd:
      return boolean ? mpi_->all : mpi_->prod;
    case ReduceOp::kMax:
      return boolean ? mpi_->any : mpi_->max;
    case ReduceOp::kMin:
      return boolean ? mpi_->all : mpi_->min;
  }
  return mpi_->sum;
}

Status MpiCommunicator::BeginReduction(Operation& op) {
  const Call& call = op.call;
  const int count = static_cast<int>(call.count), root = call.peer;
  const void* in = call.in;
  void* out = call.out;
  if (call.dtype == DType::kF16 || call.dtype == DType::kBF16 || call.dtype == DType::kU8) {
    op.wide_in.resize(InElements(call, rank(), size()) + 1);
    op.wide_out.resize(OutElements(call, rank(), size()) + 1);
    Widen(call.dtype, in, InElements(call, rank(), size()), op.wide_in.data());
    in = op.wide_in.data();
    out = op.wide_out.data();
  }
  const MPI_Datatype type = TypeOfSum(call.dtype);
  const MPI_Op reduce = OpOf(call);
  const bool in_place = in == out;
  if (call.kind == Collective::kAllReduce)
    return Check(mpi_->Iallreduce(in_place ? MPI_IN_PLACE : in, out, count, type, reduce, comm_, &op.request),
                 Name(call.kind));
  if (call.kind == Collective::kReduce)
    return Check(mpi_->Ireduce(in_place && rank() == root ? MPI_IN_PLACE : in, out, count, type, reduce, root, comm_,
                               &op.request),
                 Name(call.kind));
  // MPI takes its own block as in place only at the front of the input.
  const int64_t bytes = call.count * SizeOf(call.dtype);
  if (op.wide_in.empty() && out == static_cast<const char*>(in) + rank() * bytes) {
    op.wide_out.resize((bytes + 3) / 4);
    out = op.wide_out.data();
  }
  return Check(mpi_->Ireduce_scatter_block(in, out, count, type, reduce, comm_, &op.request), Name(call.kind));
}

Status MpiCommunicator::BeginData(Operation& op) {
  RETURN_IF_ERROR(CheckAgreement(op));
  const Call& call = op.call;
  if (call.kind == Collective::kBarrier || call.count == 0) return absl::OkStatus();
  if (Reduces(call.kind)) return BeginReduction(op);
  const int count = static_cast<int>(call.count), root = call.peer;
  const bool is_root = rank() == root;
  const int64_t bytes = call.count * SizeOf(call.dtype);
  const MPI_Datatype type = mpi_->elements[ElementIndex(call.dtype)];
  const void* const in = call.in;
  void* const out = call.out;
  const char* const own_out = static_cast<char*>(out) + rank() * bytes;      // of all_gather and gather
  const char* const own_in = static_cast<const char*>(in) + rank() * bytes;  // of scatter
  int code = MPI_SUCCESS;
  switch (call.kind) {
    case Collective::kAllGather:
      code = mpi_->Iallgather(in == own_out ? MPI_IN_PLACE : in, count, type, out, count, type, comm_, &op.request);
      break;
    case Collective::kGather:
      code = mpi_->Igather(is_root && in == own_out ? MPI_IN_PLACE : in, count, type, out, count, type, root, comm_,
                           &op.request);
      break;
    case Collective::kScatter:
      code = mpi_->Iscatter(in, count, type, is_root && out == own_in ? MPI_IN_PLACE : out, count, type, root, comm_,
                            &op.request);
      break;
    case Collective::kAllToAll:
      code = mpi_->Ialltoall(in, count, type, out, count, type, comm_, &op.request);
      break;
    case Collective::kBroadcast:
      code = mpi_->Ibcast(out, count, type, root, comm_, &op.request);
      break;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      break;
  }
  return Check(code, Name(call.kind));
}

// What MPI leaves undone: the mean, and the way back from f32 or from the block that could not be written in place.
void MpiCommunicator::Finish(Operation& op) {
  const Call& call = op.call;
  const int64_t count = OutElements(call, rank(), size());
  if (!Reduces(call.kind) || count == 0) return;
  const bool wide = !op.wide_in.empty(), f32 = wide && call.dtype != DType::kU8;
  const bool mean = call.reduce == ReduceOp::kMean;
  if (f32 && mean) DivideAll<float>(op.wide_out.data(), count, size());
  if (wide) {
    Narrow(call.dtype, op.wide_out.data(), count, call.out);
  } else if (!op.wide_out.empty()) {
    std::memcpy(call.out, op.wide_out.data(), count * SizeOf(call.dtype));
  }
  if (!mean) return;
  if (call.dtype == DType::kF32) DivideAll<float>(call.out, count, size());
  if (call.dtype == DType::kF64) DivideAll<double>(call.out, count, size());
  if (call.dtype == DType::kI32) DivideAll<int32_t>(call.out, count, size());
  if (call.dtype == DType::kI64) DivideAll<int64_t>(call.out, count, size());
  if (call.dtype == DType::kU8) DivideAll<uint8_t>(call.out, count, size());
}

Status MpiCommunicator::Heard() const {
  int there = 0;
  MPI_Status info;
  RETURN_IF_ERROR(Check(mpi_->Iprobe(MPI_ANY_SOURCE, kAbortTag, comm_, &there, &info), "MPI_Iprobe"));
  if (there == 0) return absl::OkStatus();
  char text[1024] = {};
  RETURN_IF_ERROR(Check(mpi_->Recv(text, sizeof text, mpi_->byte, info.MPI_SOURCE, kAbortTag, comm_, MPI_STATUS_IGNORE),
                        "MPI_Recv"));
  text[sizeof text - 1] = 0;
  return AsSeenByOthers(Status(static_cast<absl::StatusCode>(text[0]), text + 1));
}

Status MpiCommunicator::Fail(const Status& status) {
  if (!failed_.ok()) return failed_;
  failed_ = status;
  mpi_->failed = true;
  // One byte of code, then the reason; small enough to go without the receivers' help.
  const Status seen = AsSeenByOthers(status);
  abort_text_.assign(1024, 0);
  abort_text_[0] = static_cast<char>(seen.code());
  seen.message().copy(abort_text_.data() + 1, abort_text_.size() - 2);
  for (int r = 0; r < size(); ++r) {
    MPI_Request request;
    if (r != rank()) {
      mpi_->Isend(abort_text_.data(), static_cast<int>(abort_text_.size()), mpi_->byte, r, kAbortTag, comm_, &request);
    }
  }
  for (const auto& op : operations_) recorder_->End(op->ticket, false);
  for (const auto& m : messages_) recorder_->End(m->ticket, false);
  return status;
}

StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::Split(absl::Span<const int> ranks, absl::string_view source,
                                                               absl::Duration limit) {
  RETURN_IF_ERROR(failed_);
  ASSIGN_OR_RETURN(const int place, PlaceIn(ranks));
  std::vector<int> list(ranks.begin(), ranks.end()), group;
  for (int r : list) group.push_back(members()[r]);
  // MPI's own call would wait for ever: first, with a deadline, everybody says to the first member that it is here.
  const int tag = kSplitTag + splits_[list]++;
  char here = 0;
  std::vector<Handle> handles;
  for (int r : list) {
    if (r == rank()) continue;
    for (const bool sends : {true, false}) {
      if ((rank() != list[0]) && r != list[0]) continue;
      const Call call = sends ? Call::Send(DType::kU8, &here, 1, r, tag) : Call::Recv(DType::kU8, &here, 1, r, tag);
      ASSIGN_OR_RETURN(const Handle handle, Start(Call(call).At(source).Within(limit)));
      handles.push_back(handle);
    }
  }
  for (const Handle& handle : handles) RETURN_IF_ERROR(Wait(handle));
  MPI_Group all, some;
  MPI_Comm comm;
  RETURN_IF_ERROR(Check(mpi_->Comm_group(comm_, &all), "MPI_Comm_group"));
  RETURN_IF_ERROR(Check(mpi_->Group_incl(all, static_cast<int>(list.size()), list.data(), &some), "MPI_Group_incl"));
  RETURN_IF_ERROR(Check(mpi_->Comm_create_group(comm_, some, tag, &comm), "MPI_Comm_create_group"));
  mpi_->Group_free(&all);
  mpi_->Group_free(&some);
  mpi_->Comm_set_errhandler(comm, mpi_->errors_return);
  return std::unique_ptr<Communicator>(new MpiCommunicator(mpi_, comm, place, std::move(group), recorder_));
}

StatusOr<void*> MpiCommunicator::AllocateShared(int64_t bytes, absl::string_view source) {
  RETURN_IF_ERROR(failed_);
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("a segment of ", bytes, " bytes"));
  void* memory = aligned_alloc(64, RoundUp(bytes, 64));
  if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  std::memset(memory, 0, bytes);
  shared_.push_back(memory);
  RETURN_IF_ERROR(Run(Call::Barrier().At(source)));
  return memory;
}

// Keeps Open MPI from listening where nobody should connect: its TCP transport takes part in a job's messages for
// any process that sends it 16 bytes. Ranks of one host share memory alone; those of several use TCP on `interface`,
// when there is one. What the user has set stays.
void LimitTransports(const std::string& interface) {
  constexpr int kKeep = 0;
  const char* here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = getenv("OMPI_COMM_WORLD_SIZE");
  if (here != nullptr && all != nullptr && strcmp(here, all) == 0) {
    setenv("OMPI_MCA_pml", "ob1", kKeep);
    setenv("OMPI_MCA_btl", "self,vader", kKeep);
  } else if (!interface.empty()) {
    setenv("OMPI_MCA_pml", "ob1", kKeep);
    setenv("OMPI_MCA_btl_tcp_if_include", interface.c_str(), kKeep);
  }
}

// "Open MPI v4.1.4", of "Open MPI v4.1.4, package: ...".
StatusOr<std::string> Version() {
  ASSIGN_OR_RETURN(const std::shared_ptr<Library> mpi, OpenLibrary());
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int size = 0;
  mpi->Get_library_version(text, &size);
  return std::string(text, std::find(text, text + size, ','));
}

// mpirun's count of ranks is that of the library: else each rank would be a world of its own.
Status CheckWorld(const Library& mpi, int size) {
  const char* const told = getenv("OMPI_COMM_WORLD_SIZE");
  int ranks = 0;
  if (told == nullptr || !absl::SimpleAtoi(told, &ranks) || ranks == size) return absl::OkStatus();
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  mpi.Get_library_version(version, &length);
  return absl::FailedPreconditionError(absl::StrCat(
      "mpirun has started ", ranks, " ranks (OMPI_COMM_WORLD_SIZE), and the world of Open MPI here has ", size,
      ": mpirun is of another installation than ", absl::string_view(version).substr(0, strcspn(version, ",")),
      ", or a wrapper drops its variables (PMIX_...)"));
}

// As the operators max and min: NaN wins over every number.
template <class T, bool kLargest>
void Extreme(void* in, void* inout, int* n, MPI_Datatype*) {
  const T* const a = static_cast<const T*>(in);
  T* const b = static_cast<T*>(inout);
  for (int i = 0; i < *n; ++i) {
    if ((kLargest ? a[i] > b[i] : a[i] < b[i]) || a[i] != a[i]) b[i] = a[i];
  }
}

void MakeExtremes(Library& mpi) {
  constexpr int kCommutes = 1;
  mpi.Op_create(Extreme<float, true>, kCommutes, &mpi.max_f32);
  mpi.Op_create(Extreme<double, true>, kCommutes, &mpi.max_f64);
  mpi.Op_create(Extreme<float, false>, kCommutes, &mpi.min_f32);
  mpi.Op_create(Extreme<double, false>, kCommutes, &mpi.min_f64);
}

}  // namespace

bool StartedByMpirun() { return getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

StatusOr<std::unique_ptr<Communicator>> MakeMpiWorld(const MpiOptions& options) {
  if (!StartedByMpirun()) {
    return absl::FailedPreconditionError("the mpi backend needs ranks that mpirun started: mpirun -n N mslua ...");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Library> mpi, OpenLibrary());
  LimitTransports(options.interface);
  auto recorder = std::make_shared<FlightRecorder>();
  mpi->timeout = options.timeout;
  inside.limit_ms = absl::ToInt64Milliseconds(options.timeout);
  if (options.stuck) mpi->watch = std::make_unique<StuckWatch>(options.stuck, recorder);
  int provided = 0, rank = 0, size = 0;
  if (mpi->Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    return absl::InternalError("MPI_Init_thread failed");
  }
  mpi->initialized = true;
  mpi->Comm_set_errhandler(mpi->world, mpi->errors_return);
  mpi->Comm_rank(mpi->world, &rank);
  mpi->Comm_size(mpi->world, &size);
  for (int i = 0; i < 4; ++i) {
    mpi->Type_contiguous(1 << i, mpi->byte, &mpi->elements[i]);
    mpi->Type_commit(&mpi->elements[i]);
  }
  RETURN_IF_ERROR(CheckWorld(*mpi, size));
  MakeExtremes(*mpi);
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  const MPI_Comm world = mpi->world;
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(std::move(mpi), world, rank, std::move(members), std::move(recorder)));
}

MSLUA_BACKEND(mpi) {
  BackendDef def("mpi");
  def.launcher = "mpirun";
  def.without = "ranks of mpirun need --backend native";
  def.available = Version;
  def.make = [](const ConnectOptions& job) {
    MpiOptions options;
    options.interface = job.interface;
    options.timeout = job.timeout;
    options.stuck = job.stuck;
    return MakeMpiWorld(options);
  };
  return def;
}

}  // namespace mslua
