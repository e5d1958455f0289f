// The native stack of a thread, from a copy of its registers and its memory.
//
// libgcc's unwinder, and backtrace() with it, ends the process (abort) where the tables of a library are wrong, as
// those of LuaJIT's virtual machine and of assembly are at some instructions, and takes locks that an interrupted
// thread may hold. Here a signal handler only copies, and the walk checks each address: a wrong table gives a wrong or
// a short stack.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mslua {

struct StackCopy {
  static constexpr int kRegisters = 17;  // of x86-64, by their numbers in DWARF; the last one is the program counter
  static constexpr size_t kBytes = 128 << 10;

  // Copies what a signal has interrupted: `context` is the handler's third argument. Async-signal-safe. Copies nothing
  // on a processor other than x86-64.
  void Take(const void* context);

  uintptr_t registers[kRegisters] = {};
  uintptr_t begin = 0;  // address of the first byte that was copied
  size_t size = 0;
  unsigned char bytes[kBytes];
};

// Writes program counters to `pcs`, at most `limit`, innermost first, and returns how many: where the thread was, then
// where each call returns to. Ends at code without a table, such as code that was compiled while the program runs.
// Allocates nothing; waits for a thread that loads or unloads a library.
int Unwind(const StackCopy& stack, uintptr_t* pcs, int limit);

}  // namespace mslua
