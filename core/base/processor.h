// What this program and this processor are, and what the processor is told, as far as results depend on it.
#pragma once

#include <string>

namespace mslua {

// The instruction sets that kernels choose by, best first: "amx avx512bf16 avx512f avx2 fma". Empty: none is known.
std::string InstructionSets();

// Whether the processor has tile instructions for bf16 (AMX), AVX-512 and its bf16 conversions, and the system lets
// this process use the tiles' registers.
bool ProcessorHasTiles();

// From now on numbers below the least normal one (float32: 1.2e-38) are zero in this thread and in those it starts, as
// operands and as results; with `flush` false they are numbers. Processors take a hundred cycles for each of them, and
// softmax makes many. Threads that exist already: SetDenormals (parallel_for.h).
void FlushDenormals(bool flush = true);
// Whether they are zero in this thread.
bool FlushesDenormals();

// The linker's build id of this program in hexadecimal: another build has another. Empty where the linker made none.
std::string BuildId();

}  // namespace mslua
