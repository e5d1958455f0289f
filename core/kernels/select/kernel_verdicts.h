// What checks of kernels found: asked for once a process, kept in the user's cache folder.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/kernels/select/bilinear_ways.h"

namespace mslua {

// Whether the kernel, made for the calling thread's compute threads, computes correctly. One that is too large to be
// checked, or for which there is no memory, passes; one whose check crashes, or does not end within two minutes, does
// not.
bool PassesCheck(const Bilinear& b, Way way);

// The argument with which this program starts itself as a process that checks kernels.
inline constexpr char kCheckKernelsArgument[] = "check-kernels";
// Called first in main() by programs that offer such a process: where the arguments ask for it, answers requests until
// none comes and does not return. Programs that do not call it check kernels in their own process.
void OfferKernelChecks(int argc, char** argv);

// Ends the process that checks kernels, if there is one. The next check starts another.
void EndCheckProcess();

// A line of the file: `environment` is what a verdict depends on besides the kernel, which is `key`.
std::string VerdictLine(absl::string_view environment, absl::string_view key, bool passes);
// False where the line, without its end, is damaged or of another environment. `key` is a part of `line`.
bool ParseVerdictLine(absl::string_view line, absl::string_view environment, absl::string_view* key, bool* passes);

// Neither reads nor writes the file from now on.
void ForgetVerdicts();

}  // namespace mslua
