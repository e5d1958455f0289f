#include "core/base/parallel_for.h"

#include <algorithm>

#ifdef MSLUA_TSAN
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

#include "core/base/processor.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {
thread_local int compute_threads = 0;
}  // namespace

int ComputeThreads() {
  if (compute_threads == 0) {
#ifdef MSLUA_TSAN
    compute_threads = std::max(1u, std::thread::hardware_concurrency());
#else
    compute_threads = omp_get_max_threads();
#endif
  }
  return compute_threads;
}

void SetComputeThreads(int threads) {
  compute_threads = std::max(1, threads);
#ifndef MSLUA_TSAN
  omp_set_num_threads(compute_threads);  // the calling thread's; oneDNN follows it
#endif
}

void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = CeilDiv(n, grain);
  const int64_t threads = std::min<int64_t>(ComputeThreads(), chunks);
  if (threads <= 1) {
    body(0, n);
    return;
  }
  auto run = [&](int64_t t) {
    const int64_t begin = std::min(n, chunks * t / threads * grain);
    const int64_t end = std::min(n, chunks * (t + 1) / threads * grain);
    if (begin < end) body(begin, end);
  };
#ifdef MSLUA_TSAN
  std::vector<std::thread> workers;
  for (int64_t t = 1; t < threads; ++t) workers.emplace_back(run, t);
  run(0);
  for (std::thread& w : workers) w.join();
#else
  const bool flush = FlushesDenormals();
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    // A thread of the team may be older than the caller's setting.
    if (FlushesDenormals() != flush) FlushDenormals(flush);
    // The team may be smaller than asked for (nested regions, limits): stride over the shares.
    for (int64_t t = omp_get_thread_num(); t < threads; t += omp_get_num_threads()) run(t);
  }
#endif
}

void SetDenormals(bool keep) {
  FlushDenormals(!keep);
#ifndef MSLUA_TSAN
#pragma omp parallel num_threads(ComputeThreads())
  FlushDenormals(!keep);
#endif
}

}  // namespace mslua
