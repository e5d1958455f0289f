// What the emulated driver (emulated_cuda.cc) gives to the emulated libraries in other files of the same object.
#pragma once

#include <functional>

#include "core/device/cuda_api.h"

namespace mslua::cuda {

inline constexpr Result kFaked = 999;    // of a failure that a test asked for
inline constexpr Result kWaiting = -10;  // of work that waits for another process: it is called again

using Work = std::function<Result()>;
// `ready` is asked first, while memory cannot be touched. Work of a captured step cannot wait: an error.
Result EnqueueWork(StreamHandle stream, Work work, std::function<bool()> ready);
// Work that may be captured.
Result EnqueueKernel(StreamHandle stream, Work work);
// Whether this call of the function is to fail.
bool Fails(const char* name);
bool InDeviceMemory(const void* p, size_t bytes);
// Communicators that are held.
void CountComms(int by);
// Descriptors of libraries that are held.
void CountDescriptors(int by);
// The device in use.
int OrdinalInUse();

}  // namespace mslua::cuda
