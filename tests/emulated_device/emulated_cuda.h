// What the emulated driver (emulated_cuda.cc) gives to the emulated libraries in other files of the same object.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

#include "core/device/cuda_api.h"

namespace mslua::cuda {

inline constexpr Result kFaked = 999;    // of a failure that a test asked for
inline constexpr Result kWaiting = -10;  // of work that waits for another process: it is called again

using Work = std::function<Result()>;
// `ready` is asked first, while memory cannot be touched.
struct WaitingWork {
  Work work;  // null: there is none
  std::function<bool()> ready;
};
// `make` is called at once, and of a captured step whenever it is launched.
Result EnqueueWork(StreamHandle stream, std::function<WaitingWork()> make);
Result EnqueueKernel(StreamHandle stream, Work work);
// Whether this thread captures a step.
bool Captures();
// Whether this call of the function is to fail.
bool Fails(const char* name);
bool InDeviceMemory(const void* p, size_t bytes);
// Communicators that are held.
void CountComms(int by);
// Descriptors of libraries that are held.
void CountDescriptors(int by);
// The device in use.
int OrdinalInUse();
// An operand of float32 as tensor cores take it.
inline double Tf32(double value) {
  const auto f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  bits &= 0xffffe000u;
  float rounded;
  std::memcpy(&rounded, &bits, sizeof rounded);
  return static_cast<double>(rounded);
}

}  // namespace mslua::cuda
