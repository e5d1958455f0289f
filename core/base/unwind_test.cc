#include "core/base/unwind.h"

#include <execinfo.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/debugging/symbolize.h"
#include "core/base/testing/bad_table.h"

namespace mslua {
namespace {

constexpr int kFrames = 64;

StackCopy stack;
void* theirs[kFrames];
int their_count = 0;
bool compares = false;
std::atomic<int> copies{0};

void OnSignal(int, siginfo_t*, void* context) {
  stack.Take(context);
  if (compares) their_count = backtrace(theirs, kFrames);
  ++copies;
}

// The program counters of a thread that does `work` until its argument is not 0, at some moment.
std::vector<uintptr_t> StackOf(const std::function<void(const std::atomic<int>*)>& work) {
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  std::atomic<int> begun{0}, end{0};
  std::thread thread([&] {
    begun = 1;
    work(&end);
  });
  while (begun == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int before = copies;
  pthread_kill(thread.native_handle(), SIGUSR2);
  while (copies == before) std::this_thread::yield();
  end = 1;
  thread.join();
  uintptr_t pcs[kFrames];
  const int count = Unwind(stack, pcs, kFrames);
  return std::vector<uintptr_t>(pcs, pcs + count);
}

std::string NameOf(uintptr_t pc) {
  static const bool ready = (absl::InitializeSymbolizer("/proc/self/exe"), true);
  char name[512] = "";
  return ready && absl::Symbolize(reinterpret_cast<void*>(pc), name, sizeof name) ? name : "";
}

[[gnu::noinline]] void Inner(const std::atomic<int>* end) {
  while (*end == 0) {
  }
}
[[gnu::noinline]] int Middle(const std::atomic<int>* end, int n) {
  volatile char room[1000];
  room[n % 1000] = 1;
  Inner(end);
  return room[0];
}
[[gnu::noinline]] int Outer(const std::atomic<int>* end) { return Middle(end, 3) + 1; }

TEST(Unwind, HasTheCallsInOrder) {
  const std::vector<uintptr_t> pcs = StackOf([](const std::atomic<int>* end) { Outer(end); });
  size_t found = 0;
  const char* const names[] = {"Inner", "Middle", "Outer"};
  for (size_t i = 0; i < pcs.size() && found < 3; ++i) {
    if (NameOf(pcs[i] - (i > 0 ? 1 : 0)).find(names[found]) != std::string::npos) ++found;
  }
  EXPECT_EQ(found, 3u) << pcs.size() << " frames";
}

#if !defined(MSLUA_TSAN)  // which delays signals

TEST(Unwind, IsWhatTheSystemsUnwinderGives) {
  void* first;
  backtrace(&first, 1);
  compares = true;
  for (int trial = 0; trial < 40; ++trial) {
    const std::vector<uintptr_t> pcs = StackOf([](const std::atomic<int>* end) {
      std::vector<int> numbers(1000);
      char text[100];
      for (int i = 0; *end == 0; ++i) {
        for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<int>(k * 7919 % 1009);
        std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return a % 100 < b % 100; });
        std::snprintf(text, sizeof text, "%d %g", numbers[1], 1.0 / i);
      }
    });
    ASSERT_GT(their_count, 2);
    ASSERT_FALSE(pcs.empty());
    // Their first ones are those of the handler.
    const auto at = std::find(theirs, theirs + their_count, reinterpret_cast<void*>(pcs[0]));
    const std::vector<uintptr_t> want(reinterpret_cast<uintptr_t*>(at),
                                      reinterpret_cast<uintptr_t*>(theirs + their_count));
    EXPECT_EQ(pcs, want);
  }
  compares = false;
}

#endif

TEST(Unwind, EndsAtATableThatIsWrong) {
  const std::vector<uintptr_t> pcs = StackOf(SpinsWithABadTable);
  ASSERT_EQ(pcs.size(), 1u);
  EXPECT_EQ(NameOf(pcs[0]), "SpinsWithABadTable");
}

TEST(Unwind, EndsAtCodeThatWasCompiledMeanwhile) {
  constexpr size_t kSize = 4096;
  // pause; cmpl $0, (%rdi); je to the beginning; ret
  const unsigned char code[] = {0xf3, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xf9, 0xc3};
  void* const page = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::memcpy(page, code, sizeof code);
  ASSERT_EQ(mprotect(page, kSize, PROT_READ | PROT_EXEC), 0);
  const std::vector<uintptr_t> pcs = StackOf(reinterpret_cast<void (*)(const std::atomic<int>*)>(page));
  ASSERT_EQ(pcs.size(), 1u);
  EXPECT_LT(pcs[0] - reinterpret_cast<uintptr_t>(page), sizeof code);
  munmap(page, kSize);
}

TEST(Unwind, OfRegistersThatAreNoAddresses) {
  StackCopy wrong;
  uintptr_t pcs[kFrames];
  EXPECT_EQ(Unwind(wrong, pcs, kFrames), 0);
  for (uintptr_t& r : wrong.registers) r = 0x1234;
  EXPECT_EQ(Unwind(wrong, pcs, kFrames), 1);
  wrong.registers[StackCopy::kRegisters - 1] = reinterpret_cast<uintptr_t>(&Outer) + 1;
  EXPECT_EQ(Unwind(wrong, pcs, kFrames), 1);
}

}  // namespace
}  // namespace mslua
