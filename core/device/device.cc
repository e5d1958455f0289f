#include "core/device/device.h"

#include <array>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

cuda::Address AddressOf(const void* p) { return reinterpret_cast<cuda::Address>(p); }

Status Unusable(const std::string& why) { return WithExitCode(absl::FailedPreconditionError(why), kExitEnvironment); }

constexpr int kOldestDriver = 12000;
constexpr int kOldestArchitecture = 80;  // bf16 in hardware

}  // namespace

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr && device_->Enter().ok()) device_->driver().call.cuMemFree_v2(AddressOf(data_));
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  return *this;
}
PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr && device_->Enter().ok()) device_->driver().call.cuMemFreeHost(data_);
}

CapturedGraph& CapturedGraph::operator=(CapturedGraph&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(exec_, other.exec_);
  return *this;
}
CapturedGraph::~CapturedGraph() {
  if (exec_ != nullptr) driver_->cuGraphExecDestroy(exec_);
}

DeviceEvent& DeviceEvent::operator=(DeviceEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}
DeviceEvent::~DeviceEvent() {
  if (handle_ != nullptr && device_->Enter().ok()) device_->driver().call.cuEventDestroy_v2(handle_);
}
StatusOr<bool> DeviceEvent::Reached() const {
  const cuda::Result result = device_->driver().call.cuEventQuery(handle_);
  if (result == cuda::kNotReady) return false;
  RETURN_IF_ERROR(cuda::Check(result, "cuEventQuery"));
  return true;
}
Status DeviceEvent::Wait() const {
  RETURN_IF_CUDA_ERROR(device_->driver(), cuEventSynchronize, handle_);
  return absl::OkStatus();
}
StatusOr<double> DeviceEvent::MillisecondsSince(const DeviceEvent& begin) const {
  float ms = 0;
  RETURN_IF_CUDA_ERROR(device_->driver(), cuEventElapsedTime, &ms, begin.handle_, handle_);
  return ms;
}

DeviceStream& DeviceStream::operator=(DeviceStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}
DeviceStream::~DeviceStream() {
  if (handle_ != nullptr && device_->Enter().ok()) device_->driver().call.cuStreamDestroy_v2(handle_);
}

Status DeviceStream::Launch(DeviceFunction function, int64_t blocks, int threads, absl::Span<void* const> pointers) {
  void* parameter = const_cast<void*>(static_cast<const void*>(pointers.data()));
  RETURN_IF_CUDA_ERROR(device_->driver(), cuLaunchKernel, function.handle, static_cast<unsigned>(blocks), 1, 1,
                       static_cast<unsigned>(threads), 1, 1, 0, handle_, &parameter, nullptr);
  return absl::OkStatus();
}
Status DeviceStream::CopyIn(void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_CUDA_ERROR(device_->driver(), cuMemcpyHtoDAsync_v2, AddressOf(device), host, static_cast<size_t>(bytes),
                       handle_);
  return absl::OkStatus();
}
Status DeviceStream::CopyOut(void* host, const void* device, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_CUDA_ERROR(device_->driver(), cuMemcpyDtoHAsync_v2, host, AddressOf(device), static_cast<size_t>(bytes),
                       handle_);
  return absl::OkStatus();
}
Status DeviceStream::CopyWithin(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_CUDA_ERROR(device_->driver(), cuMemcpyDtoDAsync_v2, AddressOf(to), AddressOf(from),
                       static_cast<size_t>(bytes), handle_);
  return absl::OkStatus();
}
Status DeviceStream::CopyRows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
                              int64_t rows) {
  if (bytes == 0 || rows == 0) return absl::OkStatus();
  cuda::Copy2D copy = {};
  copy.from_type = copy.to_type = cuda::kOnDevice;
  copy.from = AddressOf(from);
  copy.from_pitch = static_cast<size_t>(from_pitch);
  copy.to = AddressOf(to);
  copy.to_pitch = static_cast<size_t>(to_pitch);
  copy.width = static_cast<size_t>(bytes);
  copy.height = static_cast<size_t>(rows);
  RETURN_IF_CUDA_ERROR(device_->driver(), cuMemcpy2DAsync_v2, &copy, handle_);
  return absl::OkStatus();
}
Status DeviceStream::Fill(void* device, uint8_t value, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_CUDA_ERROR(device_->driver(), cuMemsetD8Async, AddressOf(device), value, static_cast<size_t>(bytes),
                       handle_);
  return absl::OkStatus();
}
Status DeviceStream::Wait() {
  if (handle_ == nullptr) return absl::OkStatus();
  RETURN_IF_CUDA_ERROR(device_->driver(), cuStreamSynchronize, handle_);
  return absl::OkStatus();
}
StatusOr<bool> DeviceStream::Done() const {
  if (handle_ == nullptr) return true;
  const cuda::Result result = device_->driver().call.cuStreamQuery(handle_);
  if (result == cuda::kNotReady) return false;
  RETURN_IF_ERROR(cuda::Check(result, "cuStreamQuery"));
  return true;
}
Status DeviceStream::Record(DeviceEvent& event) {
  RETURN_IF_CUDA_ERROR(device_->driver(), cuEventRecord, event.handle_, handle_);
  return absl::OkStatus();
}
Status DeviceStream::WaitFor(const DeviceEvent& event) {
  RETURN_IF_CUDA_ERROR(device_->driver(), cuStreamWaitEvent, handle_, event.handle_, 0);
  return absl::OkStatus();
}
Status DeviceStream::RecordInLaunches(DeviceEvent& event) {
  RETURN_IF_CUDA_ERROR(device_->driver(), cuEventRecordWithFlags, event.handle_, handle_, cuda::kEventRecordExternal);
  return absl::OkStatus();
}
Status DeviceStream::BeginCapture() {
  RETURN_IF_CUDA_ERROR(device_->driver(), cuStreamBeginCapture_v2, handle_, cuda::kCaptureThreadLocal);
  return absl::OkStatus();
}
StatusOr<CapturedGraph> DeviceStream::EndCapture() {
  const auto& driver = device_->driver();
  cuda::GraphHandle graph = nullptr;
  RETURN_IF_CUDA_ERROR(driver, cuStreamEndCapture, handle_, &graph);
  CapturedGraph captured;
  captured.driver_ = &driver.call;
  const Status made =
      cuda::Check(driver.call.cuGraphInstantiateWithFlags(&captured.exec_, graph, 0), "cuGraphInstantiateWithFlags");
  const Status freed = cuda::Check(driver.call.cuGraphDestroy(graph), "cuGraphDestroy");
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(freed);
  return captured;
}
Status DeviceStream::Run(const CapturedGraph& graph) {
  RETURN_IF_CUDA_ERROR(device_->driver(), cuGraphLaunch, graph.exec_, handle_);
  return absl::OkStatus();
}

StatusOr<int> Device::Count() {
  ASSIGN_OR_RETURN(const auto* driver, cuda::OpenDriver());
  const cuda::Result started = driver->call.cuInit(0);
  if (started == cuda::kNoDevice) return 0;
  RETURN_IF_ERROR(cuda::Check(started, "cuInit"));
  int count = 0;
  RETURN_IF_CUDA_ERROR(*driver, cuDeviceGetCount, &count);
  return count;
}

namespace {

StatusOr<DeviceInfo> InfoOf(const cuda::Library<cuda::Driver>& driver, int ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  cuda::Ordinal id = 0;
  RETURN_IF_CUDA_ERROR(driver, cuDeviceGet, &id, ordinal);
  std::array<char, 256> name = {};
  RETURN_IF_CUDA_ERROR(driver, cuDeviceGetName, name.data(), static_cast<int>(name.size()) - 1, id);
  info.name = name.data();
  size_t bytes = 0;
  RETURN_IF_CUDA_ERROR(driver, cuDeviceTotalMem_v2, &bytes, id);
  info.memory_bytes = static_cast<int64_t>(bytes);
  int major = 0, minor = 0;
  RETURN_IF_CUDA_ERROR(driver, cuDeviceGetAttribute, &info.multiprocessors, cuda::kMultiprocessorCount, id);
  RETURN_IF_CUDA_ERROR(driver, cuDeviceGetAttribute, &major, cuda::kComputeCapabilityMajor, id);
  RETURN_IF_CUDA_ERROR(driver, cuDeviceGetAttribute, &minor, cuda::kComputeCapabilityMinor, id);
  info.architecture = absl::StrCat("sm_", 10 * major + minor);
  info.usable = 10 * major + minor >= kOldestArchitecture;
  return info;
}

}  // namespace

StatusOr<std::vector<DeviceInfo>> ListDevices() {
  ASSIGN_OR_RETURN(const int count, Device::Count());
  ASSIGN_OR_RETURN(const auto* driver, cuda::OpenDriver());
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(devices.emplace_back(), InfoOf(*driver, i));
  }
  return devices;
}

StatusOr<std::unique_ptr<Device>> Device::Make(int ordinal) {
  ASSIGN_OR_RETURN(const int count, Count());
  if (count == 0)
    return Unusable(
        "the driver finds no NVIDIA device (is one in this machine, and does CUDA_VISIBLE_DEVICES show it?)");
  if (ordinal < 0 || ordinal >= count)
    return Unusable(absl::StrCat("device_id is ", ordinal, ", but this machine has ", count,
                                 count == 1 ? " device (0)" : absl::StrCat(" devices (0 to ", count - 1, ")")));
  auto device = std::make_unique<Device>();
  ASSIGN_OR_RETURN(device->driver_, cuda::OpenDriver());
  const auto& driver = *device->driver_;
  int version = 0;  // 12080 is CUDA 12.8
  RETURN_IF_CUDA_ERROR(driver, cuDriverGetVersion, &version);
  if (version < kOldestDriver)
    return Unusable(absl::StrCat("the driver ", driver.path, " is of CUDA ", version / 1000, ".", version % 1000 / 10,
                                 ": mslua needs CUDA 12.0 or newer"));
  ASSIGN_OR_RETURN(device->info_, InfoOf(driver, ordinal));
  if (!device->info_.usable)
    return Unusable(absl::StrCat("device ", ordinal, " (", device->info_.name, ", ", device->info_.architecture,
                                 "): mslua needs compute capability 8.0 or newer"));
  cuda::Ordinal id = 0;
  RETURN_IF_CUDA_ERROR(driver, cuDeviceGet, &id, ordinal);
  RETURN_IF_CUDA_ERROR(driver, cuDevicePrimaryCtxRetain, &device->context_, id);
  RETURN_IF_ERROR(device->Enter());
  return device;
}

StatusOr<Device*> Device::Open(int ordinal) {
  static std::mutex mutex;
  // Never freed: the driver may be gone before static objects are.
  static Device* opened = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (opened == nullptr) {
    ASSIGN_OR_RETURN(auto device, Make(ordinal));
    opened = device.release();
  }
  if (opened->info_.ordinal != ordinal)
    return absl::FailedPreconditionError(absl::StrCat("device ", opened->info_.ordinal,
                                                      " is in use by this process; device ", ordinal,
                                                      " needs another one (mslua run -n)"));
  RETURN_IF_ERROR(opened->Enter());
  return opened;
}

Status Device::Enter() {
  RETURN_IF_CUDA_ERROR(*driver_, cuCtxSetCurrent, context_);
  return absl::OkStatus();
}

StatusOr<int64_t> Device::FreeBytes() {
  size_t free = 0, total = 0;
  RETURN_IF_CUDA_ERROR(*driver_, cuMemGetInfo_v2, &free, &total);
  return static_cast<int64_t>(free);
}

StatusOr<DeviceMemory> Device::Allocate(int64_t bytes) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  cuda::Address address = 0;
  RETURN_IF_CUDA_ERROR(*driver_, cuMemAlloc_v2, &address, static_cast<size_t>(bytes));
  memory.device_ = this;
  memory.data_ = reinterpret_cast<void*>(address);
  memory.bytes_ = bytes;
  return memory;
}

StatusOr<PinnedMemory> Device::AllocatePinned(int64_t bytes) {
  PinnedMemory memory;
  if (bytes == 0) return memory;
  RETURN_IF_CUDA_ERROR(*driver_, cuMemHostAlloc, &memory.data_, static_cast<size_t>(bytes), 0);
  memory.device_ = this;
  return memory;
}

StatusOr<DeviceStream> Device::MakeStream() {
  DeviceStream stream;
  RETURN_IF_CUDA_ERROR(*driver_, cuStreamCreate, &stream.handle_, cuda::kStreamNonBlocking);
  stream.device_ = this;
  return stream;
}

StatusOr<DeviceEvent> Device::MakeEvent(bool timed) {
  DeviceEvent event;
  RETURN_IF_CUDA_ERROR(*driver_, cuEventCreate, &event.handle_, timed ? 0 : cuda::kEventDisableTiming);
  event.device_ = this;
  return event;
}

StatusOr<cuda::Uuid> Device::Identifier() {
  cuda::Ordinal id = 0;
  RETURN_IF_CUDA_ERROR(*driver_, cuDeviceGet, &id, info_.ordinal);
  cuda::Uuid uuid = {};
  RETURN_IF_CUDA_ERROR(*driver_, cuDeviceGetUuid_v2, &uuid, id);
  return uuid;
}

StatusOr<std::vector<DeviceFunction>> Device::Load(const std::string& cubin, absl::Span<const std::string> names) {
  cuda::Module module = nullptr;
  RETURN_IF_CUDA_ERROR(*driver_, cuModuleLoadData, &module, cubin.data());
  std::vector<DeviceFunction> functions(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    DeviceFunction& f = functions[i];
    RETURN_IF_CUDA_ERROR(*driver_, cuModuleGetFunction, &f.handle, module, names[i].c_str());
    RETURN_IF_CUDA_ERROR(*driver_, cuFuncGetAttribute, &f.registers, cuda::kFunctionRegisters, f.handle);
    RETURN_IF_CUDA_ERROR(*driver_, cuFuncGetAttribute, &f.shared_bytes, cuda::kFunctionShared, f.handle);
    RETURN_IF_CUDA_ERROR(*driver_, cuFuncGetAttribute, &f.spilled_bytes, cuda::kFunctionLocal, f.handle);
  }
  return functions;
}

Status CheckDevices() {
  const auto count = Device::Count();
  RETURN_IF_ERROR(count.status());
  if (*count == 0)
    return WithExitCode(absl::FailedPreconditionError("the driver finds no NVIDIA device in this machine"),
                        kExitEnvironment);
  return cuda::OpenNvrtc().status();
}

}  // namespace mslua
