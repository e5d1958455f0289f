// What a training records and shows of a step besides its loss.
#pragma once

#include <cstdint>

#include "core/train/trainer.h"

namespace mslua {

// The norm of the step's gradients over all ranks, before they are clipped; NaN where the step does not compute it
// (train.clip_norm and train.grad_norm do) or this rank's pipeline stage does not have it.
double GradNormOf(const Executable& step);

// Whether the step computes it on this rank.
bool HasGradNorm(const Executable& step);

// The largest memory that this process has had at once, in bytes. Of a device the host's part.
int64_t PeakMemory();

}  // namespace mslua
