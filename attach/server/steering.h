// What the commands that are carried out between two steps act on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attach/server/breaks.h"
#include "attach/server/profiling.h"
#include "attach/server/training_view.h"
#include "attach/server/watch_list.h"

namespace mslua::endpoint {

// Belongs to a boundary (boundary.h), whose mutex guards it; on the training thread.
class Steering {
 public:
  // `outlet` outlives it.
  Steering(const TrainingView& view, const Outlet& outlet)
      : view_(view), outlet_(outlet), watches_(view, outlet), profiling_(view, outlet) {}

  const TrainingView& view() const { return view_; }
  WatchList& watches() { return watches_; }
  const WatchList& watches() const { return watches_; }
  Breaks& breaks() { return breaks_; }
  const Breaks& breaks() const { return breaks_; }
  Profiling& profiling() { return profiling_; }

  bool paused() const { return paused_; }
  // At this boundary.
  void Pause() { paused_ = true; }
  // After so many steps.
  void PauseAt(int64_t step) { pause_at_ = step; }
  // Ends the pause until so many steps are done; then the request is answered.
  void StepTo(int64_t step, const Request& request);
  // Ends the pause, before anybody is told so: who then asks is not to hear of one.
  void Continue();
  // Whether training is to pause after a step that is to come.
  bool pause_is_to_come() const { return pause_at_ >= 0; }
  // There will be no such pause; clients that wait for it get the error `why`.
  void CancelPause(const std::string& why);

  // A change that is to come, of which the client (0: all) is told then.
  struct Scheduled {
    int64_t step = 0;
    uint64_t client = 0;
    std::string input, text;
  };
  void Schedule(Scheduled change) { scheduled_.push_back(std::move(change)); }
  // Forgets the changes of `input` that are to come.
  void Unschedule(const std::string& input);
  const std::vector<Scheduled>& scheduled() const { return scheduled_; }

  // Whether it is paused in a step whose loss is NaN.
  bool bad_loss() const { return bad_loss_; }

  // Ends the watches, the breaks and the pause to come of a client that has gone.
  void Forget(uint64_t client);

 private:
  friend class Boundary;
  // Whether a pause is due after so many steps.
  bool PauseIsDue(int64_t step) const { return pause_at_ >= 0 && step >= pause_at_; }
  void AnswerPause(int64_t step);
  void TellScheduled(int64_t step);
  bool Busy() const;
  void Close(std::vector<Request>* unanswered);

  const TrainingView& view_;
  const Outlet& outlet_;
  WatchList watches_;
  Breaks breaks_;
  Profiling profiling_;
  bool paused_ = false, bad_loss_ = false;
  int64_t pause_at_ = -1;          // steps done; -1: nobody asked for it
  std::vector<Request> on_pause_;  // to be answered then
  std::vector<Scheduled> scheduled_;
};

// The answer of a command that was carried out after so many steps: "TEXT at step 5".
Answer AtStep(const char* text, int64_t step);

}  // namespace mslua::endpoint
