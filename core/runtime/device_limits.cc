// What a device reaches, measured with the kernels that training has.
#include <algorithm>
#include <functional>
#include <vector>

#include "core/base/rng.h"
#include "core/device/cublas_matmul.h"
#include "core/device/device.h"
#include "core/device/kernel_set.h"
#include "core/op/device_text.h"
#include "core/op/registry.h"
#include "core/runtime/limits.h"

namespace mslua {
namespace {

constexpr double kLongEnough = 2e-3;  // seconds that a measured run takes

class Meter {
 public:
  explicit Meter(Device* device) : device_(device) {}
  Status Init() {
    RETURN_IF_ERROR(device_->Enter());
    ASSIGN_OR_RETURN(stream_, device_->MakeStream());
    ASSIGN_OR_RETURN(begin_, device_->MakeEvent(true));
    ASSIGN_OR_RETURN(end_, device_->MakeEvent(true));
    return absl::OkStatus();
  }

  // The best of a few runs of what `enqueue` gives to the stream, after one that is not counted.
  StatusOr<double> Seconds(const std::function<Status()>& enqueue) {
    double best = 1e9;
    for (int run = 0; run < 4; ++run) {
      RETURN_IF_ERROR(stream_.Record(begin_));
      RETURN_IF_ERROR(enqueue());
      RETURN_IF_ERROR(stream_.Record(end_));
      RETURN_IF_ERROR(end_.Wait());
      ASSIGN_OR_RETURN(const double ms, end_.MillisecondsSince(begin_));
      if (run > 0) best = std::min(best, ms * 1e-3);
    }
    return std::max(best, 1e-9);
  }

  // A second's operations of the largest product that is measured: sizes grow until it takes long enough.
  StatusOr<double> Products(DType type) {
    double rate = 0;
    for (int64_t n = 64; n <= 8192; n *= 2) {
      MatmulShape shape;
      shape.type = type;
      shape.m = shape.n = shape.k = n;
      shape.tf32 = device_->tf32().products || device_->tf32().convolutions;
      const int64_t bytes = n * n * SizeOf(type);
      ASSIGN_OR_RETURN(const DeviceMemory a, Numbers(type, bytes));
      ASSIGN_OR_RETURN(const DeviceMemory b, Numbers(type, bytes));
      ASSIGN_OR_RETURN(const DeviceMemory y, device_->Allocate(bytes));
      ASSIGN_OR_RETURN(const DeviceMemory workspace, device_->Allocate(WorkspaceOf(shape)));
      const auto library = CublasMatmul::Make(shape);
      std::vector<Kernel> kernels;
      if (absl::IsNotFound(library.status()) || absl::IsUnimplemented(library.status())) {
        const TensorType square = {type, {n, n}};
        ASSIGN_OR_RETURN(kernels, Of("matmul", {square, square}, {a.data(), b.data(), y.data()}));
      } else {
        RETURN_IF_ERROR(library.status());
      }
      ASSIGN_OR_RETURN(const double seconds, Seconds([&]() -> Status {
                         if (kernels.empty())
                           return (*library)->Enqueue(stream_, {a.data(), b.data(), y.data()}, workspace.data());
                         return Launch(kernels);
                       }));
      rate = std::max(rate, 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds);
      if (seconds >= kLongEnough) break;
    }
    return rate;
  }

  // Bytes read and written a second by y = x0 + x1, or by the driver's copy, where that is faster.
  StatusOr<double> Bandwidth() {
    double rate = 0;
    for (int64_t n = 1 << 16; n <= 1 << 28; n *= 4) {
      const TensorType type = {DType::kF32, {n}};
      const int64_t bytes = type.bytes();
      ASSIGN_OR_RETURN(const DeviceMemory memory, Numbers(type.dtype, 3 * bytes));
      char* const at = static_cast<char*>(memory.data());
      ASSIGN_OR_RETURN(const std::vector<Kernel> kernels, Of("add", {type, type}, {at, at + bytes, at + 2 * bytes}));
      ASSIGN_OR_RETURN(const double seconds, Seconds([&] { return Launch(kernels); }));
      ASSIGN_OR_RETURN(const double copy, Seconds([&] { return stream_.CopyWithin(at + 2 * bytes, at, bytes); }));
      rate = std::max({rate, 3.0 * static_cast<double>(bytes) / seconds, 2.0 * static_cast<double>(bytes) / copy});
      if (seconds >= kLongEnough) break;
    }
    return rate;
  }

  // A kernel of one element among many of a captured graph.
  StatusOr<double> LaunchSeconds() {
    constexpr int kLaunches = 200;
    const TensorType type = {DType::kF32, {1}};
    ASSIGN_OR_RETURN(const DeviceMemory memory, Numbers(type.dtype, 3 * 256));
    char* const at = static_cast<char*>(memory.data());
    ASSIGN_OR_RETURN(const std::vector<Kernel> kernels, Of("add", {type, type}, {at, at + 256, at + 512}));
    RETURN_IF_ERROR(Launch(kernels));
    RETURN_IF_ERROR(stream_.BeginCapture());
    Status made;
    for (int i = 0; i < kLaunches && made.ok(); ++i) made = Launch(kernels);
    auto graph = stream_.EndCapture();
    RETURN_IF_ERROR(made);
    RETURN_IF_ERROR(graph.status());
    ASSIGN_OR_RETURN(const double seconds, Seconds([&] { return stream_.Run(*graph); }));
    return seconds / kLaunches;
  }

  // Bytes a second into pinned memory of the host.
  StatusOr<double> Copies() {
    double rate = 0;
    for (int64_t bytes = 1 << 20; bytes <= 64 << 20; bytes *= 4) {
      ASSIGN_OR_RETURN(const DeviceMemory memory, Numbers(DType::kF32, bytes));
      ASSIGN_OR_RETURN(const PinnedMemory host, device_->AllocatePinned(bytes));
      ASSIGN_OR_RETURN(const double seconds,
                       Seconds([&] { return stream_.CopyOut(host.data(), memory.data(), bytes); }));
      rate = std::max(rate, static_cast<double>(bytes) / seconds);
    }
    return rate;
  }

 private:
  struct Kernel {
    DeviceFunction function;
    int64_t blocks;
    int threads;
    std::vector<void*> pointers;
  };

  // Normal random numbers, a piece of them again and again: a device multiplies zeros faster, for they switch no wires.
  StatusOr<DeviceMemory> Numbers(DType type, int64_t bytes) {
    constexpr int64_t kPiece = 1 << 20;
    std::vector<char> piece(static_cast<size_t>(std::min(bytes, kPiece)));
    const auto count = static_cast<int64_t>(piece.size()) / SizeOf(type);
    for (int64_t i = 0; i < count; ++i) StoreDouble(type, piece.data(), i, NormalAt(1, 0, i));
    ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes));
    char* const at = static_cast<char*>(memory.data());
    auto filled = static_cast<int64_t>(piece.size());
    RETURN_IF_ERROR(stream_.CopyIn(at, piece.data(), filled));
    RETURN_IF_ERROR(stream_.Wait());
    for (; filled < bytes; filled += std::min(filled, bytes - filled))
      RETURN_IF_ERROR(stream_.CopyWithin(at + filled, at, std::min(filled, bytes - filled)));
    return memory;
  }

  // The kernels of an operator's call with operands and results at `pointers`.
  StatusOr<std::vector<Kernel>> Of(const std::string& name, const std::vector<TensorType>& inputs,
                                   std::vector<void*> pointers) {
    const OpDef* const op = Operators().Find(name);
    Attrs attrs;
    ASSIGN_OR_RETURN(const std::vector<TensorType> outputs, CheckCall(*op, inputs, attrs));
    const OpSpec spec{attrs, inputs, outputs};
    ASSIGN_OR_RETURN(const DeviceProgram program, op->device(spec));
    ASSIGN_OR_RETURN(scratch_, device_->Allocate(std::max<int64_t>(256, program.scratch_bytes)));
    pointers.push_back(scratch_.data());
    pointers.push_back(nullptr);
    KernelSet set(device_, DevicePrelude(), KernelSet::UserFolder());
    std::vector<int> numbers;
    for (const DeviceStep& step : program.steps)
      numbers.push_back(set.Add(DeviceBody(spec, step), DevicePointers(spec)));
    RETURN_IF_ERROR(set.Compile());
    std::vector<Kernel> kernels;
    for (size_t s = 0; s < numbers.size(); ++s)
      kernels.push_back({set.function(numbers[s]), program.steps[s].blocks, program.steps[s].threads, pointers});
    return kernels;
  }
  Status Launch(const std::vector<Kernel>& kernels) {
    for (const Kernel& k : kernels) RETURN_IF_ERROR(stream_.Launch(k.function, k.blocks, k.threads, k.pointers));
    return absl::OkStatus();
  }

  Device* const device_;
  DeviceStream stream_;
  DeviceEvent begin_, end_;
  DeviceMemory scratch_;
};

}  // namespace

StatusOr<MachineLimits> MeasureDevice(Device* device) {
  Meter meter(device);
  RETURN_IF_ERROR(meter.Init());
  MachineLimits limits;
  ASSIGN_OR_RETURN(limits.f32_flops, meter.Products(DType::kF32));
  ASSIGN_OR_RETURN(limits.bf16_flops, meter.Products(DType::kBF16));
  ASSIGN_OR_RETURN(limits.f16_flops, meter.Products(DType::kF16));
  ASSIGN_OR_RETURN(limits.f64_flops, meter.Products(DType::kF64));
  ASSIGN_OR_RETURN(limits.bandwidth, meter.Bandwidth());
  ASSIGN_OR_RETURN(limits.launch_seconds, meter.LaunchSeconds());
  ASSIGN_OR_RETURN(limits.copy_bandwidth, meter.Copies());
  return limits;
}

}  // namespace mslua
