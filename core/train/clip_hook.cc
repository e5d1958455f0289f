#include "core/train/clip_hook.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/train/step_numbers.h"

namespace mslua {

Status ClipHook::AtStep(const TrainState& s) {
  if (s.step == 0 || seen_ == s.step) return absl::OkStatus();
  seen_ = s.step;
  const Executable& step = *progress_->trainer->executable();
  if (!std::isinf(GradNormOf(step))) return absl::OkStatus();
  if (finite_ >= 0 && *step.Output(finite_).as<float>() < 0.5f) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the norm of the gradients is infinite at step ", s.step, ": clip_norm cannot scale them down"));
}

}  // namespace mslua
