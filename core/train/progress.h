// What the parts of one training tell each other: the numbers that were found, and that somebody asked for the end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/train/console.h"
#include "core/train/metrics.h"
#include "core/train/trainer.h"

namespace mslua {

using Numbers = std::vector<std::pair<std::string, double>>;

class PlannedWork;
class Summaries;

struct Progress {
  Trainer* trainer = nullptr;
  Console* console = nullptr;
  MetricsHook* metrics = nullptr;  // null where nothing is recorded
  Summaries* summaries = nullptr;  // the same
  int64_t epochs = 1, steps_per_epoch = 1;
  Numbers found;                            // "loss" of the last epoch, "eval_loss", ...
  int64_t evaluations = 0;                  // so far, but for one that the end of training alone asks for
  bool stopped = false;                     // by a callback: training is then done, not broken off
  std::vector<const PlannedWork*> planned;  // of the hooks: evaluations, saves

  void Set(const std::string& name, double value);
  // Null where it was not found.
  const double* Find(const std::string& name) const;
  void Stop();
};

}  // namespace mslua
