// What a training records and shows of a step besides its loss.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/train/trainer.h"

namespace mslua {

// The norm of the step's gradients over all ranks, before they are clipped; NaN where the step does not compute it
// (train.clip_norm and train.grad_norm do) or this rank's pipeline stage does not have it.
double GradNormOf(const Executable& step);

// Whether the step computes it on this rank.
bool HasGradNorm(const Executable& step);

// The largest memory that this process has had at once, in bytes. Of a device the host's part.
int64_t PeakMemory();

// The losses of several steps that make one training step, the outputs "loss.<name>" of its graph: the steps' names and
// their outputs' numbers, in the steps' order; none where the training has one step.
std::vector<std::pair<std::string, int>> FindStepLosses(const Executable& step);
// By the steps' names, when the graph has run.
std::vector<std::pair<std::string, double>> StepLossesOf(const Executable& step);

}  // namespace mslua
