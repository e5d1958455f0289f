// The floor of a small collective of two ranks: what two cores need for writing a line each and reading the other's,
// in turn over eight lines, as the ranks' board does. Prints microseconds an exchange.
//
//   bazel run //bench/collectives:exchange
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

namespace {

constexpr int kLines = 8, kExchanges = 1000000, kParts = 9;

struct alignas(128) Line {
  std::atomic<uint32_t> posted{0};
  float value = 0;
};
Line lines[2][kLines];

void Exchange(int me, uint32_t from, float* sum) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(me, &core);
  sched_setaffinity(0, sizeof core, &core);
  for (uint32_t i = from; i < from + kExchanges; ++i) {
    Line &mine = lines[me][i % kLines], &other = lines[1 - me][i % kLines];
    mine.value = static_cast<float>(i);
    mine.posted.store(i, std::memory_order_release);
    while (other.posted.load(std::memory_order_acquire) != i) {
    }
    *sum += mine.value + other.value;
  }
}

}  // namespace

int main() {
  double parts[kParts];
  float sums[2] = {0, 0};
  for (int part = 0; part < kParts; ++part) {
    const uint32_t from = 1 + static_cast<uint32_t>(part) * kExchanges;
    const auto begin = std::chrono::steady_clock::now();
    std::thread other(Exchange, 1, from, &sums[1]);
    Exchange(0, from, &sums[0]);
    other.join();
    parts[part] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kExchanges;
  }
  std::sort(parts, parts + kParts);
  std::printf("{\"bench\": \"exchange\", \"us\": %.3f, \"median_us\": %.3f}\n", parts[0] * 1e6,
              parts[kParts / 2] * 1e6);
  return sums[0] == sums[1] ? 0 : 1;
}
