// An emulated device: the functions of core/device/cuda_api.h on the CPU, in one shared object that the tests put where
// the program looks for NVIDIA's libraries. The program under test is unmodified.
//
// It is stricter than a device. Work on streams runs when somebody waits for it, in an order that only the streams and
// their events restrict (EMULATED_DEVICE_SEED chooses it). Device memory cannot be read or written by host code
// (a segmentation fault), begins with the bytes 0xcd and lies between guard bytes, which are checked. Threads of a
// block that meet at barriers are fibers, resumed in an order that EMULATED_DEVICE_ORDER chooses (forward, backward,
// random). EMULATED_DEVICE_FAIL=NAME:K makes the K-th call of a function fail. EMULATED_DEVICE_HANG=K: the K-th launch
// of a captured graph never ends, and no call returns any more, since all wait for the lock that the waiting one holds.
// EMULATED_DEVICE_COUNT says how many devices there are (8), EMULATED_DEVICE_MEMORY how much memory each has, in bytes
// (4 GiB). EMULATED_DEVICE_OPTIMIZE=1 has g++ optimize kernels: twice the time to compile them, half the time to run
// them. The device's number and what is still held when the process ends are written to the file
// EMULATED_DEVICE_LEAKS.
#include "tests/emulated_device/emulated_cuda.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/cuda_api.h"
#include "tests/emulated_device/fibers.h"

namespace mslua::cuda {

struct ContextTag {
  int held = 0;
};
struct FunctionTag {
  ModuleTag* module = nullptr;
  void (*run)(void*) = nullptr;
  int pointers = 0;
  bool barriers = false;
};
struct ModuleTag {
  void* handle = nullptr;
  unsigned *thread = nullptr, *block = nullptr;
  std::map<std::string, std::unique_ptr<FunctionTag>> functions;
};
struct EventTag {
  int recorded = 0;                                         // how often
  std::shared_ptr<int> reached = std::make_shared<int>(0);  // how often; outlives the event where a stream has it
  // When it was reached last, in ms; null where it has no time.
  std::shared_ptr<double> time;
  // Where it was recorded in a capture; null: it was not.
  GraphTag* graph = nullptr;
  int mark = 0;
};
struct StreamTag {
  struct Item {
    Work work;                     // null: a wait
    std::shared_ptr<int> reached;  // of an event to wait for, or to reach; null: of none
    int count = 0;
    std::function<bool()> ready;  // null: always
  };
  std::deque<Item> items;
  GraphTag* capture = nullptr;
  bool of_launch = false;  // a lane of a graph that has been launched
};
struct GraphTag {
  struct Node {
    int lane = 0;
    Work work;
    std::function<WaitingWork()> make;
    int reaches = -1, waits_for = -1;  // a mark
    EventHandle event = nullptr;       // recorded by each launch
  };
  std::vector<Node> nodes;
  std::vector<StreamTag*> lanes;  // where they were captured, the first one from the beginning
  int marks = 0;
  bool broken = false;
};
struct GraphExecTag {
  std::vector<GraphTag::Node> nodes;
  size_t lanes = 0;
  int marks = 0;
};
struct BlasHandleTag {};
struct BlasMatmulTag {
  int compute = 0;
  int transpose[2] = {0, 0};
  uint32_t epilogue = kNoEpilogue;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_stride = 0;
};
struct BlasLayoutTag {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0, batch_stride = 0;
  int32_t batch = 1;
};
struct BlasPreferenceTag {
  uint32_t schemes = kReductionMask;
};
struct ProgramTag {
  std::string text, log, cubin;
};

namespace {

constexpr Result kInvalidValue = 1, kInvalidHandle = 400, kIllegalAddress = 700, kLaunchFailed = 719,
                 kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureMerge = 902, kCaptureUnjoined = 904,
                 kCaptureIsolation = 905, kCapturedEvent = 907;
constexpr size_t kGuard = 4096, kReserved = size_t{64} << 30;
constexpr unsigned char kGuardByte = 0xa5, kFresh = 0xcd;

// Whole pages for so many bytes and what guards them.
constexpr size_t WholeBytes(size_t bytes) { return (bytes + 2 * kGuard + 4095) / 4096 * 4096; }

struct Allocation {
  size_t bytes;
};

struct Emulation {
  std::recursive_mutex mutex;
  std::map<std::string, int> calls;
  std::string failing;
  int failing_call = 0;
  int launches = 0, hanging = 0;  // of graphs; the one that never ends, from 1
  int devices = 8;
  size_t memory = size_t{4} << 30, used = 0, top = 0;
  char* base = nullptr;
  std::map<char*, Allocation> allocations;
  std::map<char*, size_t> pinned;
  std::set<StreamTag*> streams;
  std::set<GraphTag*> captures;
  std::thread::id capturing;  // the thread that began the last of them
  std::mt19937 random;
  std::string order = "forward";
  ContextTag context;
  int ordinal = -1;  // of the device in use
  int live_comms = 0, live_events = 0, live_graphs = 0, live_programs = 0, live_descriptors = 0;
  bool waiting = false;     // some work waits for another process
  bool open = false;        // work may touch memory
  Result fault = kSuccess;  // of work that has run: every later call gives it, as a driver does

  Emulation() {
    const auto number = [](const char* name, long long fallback) {
      const char* const text = std::getenv(name);
      return text == nullptr ? fallback : std::atoll(text);
    };
    devices = static_cast<int>(number("EMULATED_DEVICE_COUNT", devices));
    hanging = static_cast<int>(number("EMULATED_DEVICE_HANG", hanging));
    memory = static_cast<size_t>(number("EMULATED_DEVICE_MEMORY", static_cast<long long>(memory)));
    random.seed(static_cast<unsigned>(number("EMULATED_DEVICE_SEED", 1)));
    if (const char* const text = std::getenv("EMULATED_DEVICE_ORDER")) order = text;
    if (const char* const text = std::getenv("EMULATED_DEVICE_FAIL")) {
      failing = text;
      const size_t colon = failing.find(':');
      if (colon != failing.npos) {
        failing_call = std::atoi(failing.c_str() + colon + 1);
        failing.resize(colon);
      }
    }
    base = static_cast<char*>(mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  ~Emulation() {
    const char* const path = std::getenv("EMULATED_DEVICE_LEAKS");
    if (path == nullptr) return;
    std::ofstream(path, std::ios::app) << "device " << ordinal << " allocations " << allocations.size() << " pinned "
                                       << pinned.size() << " streams " << streams.size() << " events " << live_events
                                       << " graphs " << live_graphs << " communicators " << live_comms << " programs "
                                       << live_programs << " descriptors " << live_descriptors << "\n";
  }

  bool Fails(const char* name) { return failing == name && ++calls[name] == failing_call; }
  // All memory that is allocated. What lies before it has been freed, and stays closed: a process that allocates often
  // would spend its time on pages that nobody uses.
  void Open(bool open) {
    if (allocations.empty()) return;
    char* const first = allocations.begin()->first - kGuard;
    mprotect(first, static_cast<size_t>(base + top - first), open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

  bool GuardsIntact() const {
    static const std::string guard(kGuard, static_cast<char>(kGuardByte));
    for (const auto& [at, a] : allocations) {
      const auto intact = [](const char* p) { return std::memcmp(p, guard.data(), kGuard) == 0; };
      if (!intact(at - kGuard) || !intact(at + a.bytes)) return false;
    }
    return true;
  }

  // Runs the front of a stream if it may run.
  bool Step(StreamTag* stream) {
    if (stream->items.empty()) return false;
    StreamTag::Item& item = stream->items.front();
    if (!item.work && item.reached != nullptr && *item.reached < item.count) return false;
    if (item.ready && !item.ready()) {
      waiting = true;
      return false;
    }
    if (item.work && !open) Open(open = true);
    const Result result = item.work ? item.work() : kSuccess;
    if (result == kWaiting) {
      waiting = true;
      return false;
    }
    const StreamTag::Item taken = std::move(item);
    stream->items.pop_front();
    if (!taken.work) return true;
    if (result != kSuccess && fault == kSuccess) fault = result;
    if (taken.reached != nullptr) *taken.reached = std::max(*taken.reached, taken.count);
    return true;
  }
  // The lanes of graphs that have run.
  void Forget() {
    for (auto at = streams.begin(); at != streams.end();) {
      if (!(*at)->of_launch || !(*at)->items.empty()) {
        ++at;
        continue;
      }
      delete *at;
      at = streams.erase(at);
    }
  }
  // Runs work of all streams, in random order, until `done`. Gives kNotReady where only other processes can make it so,
  // unless it is to wait for them.
  Result RunUntil(const std::function<bool()>& done, bool waits = true) {
    open = false;
    bool stuck = false;
    while (!done() && !stuck) {
      Forget();
      std::vector<StreamTag*> all(streams.begin(), streams.end());
      std::shuffle(all.begin(), all.end(), random);
      waiting = false;
      const bool ran = std::any_of(all.begin(), all.end(), [this](StreamTag* s) { return Step(s); });
      if (ran) continue;
      if (!waiting) {
        std::fprintf(stderr, "emulated device: streams wait for each other\n");
        std::abort();
      }
      stuck = !waits;
      usleep(100);  // for the others
    }
    if (open && !GuardsIntact()) {
      std::fprintf(stderr, "emulated device: a kernel wrote outside of its memory\n");
      if (fault == kSuccess) fault = kIllegalAddress;
    }
    if (open) Open(open = false);
    Forget();
    return fault != kSuccess ? fault : stuck ? kNotReady : kSuccess;
  }
};

Emulation& E() {
  static Emulation emulation;
  return emulation;
}

// Adds to the graph that the stream is captured in.
void Capture(StreamTag* stream, GraphTag::Node node) {
  std::vector<StreamTag*>& lanes = stream->capture->lanes;
  node.lane = static_cast<int>(std::find(lanes.begin(), lanes.end(), stream) - lanes.begin());
  stream->capture->nodes.push_back(std::move(node));
}

// Puts work on a stream, or into the graph that it is captured in.
Result Enqueue(StreamTag* stream, Work work) {
  if (E().fault != kSuccess) return E().fault;
  if (stream->capture != nullptr)
    Capture(stream, {0, std::move(work), nullptr, -1, -1, nullptr});
  else
    stream->items.push_back({std::move(work), nullptr, 0, nullptr});
  return kSuccess;
}

// Of a call that a thread must not make while it captures: the capture is lost.
Result RefuseInCapture() {
  if (E().captures.empty() || E().capturing != std::this_thread::get_id()) return kSuccess;
  for (GraphTag* graph : E().captures) graph->broken = true;
  return kCaptureUnsupported;
}

// Whether the first lane comes behind all that the others have.
bool Joined(const GraphTag& graph) {
  std::vector<std::vector<size_t>> clocks(graph.lanes.size(), std::vector<size_t>(graph.lanes.size(), 0));
  std::vector<std::vector<size_t>> marks(static_cast<size_t>(graph.marks));
  for (const GraphTag::Node& n : graph.nodes) {
    std::vector<size_t>& clock = clocks[static_cast<size_t>(n.lane)];
    if (n.waits_for >= 0) {
      const std::vector<size_t>& mark = marks[static_cast<size_t>(n.waits_for)];
      for (size_t l = 0; l < mark.size(); ++l) clock[l] = std::max(clock[l], mark[l]);
    } else if (n.reaches >= 0) {
      marks[static_cast<size_t>(n.reaches)] = clock;
    } else {
      ++clock[static_cast<size_t>(n.lane)];
    }
  }
  for (size_t l = 1; l < clocks.size(); ++l) {
    if (clocks[0][l] < clocks[l][l]) return false;
  }
  return true;
}

// The stream, and those that were captured with it, are no longer captured.
void EndCaptureOf(GraphTag* graph) {
  for (StreamTag* s : graph->lanes) s->capture = nullptr;
  E().captures.erase(graph);
}

Result Reach(const std::shared_ptr<double>& time) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  if (time != nullptr) *time = Milliseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  return kSuccess;
}

// Whether [p, p + bytes) lies in one allocation.
bool OnDevice(Address address, size_t bytes) {
  char* const p = reinterpret_cast<char*>(address);
  auto at = E().allocations.upper_bound(p);
  if (at == E().allocations.begin()) return false;
  --at;
  return p + bytes <= at->first + at->second.bytes;
}

bool Pinned(const void* p) {
  auto at = E().pinned.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  if (at == E().pinned.begin()) return false;
  --at;
  return p < at->first + at->second;
}

Result RunKernel(const FunctionTag& f, std::vector<void*> pointers, unsigned blocks, unsigned threads) {
  // Memory may have gone since the launch was captured.
  for (const void* p : pointers) {
    if (p == nullptr || OnDevice(reinterpret_cast<Address>(p), 1)) continue;
    std::fprintf(stderr, "emulated device: a kernel has a pointer to memory that is gone\n");
    return kIllegalAddress;
  }
  const std::vector<int> order = ThreadOrder(static_cast<int>(threads), E().order, E().random);
  for (unsigned b = 0; b < blocks; ++b) {
    *f.module->block = b;
    if (f.barriers) {
      if (!RunFibers(
              order, [&] { f.run(pointers.data()); }, f.module->thread)) {
        std::fprintf(stderr, "emulated device: some threads of a block left while others wait at a barrier\n");
        return kLaunchFailed;
      }
    } else {
      for (const int t : order) {
        *f.module->thread = static_cast<unsigned>(t);
        f.run(pointers.data());
      }
    }
  }
  return kSuccess;
}

}  // namespace

Result EnqueueWork(StreamTag* stream, std::function<WaitingWork()> make) {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  if (E().fault != kSuccess) return E().fault;
  if (stream->capture != nullptr) {
    Capture(stream, {0, nullptr, std::move(make), -1, -1, nullptr});
    return kSuccess;
  }
  WaitingWork made = make();
  if (made.work) stream->items.push_back({std::move(made.work), nullptr, 0, std::move(made.ready)});
  return kSuccess;
}
bool Captures() {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  return !E().captures.empty() && E().capturing == std::this_thread::get_id();
}
Result EnqueueKernel(StreamTag* stream, Work work) {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  return Enqueue(stream, std::move(work));
}
bool Fails(const char* name) {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  return E().Fails(name);
}
bool InDeviceMemory(const void* p, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  return OnDevice(reinterpret_cast<Address>(p), bytes);
}
void CountComms(int by) {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  E().live_comms += by;
}
void CountDescriptors(int by) {
  const std::lock_guard<std::recursive_mutex> lock(E().mutex);
  E().live_descriptors += by;
}
int OrdinalInUse() { return E().ordinal; }

#define ENTER(name)                                            \
  const std::lock_guard<std::recursive_mutex> lock(E().mutex); \
  if (E().Fails(#name)) return kFaked
#define ENTER_UNCAPTURED(name) \
  ENTER(name);                 \
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused

extern "C" {

Result cuInit(unsigned) {
  ENTER(cuInit);
  return E().devices == 0 ? kNoDevice : kSuccess;
}
Result cuDriverGetVersion(int* version) {
  ENTER(cuDriverGetVersion);
  const char* const text = std::getenv("EMULATED_DEVICE_VERSION");
  *version = text == nullptr ? 12080 : std::atoi(text);
  return kSuccess;
}
Result cuGetErrorName(Result error, const char** name) {
  static const std::map<Result, const char*> names = {{kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
                                                      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
                                                      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
                                                      {kNotReady, "CUDA_ERROR_NOT_READY"},
                                                      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
                                                      {kFaked, "CUDA_ERROR_UNKNOWN"},
                                                      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                                                      {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                                                      {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
                                                      {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
                                                      {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
                                                      {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT"}};
  const auto at = names.find(error);
  *name = at == names.end() ? nullptr : at->second;
  return at == names.end() ? kInvalidValue : kSuccess;
}
Result cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount);
  *count = E().devices;
  return kSuccess;
}
Result cuDeviceGet(Ordinal* device, int ordinal) {
  ENTER(cuDeviceGet);
  *device = ordinal;
  return ordinal >= 0 && ordinal < E().devices ? kSuccess : kInvalidValue;
}
Result cuDeviceGetName(char* name, int length, Ordinal) {
  ENTER(cuDeviceGetName);
  std::snprintf(name, static_cast<size_t>(length), "emulated device");
  return kSuccess;
}
Result cuDeviceTotalMem_v2(size_t* bytes, Ordinal) {
  ENTER(cuDeviceTotalMem_v2);
  *bytes = E().memory;
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, Ordinal) {
  ENTER(cuDeviceGetAttribute);
  *value = attribute == kComputeCapabilityMajor ? 9 : attribute == kComputeCapabilityMinor ? 0 : 2;
  return kSuccess;
}
Result cuDeviceGetUuid_v2(Uuid* uuid, Ordinal device) {
  ENTER(cuDeviceGetUuid_v2);
  std::memset(uuid, device, sizeof *uuid);
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(Context* context, Ordinal device) {
  ENTER(cuDevicePrimaryCtxRetain);
  E().ordinal = device;
  ++E().context.held;
  *context = &E().context;
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(Ordinal) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  --E().context.held;
  return kSuccess;
}
Result cuCtxSetCurrent(Context) {
  ENTER(cuCtxSetCurrent);
  return kSuccess;
}
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER(cuMemGetInfo_v2);
  *total = E().memory;
  *free = E().memory - E().used;
  return kSuccess;
}
Result cuMemAlloc_v2(Address* address, size_t bytes) {
  ENTER_UNCAPTURED(cuMemAlloc_v2);
  if (bytes == 0) return kInvalidValue;
  const size_t whole = WholeBytes(bytes);
  if (E().used + bytes > E().memory || E().top + whole > kReserved) return kOutOfMemory;
  char* const at = E().base + E().top + kGuard;
  E().top += whole;
  E().used += bytes;
  E().allocations[at] = {bytes};
  mprotect(at - kGuard, whole, PROT_READ | PROT_WRITE);
  std::memset(at - kGuard, kGuardByte, kGuard);
  std::memset(at, kFresh, bytes);
  std::memset(at + bytes, kGuardByte, kGuard);
  mprotect(at - kGuard, whole, PROT_NONE);
  *address = reinterpret_cast<Address>(at);
  return kSuccess;
}
Result cuMemFree_v2(Address address) {
  ENTER_UNCAPTURED(cuMemFree_v2);
  const auto at = E().allocations.find(reinterpret_cast<char*>(address));
  if (at == E().allocations.end()) return kInvalidValue;
  // Freeing waits for work that may use the memory.
  const Result result = E().RunUntil([] {
    return std::all_of(E().streams.begin(), E().streams.end(), [](StreamTag* s) { return s->items.empty(); });
  });
  E().used -= at->second.bytes;
  madvise(at->first - kGuard, WholeBytes(at->second.bytes), MADV_DONTNEED);
  E().allocations.erase(at);
  return result;
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER_UNCAPTURED(cuMemHostAlloc);
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  E().pinned[static_cast<char*>(*memory)] = bytes;
  return *memory == nullptr ? kOutOfMemory : kSuccess;
}
Result cuMemFreeHost(void* memory) {
  ENTER_UNCAPTURED(cuMemFreeHost);
  // As freeing memory of the device.
  const Result result = E().RunUntil([] {
    return std::all_of(E().streams.begin(), E().streams.end(), [](StreamTag* s) { return s->items.empty(); });
  });
  if (E().pinned.erase(static_cast<char*>(memory)) == 0) return kInvalidValue;
  std::free(memory);
  return result;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, StreamHandle stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  if (!OnDevice(to, bytes)) return kInvalidValue;
  void* const device = reinterpret_cast<void*>(to);
  if (Pinned(from)) {
    return Enqueue(stream, [=] {
      std::memcpy(device, from, bytes);
      return kSuccess;
    });
  }
  // Of other memory the driver has a copy before it returns.
  const auto copy = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
  return Enqueue(stream, [=] {
    std::memcpy(device, copy->data(), bytes);
    return kSuccess;
  });
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, StreamHandle stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  if (!OnDevice(from, bytes)) return kInvalidValue;
  return Enqueue(stream, [=] {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
  });
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, StreamHandle stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  if (!OnDevice(to, bytes) || !OnDevice(from, bytes)) return kInvalidValue;
  return Enqueue(stream, [=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
  });
}
Result cuMemcpy2DAsync_v2(const Copy2D* copy, StreamHandle stream) {
  ENTER(cuMemcpy2DAsync_v2);
  const Copy2D c = *copy;
  if (c.from_type != kOnDevice || c.to_type != kOnDevice || c.width > c.from_pitch || c.width > c.to_pitch ||
      c.height == 0 || !OnDevice(c.from, (c.height - 1) * c.from_pitch + c.width) ||
      !OnDevice(c.to, (c.height - 1) * c.to_pitch + c.width))
    return kInvalidValue;
  return Enqueue(stream, [=] {
    for (size_t row = 0; row < c.height; ++row)
      std::memcpy(reinterpret_cast<char*>(c.to) + row * c.to_pitch,
                  reinterpret_cast<const char*>(c.from) + row * c.from_pitch, c.width);
    return kSuccess;
  });
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, StreamHandle stream) {
  ENTER(cuMemsetD8Async);
  if (!OnDevice(to, bytes)) return kInvalidValue;
  return Enqueue(stream, [=] {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return kSuccess;
  });
}
Result cuStreamCreate(StreamHandle* stream, unsigned) {
  ENTER(cuStreamCreate);
  *stream = new StreamTag;
  E().streams.insert(*stream);
  return kSuccess;
}
Result cuStreamDestroy_v2(StreamHandle stream) {
  ENTER(cuStreamDestroy_v2);
  const Result result = E().RunUntil([=] { return stream->items.empty(); });
  E().streams.erase(stream);
  if (GraphTag* const graph = stream->capture; graph != nullptr) {
    EndCaptureOf(graph);
    --E().live_graphs;
    delete graph;
  }
  delete stream;
  return result;
}
Result cuStreamSynchronize(StreamHandle stream) {
  ENTER_UNCAPTURED(cuStreamSynchronize);
  return E().RunUntil([=] { return stream->items.empty(); });
}
Result cuStreamQuery(StreamHandle stream) {
  ENTER_UNCAPTURED(cuStreamQuery);
  return E().RunUntil([=] { return stream->items.empty(); }, false);
}
Result cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  ENTER(cuStreamWaitEvent);
  GraphTag* const graph = event->graph;
  if (graph != nullptr) {
    if (E().captures.count(graph) == 0) return kCapturedEvent;
    if (stream->capture != nullptr && stream->capture != graph) return kCaptureMerge;
    if (stream->capture == nullptr) graph->lanes.push_back(stream);
    stream->capture = graph;
    Capture(stream, {0, nullptr, nullptr, -1, event->mark, nullptr});
    return kSuccess;
  }
  if (stream->capture != nullptr) {
    stream->capture->broken = true;
    return kCaptureIsolation;
  }
  stream->items.push_back({nullptr, event->reached, event->recorded, nullptr});
  return kSuccess;
}
Result cuEventCreate(EventHandle* event, unsigned flags) {
  ENTER(cuEventCreate);
  *event = new EventTag;
  if ((flags & kEventDisableTiming) == 0) (*event)->time = std::make_shared<double>(0);
  ++E().live_events;
  return kSuccess;
}
Result cuEventDestroy_v2(EventHandle event) {
  ENTER(cuEventDestroy_v2);
  --E().live_events;
  delete event;
  return kSuccess;
}
Result cuEventRecord(EventHandle event, StreamHandle stream) {
  ENTER(cuEventRecord);
  if (stream->capture != nullptr) {
    event->graph = stream->capture;
    event->mark = stream->capture->marks++;
    Capture(stream, {0, nullptr, nullptr, event->mark, -1, nullptr});
    return kSuccess;
  }
  event->graph = nullptr;
  stream->items.push_back({[time = event->time] { return Reach(time); }, event->reached, ++event->recorded, nullptr});
  return kSuccess;
}
// The event of a node that records it is that of the newest launch.
Result cuEventRecordWithFlags(EventHandle event, StreamHandle stream, unsigned flags) {
  ENTER(cuEventRecordWithFlags);
  if (flags != kEventRecordExternal || stream->capture == nullptr) return kInvalidValue;
  event->graph = nullptr;
  Capture(stream, {0, nullptr, nullptr, -1, -1, event});
  return kSuccess;
}
Result cuEventQuery(EventHandle event) {
  ENTER_UNCAPTURED(cuEventQuery);
  if (event->graph != nullptr) return kCapturedEvent;
  const int count = event->recorded;
  return E().RunUntil([=] { return *event->reached >= count; }, false);
}
Result cuEventSynchronize(EventHandle event) {
  ENTER_UNCAPTURED(cuEventSynchronize);
  if (event->graph != nullptr) return kCapturedEvent;
  const int count = event->recorded;
  return E().RunUntil([=] { return *event->reached >= count; });
}
Result cuEventElapsedTime(float* milliseconds, EventHandle begin, EventHandle end) {
  ENTER(cuEventElapsedTime);
  if (begin->time == nullptr || end->time == nullptr) return kInvalidHandle;
  if (*begin->reached < begin->recorded || *end->reached < end->recorded) return kNotReady;
  *milliseconds = static_cast<float>(*end->time - *begin->time);
  return kSuccess;
}

// A module is the shared object that the emulated NVRTC has made.
Result cuModuleLoadData(Module* module, const void* image) {
  ENTER(cuModuleLoadData);
  size_t bytes = 0;
  std::memcpy(&bytes, image, sizeof bytes);
  const int file = memfd_create("kernels", 0);
  const char* data = static_cast<const char*>(image) + sizeof bytes;
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = write(file, data + done, bytes - done);
    if (n <= 0) return kInvalidValue;
    done += static_cast<size_t>(n);
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  // The file stays open: dlopen takes a path that it knows for the object that it has.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "emulated device: %s\n", dlerror());
    return kInvalidValue;
  }
  auto* const made = new ModuleTag;
  made->handle = handle;
  made->thread = static_cast<unsigned*>(dlsym(handle, "mslua_thread"));
  made->block = static_cast<unsigned*>(dlsym(handle, "mslua_block"));
  *static_cast<void (**)()>(dlsym(handle, "mslua_barrier")) = YieldFiber;
  *module = made;
  return kSuccess;
}
Result cuModuleUnload(Module module) {
  ENTER(cuModuleUnload);
  delete module;
  return kSuccess;
}
Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  ENTER(cuModuleGetFunction);
  auto f = std::make_unique<FunctionTag>();
  f->module = module;
  f->run = reinterpret_cast<void (*)(void*)>(dlsym(module->handle, name));
  const auto* const pointers =
      static_cast<const int*>(dlsym(module->handle, (std::string(name) + "_pointers").c_str()));
  const auto* const barriers =
      static_cast<const int*>(dlsym(module->handle, (std::string(name) + "_barriers").c_str()));
  if (f->run == nullptr || pointers == nullptr || barriers == nullptr) return kInvalidValue;
  f->pointers = *pointers;
  f->barriers = *barriers != 0;
  *function = f.get();
  module->functions[name] = std::move(f);
  return kSuccess;
}
Result cuFuncGetAttribute(int* value, int attribute, Function) {
  ENTER(cuFuncGetAttribute);
  *value = attribute == kFunctionRegisters ? 32 : 0;
  return kSuccess;
}
Result cuLaunchKernel(Function f, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                      StreamHandle stream, void** parameters, void**) {
  ENTER(cuLaunchKernel);
  if (blocks == 0 || threads == 0 || threads > 1024) return kInvalidValue;
  void* const* const first = static_cast<void* const*>(parameters[0]);
  std::vector<void*> pointers(first, first + f->pointers);
  return Enqueue(stream, [=] { return RunKernel(*f, pointers, blocks, threads); });
}
Result cuStreamBeginCapture_v2(StreamHandle stream, int) {
  ENTER(cuStreamBeginCapture_v2);
  stream->capture = new GraphTag;
  stream->capture->lanes.push_back(stream);
  E().captures.insert(stream->capture);
  E().capturing = std::this_thread::get_id();
  ++E().live_graphs;
  return kSuccess;
}
Result cuStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  ENTER(cuStreamEndCapture);
  *graph = nullptr;
  GraphTag* const captured = stream->capture;
  if (captured == nullptr || captured->lanes[0] != stream) return kInvalidValue;
  EndCaptureOf(captured);
  const Result result = captured->broken ? kCaptureInvalidated : !Joined(*captured) ? kCaptureUnjoined : kSuccess;
  if (result == kSuccess) {
    *graph = captured;
    return kSuccess;
  }
  --E().live_graphs;
  delete captured;
  return result;
}
Result cuGraphInstantiateWithFlags(GraphExec* exec, GraphHandle graph, unsigned long long) {
  ENTER(cuGraphInstantiateWithFlags);
  *exec = new GraphExecTag{graph->nodes, graph->lanes.size(), graph->marks};
  ++E().live_graphs;
  return kSuccess;
}
Result cuGraphLaunch(GraphExec exec, StreamHandle stream) {
  ENTER(cuGraphLaunch);
  if (++E().launches == E().hanging) return Enqueue(stream, [] { return kWaiting; });
  if (stream->capture != nullptr) return kInvalidValue;
  if (E().fault != kSuccess) return E().fault;
  // Each lane runs as a stream, between two items of this one.
  const auto begun = std::make_shared<int>(0), ended = std::make_shared<int>(0);
  std::vector<StreamTag*> lanes;
  for (size_t l = 0; l < exec->lanes; ++l) {
    lanes.push_back(new StreamTag);
    lanes.back()->of_launch = true;
    lanes.back()->items.push_back({nullptr, begun, 1, nullptr});
  }
  std::vector<std::shared_ptr<int>> marks;
  for (int m = 0; m < exec->marks; ++m) marks.push_back(std::make_shared<int>(0));
  const auto nothing = [] { return kSuccess; };
  for (const GraphTag::Node& n : exec->nodes) {
    std::deque<StreamTag::Item>& items = lanes[static_cast<size_t>(n.lane)]->items;
    if (n.waits_for >= 0) {
      items.push_back({nullptr, marks[static_cast<size_t>(n.waits_for)], 1, nullptr});
    } else if (n.reaches >= 0) {
      items.push_back({nothing, marks[static_cast<size_t>(n.reaches)], 1, nullptr});
    } else if (n.event != nullptr) {
      items.push_back({[time = n.event->time] { return Reach(time); }, n.event->reached, ++n.event->recorded, nullptr});
    } else if (n.make) {
      WaitingWork made = n.make();
      if (made.work) items.push_back({std::move(made.work), nullptr, 0, std::move(made.ready)});
    } else {
      items.push_back({n.work, nullptr, 0, nullptr});
    }
  }
  for (StreamTag* lane : lanes) {
    const auto end = [ended] {
      ++*ended;
      return kSuccess;
    };
    lane->items.push_back({end, nullptr, 0, nullptr});
    E().streams.insert(lane);
  }
  stream->items.push_back({nothing, begun, 1, nullptr});
  stream->items.push_back({nullptr, ended, static_cast<int>(lanes.size()), nullptr});
  return kSuccess;
}
Result cuGraphExecDestroy(GraphExec exec) {
  ENTER(cuGraphExecDestroy);
  --E().live_graphs;
  delete exec;
  return kSuccess;
}
Result cuGraphDestroy(GraphHandle graph) {
  ENTER(cuGraphDestroy);
  --E().live_graphs;
  delete graph;
  return kSuccess;
}

// For tests in the same process: as EMULATED_DEVICE_FAIL, EMULATED_DEVICE_ORDER and EMULATED_DEVICE_SEED; whether the
// failure has come; how many things are held.
void mslua_emulate_fail(const char* name, int call) {
  E().failing = name;
  E().failing_call = call;
  E().calls.clear();
}
bool mslua_emulate_failed() { return E().calls[E().failing] >= E().failing_call; }
void mslua_emulate_order(const char* order, unsigned seed) {
  E().order = order;
  E().random.seed(seed);
}
int mslua_emulate_held() {
  return static_cast<int>(E().allocations.size() + E().pinned.size() + E().streams.size()) + E().live_events +
         E().live_graphs + E().live_programs + E().live_descriptors + E().live_comms;
}
// Forgets what a kernel has done wrong; a device does not.
void mslua_emulate_forget() { E().fault = kSuccess; }

Result nvrtcVersion(int* major, int* minor) {
  ENTER(nvrtcVersion);
  *major = 12;
  *minor = 8;
  return kSuccess;
}
Result nvrtcCreateProgram(Program* program, const char* text, const char*, int, const char* const*,
                          const char* const*) {
  ENTER(nvrtcCreateProgram);
  *program = new ProgramTag{text, "", ""};
  ++E().live_programs;
  return kSuccess;
}
Result nvrtcDestroyProgram(Program* program) {
  ENTER(nvrtcDestroyProgram);
  --E().live_programs;
  delete *program;
  *program = nullptr;
  return kSuccess;
}
// g++ of the shim and the text. Not under the lock: programs are compiled side by side.
Result nvrtcCompileProgram(Program program, int, const char* const*) {
  { ENTER(nvrtcCompileProgram); }
  char folder[] = "/tmp/mslua-emulated-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string source = std::string(folder) + "/kernels.cc", object = std::string(folder) + "/kernels.so",
                    log = std::string(folder) + "/log", shim = std::string(folder) + "/shim.h";
  std::string text = program->text;
  // Which kernels meet at barriers.
  const std::string mark = "MSLUA_KERNEL(";
  std::string barriers;
  for (size_t at = text.find("\n" + mark); at != text.npos;) {
    const size_t next = text.find("\n" + mark, at + 1), name = at + 1 + mark.size();
    const std::string body = text.substr(at, next == text.npos ? next : next - at);
    bool meets = body.find("__syncthreads") != body.npos;
    for (size_t team = body.find("Team<"); team != body.npos && !meets; team = body.find("Team<", team + 1))
      meets = body.compare(team, 7, "Team<1>") != 0;  // of several threads
    barriers += "extern \"C\" const int " + text.substr(name, text.find(',', name) - name) +
                "_barriers = " + (meets ? "1" : "0") + ";\n";
    at = next;
  }
  std::ofstream(shim) << kShim;
  std::ofstream(source) << "#include \"shim.h\"\n" << text << barriers;
  const char* const optimize = std::getenv("EMULATED_DEVICE_OPTIMIZE");
  const std::string command = std::string("g++ -std=c++17 ") +
                              (optimize != nullptr && std::string(optimize) == "1" ? "-O1" : "-O0") +
                              " -fPIC -shared -w -nostdlib " + source + " -o " + object + " -lm -lgcc 2> " + log;
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  program->log = read(log);
  if (status == 0) {
    const std::string code = read(object);
    const size_t bytes = code.size();
    program->cubin.assign(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    program->cubin += code;
  }
  for (const std::string& path : {source, object, log, shim}) unlink(path.c_str());
  rmdir(folder);
  return status == 0 ? kSuccess : 6;
}
Result nvrtcGetCUBINSize(Program program, size_t* bytes) {
  ENTER(nvrtcGetCUBINSize);
  *bytes = program->cubin.size();
  return kSuccess;
}
Result nvrtcGetCUBIN(Program program, char* cubin) {
  ENTER(nvrtcGetCUBIN);
  std::memcpy(cubin, program->cubin.data(), program->cubin.size());
  return kSuccess;
}
Result nvrtcGetProgramLogSize(Program program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kSuccess;
}
Result nvrtcGetProgramLog(Program program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

size_t cublasLtGetVersion() { return 120800; }
Result cublasLtCreate(BlasHandle* handle) {
  ENTER(cublasLtCreate);
  *handle = new BlasHandleTag;
  return kSuccess;
}
Result cublasLtDestroy(BlasHandle handle) {
  delete handle;
  return kSuccess;
}
Result cublasLtMatmulDescCreate(BlasMatmul* matmul, int compute, int) {
  ENTER(cublasLtMatmulDescCreate);
  *matmul = new BlasMatmulTag;
  (*matmul)->compute = compute;
  ++E().live_descriptors;
  return kSuccess;
}
Result cublasLtMatmulDescDestroy(BlasMatmul matmul) {
  ENTER(cublasLtMatmulDescDestroy);
  --E().live_descriptors;
  delete matmul;
  return kSuccess;
}
Result cublasLtMatmulDescSetAttribute(BlasMatmul matmul, int attribute, const void* value, size_t bytes) {
  ENTER(cublasLtMatmulDescSetAttribute);
  const auto set = [&](auto* to) {
    if (bytes != sizeof *to) return kBlasInvalid;
    std::memcpy(to, value, bytes);
    return kSuccess;
  };
  switch (attribute) {
    case kTransposeA:
    case kTransposeB:
      return set(&matmul->transpose[attribute - kTransposeA]);
    case kEpilogue:
      return set(&matmul->epilogue);
    case kBiasPointer:
      return set(&matmul->bias);
    case kAuxPointer:
      return set(&matmul->aux);
    case kAuxStride:
      return set(&matmul->aux_stride);
    default:
      return kBlasInvalid;
  }
}
Result cublasLtMatrixLayoutCreate(BlasLayout* layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  ENTER(cublasLtMatrixLayoutCreate);
  *layout = new BlasLayoutTag{type, rows, columns, stride, 0, 1};
  ++E().live_descriptors;
  return kSuccess;
}
Result cublasLtMatrixLayoutDestroy(BlasLayout layout) {
  ENTER(cublasLtMatrixLayoutDestroy);
  --E().live_descriptors;
  delete layout;
  return kSuccess;
}
Result cublasLtMatrixLayoutSetAttribute(BlasLayout layout, int attribute, const void* value, size_t bytes) {
  ENTER(cublasLtMatrixLayoutSetAttribute);
  if (attribute == kBatchCount && bytes == 4)
    std::memcpy(&layout->batch, value, bytes);
  else if (attribute == kBatchStride && bytes == 8)
    std::memcpy(&layout->batch_stride, value, bytes);
  else
    return kBlasInvalid;
  return kSuccess;
}
Result cublasLtMatmulPreferenceCreate(BlasPreference* preference) {
  ENTER(cublasLtMatmulPreferenceCreate);
  *preference = new BlasPreferenceTag;
  ++E().live_descriptors;
  return kSuccess;
}
Result cublasLtMatmulPreferenceDestroy(BlasPreference preference) {
  ENTER(cublasLtMatmulPreferenceDestroy);
  --E().live_descriptors;
  delete preference;
  return kSuccess;
}
Result cublasLtMatmulPreferenceSetAttribute(BlasPreference preference, int attribute, const void* value, size_t bytes) {
  ENTER(cublasLtMatmulPreferenceSetAttribute);
  if (attribute == kReductionSchemes && bytes == 4) std::memcpy(&preference->schemes, value, bytes);
  return bytes == (attribute == kMaxWorkspace ? 8 : 4) ? kSuccess : kBlasInvalid;
}
// The epilogues that are emulated, and what the library asks of them.
static Result CheckEpilogue(const BlasMatmulTag& m, const BlasLayoutTag& a, const BlasLayoutTag& d) {
  const bool result = d.type == a.type || (d.type == kReal32 && (a.type == kReal16 || a.type == kRealB16));
  if (!result) return kBlasNotSupported;
  if (m.epilogue == kNoEpilogue) return kSuccess;
  if (m.epilogue != kBias && m.epilogue != kGeluBias && m.epilogue != kGeluAuxBias) return kBlasNotSupported;
  if (d.type == kReal64 || d.batch != 1) return kBlasNotSupported;
  if (m.bias == nullptr || reinterpret_cast<uintptr_t>(m.bias) % 16 != 0) return kBlasInvalid;
  if (m.epilogue != kGeluAuxBias) return kSuccess;
  const bool aux = m.aux != nullptr && reinterpret_cast<uintptr_t>(m.aux) % 16 == 0 && m.aux_stride % 8 == 0 &&
                   m.aux_stride >= static_cast<int64_t>(d.rows);
  return aux ? kSuccess : kBlasInvalid;
}
// Algorithm 0 adds in float64, 1 in float32.
constexpr uint64_t kAlgorithms = 0x6d736c7561;
// An algorithm that needs memory of its own, so that a missing workspace shows; none where any order of adding is
// allowed, which would not give the same bits twice.
Result cublasLtMatmulAlgoGetHeuristic(BlasHandle, BlasMatmul matmul, BlasLayout a, BlasLayout b, BlasLayout,
                                      BlasLayout d, BlasPreference preference, int, BlasHeuristic* results,
                                      int* given) {
  ENTER(cublasLtMatmulAlgoGetHeuristic);
  const auto size = [&](BlasLayout l, int t, bool rows) {
    return (matmul->transpose[t] != 0) == rows ? l->columns : l->rows;
  };
  if ((preference->schemes & kReductionInPlace) != 0) return kBlasNotSupported;
  if (matmul->compute == kComputeTf32 && (a->type != kReal32 || b->type != kReal32)) return kBlasNotSupported;
  if (const Result known = CheckEpilogue(*matmul, *a, *d); known != kSuccess) return known;
  if (size(a, 0, true) != d->rows || size(b, 1, false) != d->columns || size(a, 0, false) != size(b, 1, true))
    return kBlasInvalid;
  *results = {};
  const char* const first = std::getenv("EMULATED_CUBLAS_ALGORITHM");
  results->algorithm = {{kAlgorithms, first != nullptr ? static_cast<uint64_t>(std::atoi(first)) : 0}};
  results->workspace_bytes = 256;
  *given = 1;
  return kSuccess;
}
Result cublasLtMatmulAlgoCheck(BlasHandle, BlasMatmul matmul, BlasLayout a, BlasLayout, BlasLayout, BlasLayout d,
                               const BlasAlgorithm* algorithm, BlasHeuristic* result) {
  ENTER(cublasLtMatmulAlgoCheck);
  if (algorithm->data[0] != kAlgorithms || algorithm->data[1] > 3) return kBlasInvalid;
  *result = {};
  // Two that cannot be used, for they need more memory than there is, or another device.
  result->workspace_bytes = algorithm->data[1] == 2 ? size_t{1} << 40 : 256;
  result->state = algorithm->data[1] == 3 ? kBlasNotSupported : kSuccess;
  return CheckEpilogue(*matmul, *a, *d);
}
Result cublasLtMatmul(BlasHandle, BlasMatmul matmul, const void* alpha, const void* a, BlasLayout a_layout,
                      const void* b, BlasLayout b_layout, const void* beta, const void* c, BlasLayout c_layout, void* d,
                      BlasLayout d_layout, const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                      StreamHandle stream) {
  ENTER(cublasLtMatmul);
  const bool wide = matmul->compute == kCompute64;
  const double scale = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double add = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  if (workspace == nullptr || workspace_bytes < 256) return kBlasInvalid;
  if (algorithm == nullptr || algorithm->data[0] != kAlgorithms) return kBlasInvalid;
  const bool narrow = algorithm->data[1] == 1;
  const BlasLayoutTag la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout;
  const BlasMatmulTag m = *matmul;
  if (const Result known = CheckEpilogue(m, la, ld); known != kSuccess) return known;
  if (lc.type != ld.type || lc.rows != ld.rows || lc.columns != ld.columns) return kBlasInvalid;
  const size_t element = ld.type == kReal64 ? 8 : ld.type == kReal32 ? 4 : 2;
  if (m.epilogue != kNoEpilogue && !OnDevice(reinterpret_cast<Address>(m.bias), ld.rows * element)) return kBlasInvalid;
  if (m.epilogue == kGeluAuxBias &&
      !OnDevice(reinterpret_cast<Address>(m.aux), static_cast<size_t>(m.aux_stride) * ld.columns * element))
    return kBlasInvalid;
  const auto type = [](int t) {
    return t == kReal64 ? DType::kF64 : t == kReal16 ? DType::kF16 : t == kRealB16 ? DType::kBF16 : DType::kF32;
  };
  return Enqueue(stream, [=] {
    std::memset(workspace, 0x5a, 256);
    const uint64_t inner = m.transpose[0] != 0 ? la.rows : la.columns;
    // The matrices of one product, with the rows of op(a) and the columns of op(b) one behind the other.
    std::vector<double> left(ld.rows * inner), right(ld.columns * inner);
    const auto load = [&](const BlasLayoutTag& l, const void* from, int64_t s, bool transposed,
                          std::vector<double>* to) {
      for (uint64_t c = 0; c < l.columns; ++c) {
        for (uint64_t r = 0; r < l.rows; ++r) {
          const int64_t at = s * l.batch_stride + static_cast<int64_t>(c) * l.stride + static_cast<int64_t>(r);
          const double value = LoadAsDouble(type(l.type), from, at);
          (*to)[transposed ? c * inner + r : r * inner + c] = m.compute == kComputeTf32 ? Tf32(value) : value;
        }
      }
    };
    for (int64_t s = 0; s < ld.batch; ++s) {
      load(la, a, s, m.transpose[0] != 0, &left);
      load(lb, b, s, m.transpose[1] == 0, &right);
      for (uint64_t column = 0; column < ld.columns; ++column) {
        for (uint64_t r = 0; r < ld.rows; ++r) {
          const double *const x = left.data() + r * inner, *const y = right.data() + column * inner;
          double sum = 0;
          for (uint64_t k = 0; k < inner; ++k) {
            sum += x[k] * y[k];
            if (narrow) sum = static_cast<double>(static_cast<float>(sum));
          }
          const int64_t at = s * ld.batch_stride + static_cast<int64_t>(column) * ld.stride + static_cast<int64_t>(r);
          double value = scale * sum;
          if (add != 0) value += add * LoadAsDouble(type(lc.type), c, at);
          if (m.epilogue != kNoEpilogue) value += LoadAsDouble(type(ld.type), m.bias, static_cast<int64_t>(r));
          if (m.epilogue == kGeluAuxBias)
            StoreDouble(type(ld.type), m.aux, static_cast<int64_t>(column) * m.aux_stride + static_cast<int64_t>(r),
                        value);
          if (m.epilogue == kGeluBias || m.epilogue == kGeluAuxBias)
            value *= 0.5 * (1 + std::tanh(0.7978845608028654 * value * (1 + 0.044715 * value * value)));
          StoreDouble(type(ld.type), d, at, value);
        }
      }
    }
    return kSuccess;
  });
}

}  // extern "C"
}  // namespace mslua::cuda
