#include "attach/server/stack.h"

#include <pthread.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/debugging/symbolize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// As assembly of a library may be: libgcc ends the process at the instruction in its table, which there is none of.
asm(R"(
  .text
  .globl SpinsWithABadTable
  .type SpinsWithABadTable, @function
SpinsWithABadTable:
  .cfi_startproc
  .cfi_escape 0x3f
1:
  pause
  cmpl $0, (%rdi)
  je 1b
  ret
  .cfi_endproc
  .size SpinsWithABadTable, . - SpinsWithABadTable
)");
extern "C" void SpinsWithABadTable(const std::atomic<int>* end);

namespace mslua::endpoint {
namespace {

TEST(NativeStack, OfCodeWhoseTableIsWrong) {
  absl::InitializeSymbolizer("/proc/self/exe");
  std::atomic<int> begun{0}, end{0};
  std::thread thread([&] {
    begun = 1;
    SpinsWithABadTable(&end);
  });
  while (begun == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string text = NativeStack(thread.native_handle(), absl::Seconds(10));
  end = 1;
  thread.join();
  EXPECT_EQ(text, "  SpinsWithABadTable\n");
}

}  // namespace
}  // namespace mslua::endpoint
