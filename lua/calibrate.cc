#include "lua/calibrate.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/backends/native/native.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/parallel_for.h"
#include "core/device/device.h"
#include "core/runtime/limits.h"
#include "core/sharding/search/cluster.h"
#include "lua/open_session.h"
#include "rendezvous/stale_folders.h"

namespace mslua {
namespace {

namespace fs = std::filesystem;

constexpr int kRepeats = 5;

// The shortest of some runs, in seconds.
template <class F>
double Shortest(const F& run) {
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Of one rank with one thread: a product of 512 x 512 matrices.
StatusOr<double> FlopsPerSecond() {
  ASSIGN_OR_RETURN(const auto session, OpenSession({}));
  SetComputeThreads(1);
  RETURN_IF_ERROR(
      session->RunText("local core = require 'mslua.core' require 'mslua' local x = core.ones({512, 512}) "
                       "function calibrate(n) for i = 1, n do core.functions.matmul(x, x) end end calibrate(1)",
                       "=calibrate"));
  Status status;
  const int products = 8;
  const double seconds =
      Shortest([&] { status = session->RunText(absl::StrCat("calibrate(", products, ")"), "=calibrate"); });
  RETURN_IF_ERROR(status);
  return products * 2.0 * 512 * 512 * 512 / seconds;
}

struct MemoryRates {
  double bytes_per_second, copy_seconds_per_byte;
};

// Larger than caches are.
MemoryRates MeasureMemory() {
  constexpr size_t kFloats = 16 << 20;
  std::vector<float> a(kFloats, 1), b(kFloats, 2), c(kFloats, 0);
  const double add = Shortest([&] {
    for (size_t i = 0; i < kFloats; ++i) c[i] = a[i] + b[i];
  });
  const double copy = Shortest([&] { std::memcpy(c.data(), a.data(), kFloats * sizeof(float)); });
  const double bytes = static_cast<double>(kFloats * sizeof(float));
  return {3 * bytes / add, copy / bytes};
}

struct MessageTimes {
  double small = 0, large = 0;  // seconds of an all-reduce of one number, and of kLarge bytes
};
constexpr int64_t kLarge = 8 << 20;

// What two ranks of this machine take, of which this is one.
Status MeasureMessages(const std::string& folder, int rank, MessageTimes* times) {
  NativeOptions options;
  options.rank = rank;
  options.size = 2;
  options.folder = folder;
  ASSIGN_OR_RETURN(const auto world, MakeNativeWorld(options));
  ASSIGN_OR_RETURN(void* const shared, world->AllocateShared(kLarge, "calibrate"));
  Status status;
  const auto reduce = [&](int64_t floats, int count) {
    for (int i = 0; i < count && status.ok(); ++i)
      status = world->Run(Call::AllReduce(ReduceOp::kSum, DType::kF32, shared, shared, floats));
  };
  constexpr int kSmall = 100;
  times->small = Shortest([&] { reduce(1, kSmall); }) / kSmall;
  times->large = Shortest([&] { reduce(kLarge / 4, 1); });
  return status;
}

StatusOr<MessageTimes> MeasureMessages() {
  ASSIGN_OR_RETURN(const std::string folder, MakeHeldFolder("calibrate"));
  MessageTimes times[2];
  Status first, second;
  std::thread other([&] { second = MeasureMessages(folder, 1, &times[1]); });
  first = MeasureMessages(folder, 0, &times[0]);
  other.join();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  RETURN_IF_ERROR(first);
  RETURN_IF_ERROR(second);
  return times[0];
}

}  // namespace

Status Calibrate() {
  ASSIGN_OR_RETURN(const double flops, FlopsPerSecond());
  const MemoryRates memory = MeasureMemory();
  ASSIGN_OR_RETURN(const MessageTimes messages, MeasureMessages());
  // As CostOf says of an all-reduce between two: three starts, and as many bytes received as there are.
  const double start = messages.small / 3;
  const double byte = std::max(1e-12, (messages.large - messages.small) / static_cast<double>(kLarge));
  const std::string text = absl::StrFormat(
      "{\"flops_per_second\": %.4g, \"bytes_per_second\": %.4g, \"copy_seconds_per_byte\": %.4g,\n"
      " \"axes\": [{\"seconds\": %.4g, \"seconds_per_byte\": %.4g}]}\n",
      flops, memory.bytes_per_second, memory.copy_seconds_per_byte, start, byte);
  const std::string path = MeasuredClusterFile();
  RETURN_IF_ERROR(MakeFolders(path.substr(0, path.rfind('/'))));
  RETURN_IF_ERROR(WriteFileAtomically(path, text));
  std::printf(
      "arithmetic  %.1f Gflop/s of one thread\nmemory      %.1f GB/s, copies %.1f GB/s\n"
      "messages    %.1f us to start, %.2f GB/s between two ranks of this machine\nwritten to %s\n",
      flops * 1e-9, memory.bytes_per_second * 1e-9, 1e-9 / memory.copy_seconds_per_byte, start * 1e6, 1e-9 / byte,
      path.c_str());
  return absl::OkStatus();
}

Status CalibrateDevice() {
  RETURN_IF_ERROR(CheckDevices());
  ASSIGN_OR_RETURN(Device* const device, Device::Open(0));
  ASSIGN_OR_RETURN(const MachineLimits l, MeasureDevice(device));
  // Staged through the host: out of one device, into the other.
  const std::string text = absl::StrFormat(
      "{\"flops_per_second\": {\"f32\": %.4g, \"f64\": %.4g, \"bf16\": %.4g, \"f16\": %.4g}, \"bytes_per_second\": "
      "%.4g,\n"
      " \"launch_seconds\": %.4g, \"memory_bytes\": %d, \"copy_seconds_per_byte\": %.4g,\n"
      " \"axes\": [{\"seconds\": %.4g, \"seconds_per_byte\": %.4g}]}\n",
      l.f32_flops, l.f64_flops, l.bf16_flops, l.f16_flops, l.bandwidth, l.launch_seconds, device->info().memory_bytes,
      2 / l.bandwidth, 10 * l.launch_seconds, 2 / l.copy_bandwidth);
  const std::string path = MeasuredDeviceFile();
  RETURN_IF_ERROR(MakeFolders(path.substr(0, path.rfind('/'))));
  RETURN_IF_ERROR(WriteFileAtomically(path, text));
  std::printf(
      "device      %d: %s\narithmetic  %.4g TFLOP/s f32, %.4g bf16, %.4g f16, %.4g f64\n"
      "memory      %.4g GB/s, %.4g GB/s to the host\nlaunches    %.3g us each\nwritten to %s\n",
      device->info().ordinal, device->info().name.c_str(), l.f32_flops * 1e-12, l.bf16_flops * 1e-12,
      l.f16_flops * 1e-12, l.f64_flops * 1e-12, l.bandwidth * 1e-9, l.copy_bandwidth * 1e-9, l.launch_seconds * 1e6,
      path.c_str());
  return absl::OkStatus();
}

}  // namespace mslua
