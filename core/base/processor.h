// What this program and this processor are, as far as results depend on it.
#pragma once

#include <string>

namespace mslua {

// The instruction sets that kernels choose by, best first: "amx avx512bf16 avx512f avx2 fma". Empty: none is known.
std::string InstructionSets();

// The linker's build id of this program in hexadecimal: another build has another. Empty where the linker made none.
std::string BuildId();

}  // namespace mslua
