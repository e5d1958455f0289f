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

// Odd in lines of the cache: the tops of stacks a power of two apart would all fall into the same few sets.
constexpr size_t kStack = (64 << 10) + 5 * 64;

// Saves the registers that a call keeps and the stack pointer in *from, and takes those of `to`. A jump, not a return:
// the CPU would predict a return to where the other fiber made its call.
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
  popq %rcx
  jmpq *%rcx
)");

struct Running {
  std::unique_ptr<char[]> stacks;
  std::vector<void*> sp;  // of each fiber
  const std::function<void()>* body = nullptr;
  size_t now = 0, ended = 0;
  void* caller = nullptr;
};
Running running;

extern "C" void mslua_fiber_main() {
  (*running.body)();
  ++running.ended;
  mslua_switch(&running.sp[running.now], running.caller);
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
  const size_t count = order.size();
  if (running.sp.size() < count) {
    running.stacks.reset(new char[count * kStack]);
    running.sp.resize(count);
  }
  running.body = &body;
  running.ended = 0;
  for (size_t i = 0; i < count; ++i) {
    char* const stack = running.stacks.get() + i * kStack;
#ifdef __SANITIZE_ADDRESS__
    // A fiber that has ended never returns from its frames, which stay marked.
    ASAN_UNPOISON_MEMORY_REGION(stack, kStack);
#endif
    // As if mslua_switch had been called from the beginning of mslua_fiber_main: 16-byte aligned at its call.
    auto* top = reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(stack + kStack) & ~uintptr_t{15}) - 24);
    *top = 0;
    *--top = reinterpret_cast<uint64_t>(&mslua_fiber_main);
    for (int r = 0; r < 6; ++r) *--top = 0;
    running.sp[i] = top;
  }
  // One round between two barriers, of all fibers or of none.
  while (running.ended == 0) {
    for (size_t i = 0; i < count; ++i) {
      running.now = i;
      *thread = static_cast<unsigned>(order[i]);
      mslua_switch(&running.caller, running.sp[i]);
    }
  }
  return running.ended == count;
}

void YieldFiber() { mslua_switch(&running.sp[running.now], running.caller); }

}  // namespace mslua::cuda
