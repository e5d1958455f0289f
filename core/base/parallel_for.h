// ParallelFor: all compute threads are used through it. It runs on libgomp's team in normal builds, on std::thread
// under --config=tsan, and on the calling thread alone below a size threshold.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace mslua {

// Threads that the calling thread's next regions use; >= 1. The limit belongs to the calling thread
// (a rank), so that ranks that are threads of one process do not disturb each other.
int ComputeThreads();
void SetComputeThreads(int threads);

// Calls body(begin, end) on disjoint ranges that cover [0, n), one range per thread, split at multiples
// of `grain` (>= 1): with n <= grain everything runs on the caller. Returns when all are done.
// The split depends on n, grain and ComputeThreads() only, so results are repeatable. All threads treat denormals as
// the caller does (FlushDenormals).
void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body);

// Whether denormals are numbers (`keep`) or zero, in the calling thread and in those that compute for it, oneDNN's too.
void SetDenormals(bool keep);

}  // namespace mslua
