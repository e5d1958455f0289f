// Lua's callbacks of a training, at their safe points.
#pragma once

#include <map>
#include <string>

#include "core/train/progress.h"
#include "lua/callback.h"
#include "train/training_spec.h"

namespace mslua {

class LuaHook : public UserHook {
 public:
  // The functions begin, epoch_begin, step_begin, step_end, epoch_end and finish of the table at stack index `hooks`.
  LuaHook(Session* session, Progress* progress, int hooks);
  bool empty() const { return callbacks_.empty(); }
  void InFolder(const std::string& path) override { folder_ = path; }
  // An error of `finish`, which the loop cannot return.
  const Status& late() const override { return late_; }

  int64_t NextStep(const TrainState& s) override;
  Status AtStep(const TrainState& s) override;
  Status AtEpochBegin(const TrainState& s) override;
  Status AtEpochEnd(const TrainState& s) override;
  Status AtBegin(const TrainState& s) override;
  void AtEnd(const TrainState& s, const Status& outcome) override;

 private:
  bool Has(const char* name) const { return callbacks_.count(name) > 0; }
  // Calls it with {epoch, step, global_step, epochs, steps_per_epoch, loss, losses, lr, folder, metrics, stop}.
  Status Fire(const char* name, const TrainState& s, int64_t epoch, int64_t step);

  Session* const session_;
  Progress* const progress_;
  std::string folder_;  // of the run; empty: there is none
  std::map<std::string, Callback> callbacks_;
  int64_t seen_ = 0;
  Status late_;
};

}  // namespace mslua
