#include "tests/emulated_device/fibers.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace mslua::cuda {
namespace {

constexpr size_t kStack = 64 << 10;

// Saves the registers that a call keeps and the stack pointer in *from, and takes those of `to`.
extern "C" void mslua_switch(void** from, void* to);
asm(R"(
.text
.globl mslua_switch
.hidden mslua_switch
mslua_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

struct Fiber {
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  void* sp = nullptr;
  bool done = false;
};

struct Running {
  std::vector<Fiber>* fibers = nullptr;
  const std::function<void()>* body = nullptr;
  size_t now = 0;
  void* caller = nullptr;
};
Running running;

extern "C" void mslua_fiber_main() {
  Fiber& fiber = (*running.fibers)[running.now];
  (*running.body)();
  fiber.done = true;
  mslua_switch(&fiber.sp, running.caller);
  __builtin_unreachable();
}

}  // namespace

std::vector<int> ThreadOrder(int n, const std::string& order, std::mt19937& random) {
  std::vector<int> threads(static_cast<size_t>(n));
  std::iota(threads.begin(), threads.end(), 0);
  if (order == "backward") std::reverse(threads.begin(), threads.end());
  if (order == "random") std::shuffle(threads.begin(), threads.end(), random);
  return threads;
}

bool RunFibers(const std::vector<int>& order, const std::function<void()>& body, unsigned* thread) {
  static std::vector<Fiber> fibers;
  if (fibers.size() < order.size()) fibers.resize(order.size());
  running.fibers = &fibers;
  running.body = &body;
  for (size_t i = 0; i < order.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.done = false;
#ifdef __SANITIZE_ADDRESS__
    // A fiber that has ended never returns from its frames, which stay marked.
    ASAN_UNPOISON_MEMORY_REGION(fiber.stack.get(), kStack);
#endif
    // As if mslua_switch had been called from the beginning of mslua_fiber_main: 16-byte aligned at its call.
    auto* top =
        reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(fiber.stack.get() + kStack) & ~uintptr_t{15}) - 24);
    *top = 0;
    *--top = reinterpret_cast<uint64_t>(&mslua_fiber_main);
    for (int r = 0; r < 6; ++r) *--top = 0;
    fiber.sp = top;
  }
  // One round between two barriers.
  for (;;) {
    size_t ended = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (!fibers[i].done) {
        running.now = i;
        *thread = static_cast<unsigned>(order[i]);
        mslua_switch(&running.caller, fibers[i].sp);
      }
      ended += fibers[i].done ? 1 : 0;
    }
    if (ended == order.size()) return true;
    if (ended > 0) return false;
  }
}

void YieldFiber() {
  Fiber& fiber = (*running.fibers)[running.now];
  mslua_switch(&fiber.sp, running.caller);
}

}  // namespace mslua::cuda
