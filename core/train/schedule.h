// Learning-rate schedules as data: a number for each step, evaluated between steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua {

// Steps count from 0. Parameters that a kind does not name are ignored.
struct Schedule {
  enum class Kind {
    kConstant,    // value
    kStep,        // value * rate^floor(step / period)
    kPiecewise,   // rates[i] while step < milestones[i]; the last rate afterwards (MindSpore's piecewise_constant_lr)
    kCosine,      // low + (value - low) * (1 + cos(pi * min(step, total) / total)) / 2
    kPolynomial,  // (value - low) * (1 - min(step, total) / total)^power + low
    kOneCycle,    // PyTorch's OneCycleLR with cosine annealing: value / div to value over pct * total steps, then to
                  // value / (div * final_div); Smith and Topin, "Super-convergence", 2018
    kTable,       // rates[step]; the last one afterwards
  };
  Kind kind = Kind::kConstant;
  double value = 0;  // the highest rate
  double low = 0;
  double rate = 1;
  double power = 1;
  double pct = 0.3, div = 25, final_div = 1e4;
  int64_t period = 1;
  int64_t total = 1;
  std::vector<int64_t> milestones;
  std::vector<double> rates;
  // Before it: step i (from 0) has warmup_from + (first - warmup_from) * (i + 1) / warmup_steps, where `first` is what
  // the schedule gives at its first step; its own steps then begin.
  int64_t warmup_steps = 0;
  double warmup_from = 0;

  double At(int64_t step) const;
  // Every condition on the numbers, by the user's names.
  Status Check() const;

  static Schedule Constant(double value) {
    Schedule s;
    s.value = value;
    return s;
  }
};

// "constant", "step", "piecewise", "cosine", "polynomial", "one_cycle", "table".
StatusOr<Schedule::Kind> ParseScheduleKind(const std::string& name);

}  // namespace mslua
