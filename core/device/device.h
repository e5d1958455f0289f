// An accelerator: its memory, its streams, its kernels. One device a process, opened at the first use.
//
// A handle frees what it has when it goes. Functions return the driver's errors, with the function that failed. Work on
// a stream runs in order, after the call has returned; only Wait and the blocking copies wait for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/device/cuda_api.h"
#include "core/device/libraries.h"

namespace mslua {

class Device;

// Memory of the device: an address that host code must not read.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Host memory that the device copies from and to without an intermediate copy.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();
  void* data() const { return data_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  void* data_ = nullptr;
};

// A function of a module, ready to be launched, and what the compiler gave it.
struct DeviceFunction {
  cuda::Function handle = nullptr;
  int registers = 0, shared_bytes = 0, spilled_bytes = 0;
};

// Captured work, which DeviceStream::Run enqueues as one launch.
class CapturedGraph {
 public:
  CapturedGraph() = default;
  CapturedGraph(CapturedGraph&& other) noexcept { *this = std::move(other); }
  CapturedGraph& operator=(CapturedGraph&& other) noexcept;
  ~CapturedGraph();
  explicit operator bool() const { return exec_ != nullptr; }

 private:
  friend class DeviceStream;
  const cuda::Driver* driver_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
};

// A place in a stream's work, which others can wait for.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(DeviceEvent&& other) noexcept { *this = std::move(other); }
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent();
  // Whether the work before it has run. Does not wait.
  StatusOr<bool> Reached() const;
  Status Wait() const;
  // Between two that MakeEvent(true) has made, once both are reached.
  StatusOr<double> MillisecondsSince(const DeviceEvent& begin) const;

 private:
  friend class Device;
  friend class DeviceStream;
  Device* device_ = nullptr;
  cuda::EventHandle handle_ = nullptr;
};

class DeviceStream {
 public:
  DeviceStream() = default;
  DeviceStream(DeviceStream&& other) noexcept { *this = std::move(other); }
  DeviceStream& operator=(DeviceStream&& other) noexcept;
  ~DeviceStream();

  // Launches `blocks` blocks of `threads` threads. `pointers` is the kernel's one parameter, an array by value.
  Status Launch(DeviceFunction function, int64_t blocks, int threads, absl::Span<void* const> pointers);
  Status CopyIn(void* device, const void* host, int64_t bytes);
  Status CopyOut(void* host, const void* device, int64_t bytes);
  Status CopyWithin(void* to, const void* from, int64_t bytes);
  // `rows` rows of `bytes` bytes, which begin `to_pitch` and `from_pitch` bytes apart.
  Status CopyRows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes, int64_t rows);
  Status Fill(void* device, uint8_t value, int64_t bytes);
  // Waits until all that was enqueued has run; a stream that was never made has nothing.
  Status Wait();
  // Whether all that was enqueued has run. Does not wait.
  StatusOr<bool> Done() const;
  // What is enqueued after WaitFor runs after what Record's stream had been given before Record.
  Status Record(DeviceEvent& event);
  Status WaitFor(const DeviceEvent& event);
  // Between the two nothing runs: what is enqueued becomes the graph, and what other streams get that wait for an event
  // of it; this one has to wait for them. Nothing may be allocated, waited for or asked meanwhile.
  Status BeginCapture();
  // In a capture: each launch of the graph records the event, for others than the graph.
  Status RecordInLaunches(DeviceEvent& event);
  StatusOr<CapturedGraph> EndCapture();
  Status Run(const CapturedGraph& graph);
  cuda::StreamHandle handle() const { return handle_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  cuda::StreamHandle handle_ = nullptr;
};

// Which operations of float32 may take operands rounded to TF32, 10 bits after the point, on tensor cores. Sums stay
// float32. By default none.
struct Tf32 {
  bool convolutions = false, products = false;
};

// What the driver says of a device.
struct DeviceInfo {
  int ordinal = 0, multiprocessors = 0;
  std::string name, architecture;  // "sm_90"
  int64_t memory_bytes = 0;
  bool usable = false;  // new enough for mslua: compute capability 8.0
};
// All devices of the machine, in the driver's order.
StatusOr<std::vector<DeviceInfo>> ListDevices();

// Why graphs cannot run on a device here: a library or a device is missing. Takes no device.
Status CheckDevices();

class Device {
 public:
  // The device of this process: the one that was opened first. Another ordinal later is an error.
  static StatusOr<Device*> Open(int ordinal);
  // How many devices the driver has.
  static StatusOr<int> Count();

  // Makes the device's context that of the calling thread: before anything else there.
  Status Enter();
  StatusOr<DeviceMemory> Allocate(int64_t bytes);
  StatusOr<PinnedMemory> AllocatePinned(int64_t bytes);
  StatusOr<DeviceStream> MakeStream();
  StatusOr<DeviceEvent> MakeEvent(bool timed = false);
  // Loads a compiled module, which stays loaded, and finds functions in it by name.
  StatusOr<std::vector<DeviceFunction>> Load(const std::string& cubin, absl::Span<const std::string> names);

  // Launches are made one by one, waited for and checked: ms.set_context { device_check = true }.
  void CheckLaunches(bool check) { checks_launches_ = check; }
  bool checks_launches() const { return checks_launches_; }
  // For what is compiled from now on: ms.set_context { gpu_config = ... }.
  void AllowTf32(Tf32 allowed) { tf32_ = allowed; }
  const Tf32& tf32() const { return tf32_; }

  const DeviceInfo& info() const { return info_; }
  StatusOr<int64_t> FreeBytes();
  // 16 bytes that no other device has, whichever numbers processes give to devices.
  StatusOr<cuda::Uuid> Identifier();
  const cuda::Library<cuda::Driver>& driver() const { return *driver_; }

 private:
  static StatusOr<std::unique_ptr<Device>> Make(int ordinal);

  const cuda::Library<cuda::Driver>* driver_ = nullptr;
  cuda::Context context_ = nullptr;
  DeviceInfo info_;
  bool checks_launches_ = false;
  Tf32 tf32_;
};

}  // namespace mslua
