// Emulated NCCL: the functions of core/device/cuda_api.h between processes, through files of a folder that the unique
// id names. Every rank of a collective puts down what it gives, waits until all have, and reads the others'; files are
// taken away when nobody needs them. Work on a stream that waits for another process is tried again, so that the stream
// does not block the process.
//
// As a non-blocking communicator of NCCL's, every call is "in progress" until the next ncclCommGetAsyncError.
// Reductions of element i begin with rank i's value, so that nobody can rely on an order; 16-bit floats are rounded
// after each rank.
//
// Calls may be captured; each launch of the step makes them. What the library does not do is refused: to make or end a
// communicator while a step is captured, or to end one that captured steps still have (it would wait for ever).
//
// EMULATED_NCCL_FAULT=WHAT:RANK:K: the K-th call of that rank (from 1, over all its communicators) never ends (hang),
// is not made (skip), or gives an asynchronous error (error). EMULATED_NCCL_FOLDER says where folders are made (/tmp).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/cuda_api.h"
#include "tests/emulated_device/emulated_cuda.h"

namespace mslua::cuda {
namespace {

constexpr Result kUnhandled = 1, kSystemError = 2, kInternalError = 3;

struct State {
  std::string folder;
  int ranks = 0, rank = 0;
  bool joined = false, busy = false, finalizing = false, gone = false;
  Result error = kSuccess;
  long calls = 0;
  std::vector<long> sent, received;  // messages, by peer
  // Captured steps have it too.
  const std::shared_ptr<int> held = std::make_shared<int>();
};

bool There(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Appears at once, with all of its bytes.
void Put(const std::string& path, const std::string& bytes) {
  const std::string part = path + ".part" + std::to_string(getpid());
  std::ofstream(part, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (rename(part.c_str(), path.c_str()) != 0) std::perror("emulated NCCL: rename");
}
std::string Get(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string bytes(file ? static_cast<size_t>(file.tellg()) : 0, '\0');
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

DType TypeOf(int type) {
  switch (type) {
    case kNcclF16:
      return DType::kF16;
    case kNcclBF16:
      return DType::kBF16;
    case kNcclF32:
      return DType::kF32;
    case kNcclF64:
      return DType::kF64;
    case kNcclI32:
      return DType::kI32;
    case kNcclI64:
      return DType::kI64;
    default:
      return DType::kU8;
  }
}

template <class T>
T Combine(int reduce, T a, T b) {
  switch (reduce) {
    case kNcclProd:
      return static_cast<T>(a * b);
    case kNcclMax:
      return a < b ? b : a;  // loses a NaN, as the library does
    case kNcclMin:
      return b < a ? b : a;
    default:
      return static_cast<T>(a + b);
  }
}

// Element `at` of every rank's block of values, beginning with one that depends on the element.
void ReduceElement(DType type, int reduce, const std::vector<const char*>& all, int64_t at, void* out, int64_t to) {
  const size_t n = all.size(), first = static_cast<size_t>(to) % n;
  if (type == DType::kI64 || type == DType::kI32 || type == DType::kU8) {
    const auto load = [&](size_t r) -> uint64_t {
      if (type == DType::kI64) return static_cast<uint64_t>(reinterpret_cast<const int64_t*>(all[r])[at]);
      if (type == DType::kI32) return static_cast<uint64_t>(reinterpret_cast<const int32_t*>(all[r])[at]);
      return reinterpret_cast<const uint8_t*>(all[r])[at];
    };
    uint64_t value = load(first);
    for (size_t k = 1; k < n; ++k) {
      const uint64_t other = load((first + k) % n);
      value = reduce == kNcclMax || reduce == kNcclMin
                  ? static_cast<uint64_t>(Combine(reduce, static_cast<int64_t>(value), static_cast<int64_t>(other)))
                  : Combine(reduce, value, other);
    }
    if (type == DType::kI64)
      static_cast<int64_t*>(out)[to] = static_cast<int64_t>(value);
    else if (type == DType::kI32)
      static_cast<int32_t*>(out)[to] = static_cast<int32_t>(value);
    else
      static_cast<uint8_t*>(out)[to] = static_cast<uint8_t>(value);
    return;
  }
  StoreDouble(type, out, to, LoadAsDouble(type, all[first], at));
  for (size_t k = 1; k < n; ++k) {
    const double other = LoadAsDouble(type, all[(first + k) % n], at);
    StoreDouble(type, out, to, Combine(reduce, LoadAsDouble(type, out, to), other));
  }
  if (reduce == kNcclMean) StoreDouble(type, out, to, LoadAsDouble(type, out, to) / static_cast<double>(n));
}

enum class Kind : int { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast };
struct Header {
  Kind kind;
  int type, reduce, root;
  size_t count;
};

// The K-th call of this process and what is to happen to it.
std::string FaultOf(int rank) {
  static long calls = 0;
  ++calls;
  const char* const text = std::getenv("EMULATED_NCCL_FAULT");
  char what[16] = "";
  int whose = 0;
  long which = 0;
  if (text == nullptr || std::sscanf(text, "%15[a-z]:%d:%ld", what, &whose, &which) != 3) return "";
  return whose == rank && which == calls ? what : "";
}

struct Message {
  std::shared_ptr<State> comm;
  StreamHandle stream = nullptr;
  bool sends = false;
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  int peer = 0;
  std::string path;
  bool begun = false, ended = false;
};

thread_local int depth = 0;
thread_local std::vector<Message> group;

Result RunMessages(std::vector<Message>& messages) {
  bool all = true;
  for (Message& m : messages) {
    if (m.comm->gone) return kSuccess;
    if (m.sends && !m.begun) Put(m.path, std::string(static_cast<const char*>(m.from), m.bytes));
    m.begun = true;
    if (m.sends) m.ended = m.ended || !There(m.path);  // taken
    if (!m.sends && !m.ended && There(m.path)) {
      const std::string bytes = Get(m.path);
      if (bytes.size() != m.bytes) {
        m.comm->error = kInternalError;
        return kWaiting;
      }
      std::memcpy(m.to, bytes.data(), bytes.size());
      unlink(m.path.c_str());
      m.ended = true;
    }
    all = all && m.ended;
  }
  return all ? kSuccess : kWaiting;
}

Result EnqueueMessages(const std::vector<Message>& messages) {
  if (messages.empty()) return kSuccess;
  const auto comm = messages[0].comm;
  comm->busy = true;
  const auto make = [comm, messages, held = comm->held]() -> WaitingWork {
    const std::string fault = FaultOf(comm->rank);
    const auto sent = std::make_shared<std::vector<Message>>(messages);
    for (Message& m : *sent) {
      auto& numbers = m.sends ? comm->sent : comm->received;
      const int from = m.sends ? comm->rank : m.peer, to = m.sends ? m.peer : comm->rank;
      m.path = comm->folder + "/message" + std::to_string(from) + "." + std::to_string(to) + "." +
               std::to_string(numbers[static_cast<size_t>(m.peer)]++);
    }
    if (fault == "skip") return {};
    if (fault == "error") comm->error = kNcclRemoteError;
    return {[sent] { return RunMessages(*sent); }, [comm, fault] { return fault.empty() || comm->gone; }};
  };
  return EnqueueWork(messages[0].stream, make) == kSuccess ? kNcclInProgress : kUnhandled;
}

Result Usable(NcclComm handle, const std::shared_ptr<State>& comm) {
  if (handle == nullptr) return kNcclInvalidArgument;
  return comm->joined && !comm->busy && !comm->gone && !comm->finalizing ? kSuccess : kNcclInvalidUsage;
}

}  // namespace

struct NcclCommTag {
  std::shared_ptr<State> state;
};

namespace {

Result EnqueueCollective(NcclComm handle, Header header, const void* in, size_t in_count, void* out, size_t out_count,
                         StreamHandle stream) {
  const std::shared_ptr<State> comm = handle == nullptr ? nullptr : handle->state;
  if (const Result usable = Usable(handle, comm); usable != kSuccess) return usable;
  if (depth != 0) return kNcclInvalidUsage;  // this emulation has no groups of collectives
  const DType type = TypeOf(header.type);
  const size_t size = static_cast<size_t>(SizeOf(type));
  if ((in_count > 0 && !InDeviceMemory(in, in_count * size)) ||
      (out_count > 0 && !InDeviceMemory(out, out_count * size)))
    return kNcclInvalidArgument;
  if (header.reduce == kNcclMean && !IsFloat(type)) return kNcclInvalidArgument;
  comm->busy = true;
  const auto make = [=, held = comm->held]() -> WaitingWork {
    const std::string fault = FaultOf(comm->rank);
    if (fault == "skip") return {};
    if (fault == "error") comm->error = kNcclRemoteError;
    const long number = comm->calls++;
    const auto path = [comm](long call, int rank) {
      return comm->folder + "/call" + std::to_string(call) + "." + std::to_string(rank);
    };
    const auto given = std::make_shared<bool>(false);
    const auto there = std::make_shared<int>(0);  // ranks that have given theirs, from 0
    const auto ready = [=] {
      if (comm->gone || !*given) return comm->gone || fault.empty();
      while (*there < comm->ranks && There(path(number, *there))) ++*there;
      return *there == comm->ranks && comm->error == kSuccess;
    };
    const auto work = [=]() -> Result {
      if (comm->gone) return kSuccess;
      if (!*given) {
        std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
        if (in_count > 0) bytes.append(static_cast<const char*>(in), in_count * size);
        Put(path(number, comm->rank), bytes);
        *given = true;
      }
      if (!ready()) return kWaiting;
      std::vector<std::string> all;
      std::vector<const char*> blocks;
      for (int r = 0; r < comm->ranks; ++r) {
        all.push_back(Get(path(number, r)));
        if (std::memcmp(all.back().data(), &header, sizeof header) != 0) {
          std::fprintf(stderr, "emulated NCCL: ranks %d and %d make different calls\n", comm->rank, r);
          comm->error = kInternalError;
          return kWaiting;
        }
      }
      for (const std::string& bytes : all) blocks.push_back(bytes.data() + sizeof header);
      const auto count = static_cast<int64_t>(header.count);
      switch (header.kind) {
        case Kind::kAllReduce:
        case Kind::kReduce:
        case Kind::kReduceScatter: {
          const int64_t from = header.kind == Kind::kReduceScatter ? comm->rank * count : 0;
          for (int64_t i = 0; i < static_cast<int64_t>(out_count); ++i)
            ReduceElement(type, header.reduce, blocks, from + i, out, i);
          break;
        }
        case Kind::kAllGather:
          for (int r = 0; r < comm->ranks; ++r)
            std::memcpy(static_cast<char*>(out) + static_cast<size_t>(r) * header.count * size,
                        blocks[static_cast<size_t>(r)], header.count * size);
          break;
        case Kind::kBroadcast:
          std::memcpy(out, blocks[static_cast<size_t>(header.root)], header.count * size);
          break;
      }
      // All have begun this call, so all have ended the one before.
      if (number > 0) unlink(path(number - 1, comm->rank).c_str());
      return kSuccess;
    };
    return {work, ready};
  };
  return EnqueueWork(stream, make) == kSuccess ? kNcclInProgress : kUnhandled;
}

Result AddMessage(Message m, int type, size_t count, int peer, NcclComm handle) {
  const std::shared_ptr<State> comm = handle == nullptr ? nullptr : handle->state;
  if (const Result usable = Usable(handle, comm); usable != kSuccess) return usable;
  m.comm = comm;
  m.bytes = count * static_cast<size_t>(SizeOf(TypeOf(type)));
  if (peer < 0 || peer >= comm->ranks || !InDeviceMemory(m.sends ? m.from : m.to, m.bytes)) return kNcclInvalidArgument;
  m.peer = peer;
  if (depth > 0) {
    group.push_back(std::move(m));
    return kSuccess;
  }
  return EnqueueMessages({m});
}

// Whether a communicator must not be made or ended now.
Result RefuseInCapture() { return Captures() ? kNcclInvalidUsage : kSuccess; }
void RefuseHeld(const State& comm) {
  if (comm.held.use_count() == 1) return;
  std::fprintf(stderr, "emulated NCCL: a captured step still has the communicator: the library waits for ever\n");
  std::abort();
}

// Every rank takes away its own files, and the last one what is left.
void Leave(State& comm) {
  for (long call = std::max(0L, comm.calls - 2); call < comm.calls; ++call)
    unlink((comm.folder + "/call" + std::to_string(call) + "." + std::to_string(comm.rank)).c_str());
  unlink((comm.folder + "/here" + std::to_string(comm.rank)).c_str());
  comm.gone = true;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(comm.folder, error)) {
    if (entry.path().filename().string().rfind("here", 0) == 0) return;
  }
  std::filesystem::remove_all(comm.folder, error);
}

bool AllHave(const State& comm, const char* what) {
  for (int r = 0; r < comm.ranks; ++r) {
    if (!There(comm.folder + "/" + what + std::to_string(r))) return false;
  }
  return true;
}

}  // namespace

#define ENTER_NCCL(name) \
  if (Fails(#name)) return kSystemError

extern "C" {

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kUnhandled:
      return "unhandled cuda error";
    case kSystemError:
      return "unhandled system error";
    case kInternalError:
      return "internal error";
    case kNcclInvalidArgument:
      return "invalid argument";
    case kNcclInvalidUsage:
      return "invalid usage";
    case kNcclRemoteError:
      return "remote process exited or there was a network error";
    case kNcclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
Result ncclGetVersion(int* version) {
  ENTER_NCCL(ncclGetVersion);
  *version = 22809;
  return kSuccess;
}
Result ncclGetUniqueId(NcclId* id) {
  ENTER_NCCL(ncclGetUniqueId);
  const char* const base = std::getenv("EMULATED_NCCL_FOLDER");
  const int length =
      std::snprintf(id->bytes, sizeof id->bytes, "%s/mslua-nccl-XXXXXX", base == nullptr ? "/tmp" : base);
  if (length < 0 || length >= static_cast<int>(sizeof id->bytes) || mkdtemp(id->bytes) == nullptr) return kSystemError;
  return kSuccess;
}
Result ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config) {
  ENTER_NCCL(ncclCommInitRankConfig);
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused;
  if (config->magic != 0xcafebeef || config->version < 21400 || config->blocking != 0 || rank < 0 || rank >= ranks)
    return kNcclInvalidArgument;
  auto state = std::make_shared<State>();
  state->folder = std::string(id.bytes, strnlen(id.bytes, sizeof id.bytes));
  state->ranks = ranks;
  state->rank = rank;
  state->sent.assign(static_cast<size_t>(ranks), 0);
  state->received.assign(static_cast<size_t>(ranks), 0);
  Put(state->folder + "/here" + std::to_string(rank), std::to_string(OrdinalInUse()));
  *comm = new NcclCommTag{std::move(state)};
  CountComms(1);
  return kNcclInProgress;
}
Result ncclCommGetAsyncError(NcclComm comm, Result* error) {
  ENTER_NCCL(ncclCommGetAsyncError);
  State& s = *comm->state;
  *error = s.error;
  if (s.error != kSuccess) return kSuccess;
  if (!s.joined) {
    if (!AllHave(s, "here")) {
      *error = kNcclInProgress;
      return kSuccess;
    }
    // Every rank has its own device.
    const std::string mine = std::to_string(OrdinalInUse());
    for (int r = 0; r < s.ranks; ++r) {
      if (r != s.rank && Get(s.folder + "/here" + std::to_string(r)) == mine) s.error = kNcclInvalidUsage;
    }
    s.joined = true;
  }
  if (s.finalizing && !AllHave(s, "end")) {
    *error = kNcclInProgress;
    return kSuccess;
  }
  // What was asked for last is in progress once.
  *error = s.error != kSuccess ? s.error : s.busy ? kNcclInProgress : kSuccess;
  s.busy = false;
  return kSuccess;
}
Result ncclCommFinalize(NcclComm comm) {
  ENTER_NCCL(ncclCommFinalize);
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused;
  RefuseHeld(*comm->state);
  comm->state->finalizing = true;
  Put(comm->state->folder + "/end" + std::to_string(comm->state->rank), "");
  return kNcclInProgress;
}
Result ncclCommDestroy(NcclComm comm) {
  ENTER_NCCL(ncclCommDestroy);
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused;
  RefuseHeld(*comm->state);
  Leave(*comm->state);
  delete comm;
  CountComms(-1);
  return kSuccess;
}
Result ncclCommAbort(NcclComm comm) {
  ENTER_NCCL(ncclCommAbort);
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused;
  RefuseHeld(*comm->state);
  Leave(*comm->state);
  delete comm;
  CountComms(-1);
  return kSuccess;
}
Result ncclGroupStart() {
  ENTER_NCCL(ncclGroupStart);
  ++depth;
  return kSuccess;
}
Result ncclGroupEnd() {
  if (depth > 0) --depth;
  std::vector<Message> messages;
  if (depth == 0) messages.swap(group);
  ENTER_NCCL(ncclGroupEnd);
  return EnqueueMessages(messages);
}
Result ncclAllReduce(const void* in, void* out, size_t count, int type, int reduce, NcclComm comm,
                     StreamHandle stream) {
  ENTER_NCCL(ncclAllReduce);
  return EnqueueCollective(comm, {Kind::kAllReduce, type, reduce, 0, count}, in, count, out, count, stream);
}
Result ncclReduce(const void* in, void* out, size_t count, int type, int reduce, int root, NcclComm comm,
                  StreamHandle stream) {
  ENTER_NCCL(ncclReduce);
  const bool mine = comm != nullptr && comm->state->rank == root;
  return EnqueueCollective(comm, {Kind::kReduce, type, reduce, root, count}, in, count, out, mine ? count : 0, stream);
}
Result ncclReduceScatter(const void* in, void* out, size_t count, int type, int reduce, NcclComm comm,
                         StreamHandle stream) {
  ENTER_NCCL(ncclReduceScatter);
  const size_t n = comm == nullptr ? 0 : static_cast<size_t>(comm->state->ranks);
  return EnqueueCollective(comm, {Kind::kReduceScatter, type, reduce, 0, count}, in, n * count, out, count, stream);
}
Result ncclAllGather(const void* in, void* out, size_t count, int type, NcclComm comm, StreamHandle stream) {
  ENTER_NCCL(ncclAllGather);
  const size_t n = comm == nullptr ? 0 : static_cast<size_t>(comm->state->ranks);
  return EnqueueCollective(comm, {Kind::kAllGather, type, kNcclSum, 0, count}, in, count, out, n * count, stream);
}
Result ncclBroadcast(const void* in, void* out, size_t count, int type, int root, NcclComm comm, StreamHandle stream) {
  ENTER_NCCL(ncclBroadcast);
  const bool mine = comm != nullptr && comm->state->rank == root;
  return EnqueueCollective(comm, {Kind::kBroadcast, type, kNcclSum, root, count}, in, mine ? count : 0, out, count,
                           stream);
}
Result ncclSend(const void* data, size_t count, int type, int peer, NcclComm comm, StreamHandle stream) {
  ENTER_NCCL(ncclSend);
  Message m;
  m.stream = stream;
  m.sends = true;
  m.from = data;
  return AddMessage(std::move(m), type, count, peer, comm);
}
Result ncclRecv(void* data, size_t count, int type, int peer, NcclComm comm, StreamHandle stream) {
  ENTER_NCCL(ncclRecv);
  Message m;
  m.stream = stream;
  m.to = data;
  return AddMessage(std::move(m), type, count, peer, comm);
}

}  // extern "C"
}  // namespace mslua::cuda
