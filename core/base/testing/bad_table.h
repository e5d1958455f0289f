// A function whose unwind table is wrong, as those of assembly in a library may be: libgcc ends a process that unwinds
// through it. To be included by one file of a program.
#pragma once

#include <atomic>

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
// Returns when `end` is not 0.
extern "C" void SpinsWithABadTable(const std::atomic<int>* end);
