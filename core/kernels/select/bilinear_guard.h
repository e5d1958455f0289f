// Chooses a kernel that computes correctly. oneDNN 2.6.3 crashes or gives wrong results for some sizes in bf16. Two
// things keep such a kernel out of a training:
//
//   - A table of sizes that are known to fail. Their kernels are never made.
//   - A check (bilinear_check.h) of every kernel in bf16, and of every one that makes f32 products of bf16 tiles, on
//   the
//     exact sizes and number of threads, before it is first used. It runs in a process of its own, where this program
//     offers one, so that a kernel that crashes ends only that process. The verdict is kept in the file
//     kernel_verdicts of the user's cache folder, by oneDNN's version, processor, threads and sizes.
//
// docs/explanation/decisions/0019-kernels-are-checked.md says why.
#pragma once

#include "absl/types/span.h"
#include "core/kernels/select/bilinear_ways.h"

namespace mslua {

// A class of sizes for which a way fails.
struct KnownBad {
  const char* name;
  const char* cause;
  Way way;
  bool (*applies)(const Bilinear& b);
};
absl::Span<const KnownBad> KnownBadSizes();
// The row of the table that applies, or null.
const KnownBad* FindKnownBad(const Bilinear& b, Way way);

// The kernel of the first of `ways` that is not known to be bad and passes its check. An error when none is.
StatusOr<std::unique_ptr<Kernel>> MakeGuarded(const Bilinear& b, absl::Span<const Way> ways);

// For programs that look for bad kernels: from now on MakeGuarded takes the first of `ways` as it is.
void TrustAllKernels();

}  // namespace mslua
