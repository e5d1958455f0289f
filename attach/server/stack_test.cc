#include "attach/server/stack.h"

#include <pthread.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/debugging/symbolize.h"
#include "core/base/testing/bad_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
