// The live status line of a training on a terminal's stderr:
//   epoch 3/10  step 120/250  loss 0.041 (mean 0.052)  lr 0.018  8.4k samples/s  data wait 2%  0.31 TFLOP/s  1:14 left
// and a line that stays for each epoch:
//   epoch 3/10  mean loss 0.052  12.3 s  eval loss 0.062
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>

#include "core/train/progress.h"
#include "core/train/time_left.h"

namespace mslua {

// What the status line says.
struct StatusFields {
  int64_t epoch = 1, epochs = 1, step = 0, steps_per_epoch = 1;  // from 1
  double loss = 0, mean = 0;                                     // of the step; of the epoch's steps so far
  double lr = 0;                                                 // NaN: none
  double samples_per_s = 0;                                      // 0: not known yet
  double tokens_per_s = 0;                                       // 0: samples are not texts, or not known yet
  double tflops = 0;                                             // 10^12 operations a second of this rank; 0: not known
  double peak_share = 0;                                         // of what this rank can do; 0: not known
  double data_wait = -1;                                         // share of the time; negative: not known yet
  double grad_norm = std::nan("");                               // NaN: none
  double seconds_left = -1;                                      // negative: not known yet
};

// The line in at most `columns` columns: what matters least is left out first.
std::string StatusText(const StatusFields& fields, int columns);
// "1:14", "2:03:04".
std::string ClockText(double seconds);
// "812", "8.4k", "1.2M".
std::string RateText(double rate);

// Of steps that take so long, how many pass until the line looks at the next one: about a millisecond's, at most 64, so
// that looking costs little beside short steps and the line still follows steps that become longer.
int64_t StepsPerLook(double step_seconds);

// Draws the line at most ten times a second, below what the console prints, which hides it first.
class StatusLine : public TrainHook {
 public:
  struct Options {
    // kTerminal redraws one line in place; kLines prints whole lines, the status every ten seconds.
    enum class Style { kTerminal, kLines } style = Style::kTerminal;
    std::FILE* out = stderr;
    double rows = 1;    // samples of one step, over all ranks
    double tokens = 0;  // of one step, over all ranks; 0: samples are not texts
    int64_t max_steps = 0;
    double peak_flops = 0;  // operations a second that this rank can do; 0: not known
  };
  StatusLine(Progress* progress, const Options& options);
  ~StatusLine() override;

  // Erases the line where it is drawn; draws it again as it was. On the training thread.
  void Hide();
  void Show();

  int64_t NextStep(const TrainState& s) override { return seen_ < 0 ? s.step : std::max(s.step, seen_ + stride_); }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override;
  Status AtEpochBegin(const TrainState& s) override;
  Status AtEpochEnd(const TrainState& s) override;
  void AtEnd(const TrainState& s, const Status& outcome) override;

 private:
  using Clock = std::chrono::steady_clock;
  void AddMark(const TrainState& s, Clock::time_point now);
  void Draw(const TrainState& s, Clock::time_point now);
  StatusFields FieldsOf(const TrainState& s);
  // Of a step that takes so many seconds: rates, waiting, the gradients.
  void AddWork(double seconds, StatusFields* fields);
  // Of all planned work so far.
  double PlannedSeconds() const;
  // Seconds of one step, by those of the last half minute; 0: not known yet.
  double SecondsPerStep() const;

  Progress* const progress_;
  Console* const console_;  // outlives it; null: there is none
  const Options options_;
  bool drawn_ = false;
  std::string text_;                // of the line that was drawn last
  int64_t seen_ = -1, stride_ = 1;  // the step that was looked at last; it looks at each stride_th
  int64_t evaluations_ = 0;
  Clock::time_point drawn_at_, epoch_begun_;
  struct Mark {
    Clock::time_point at;
    int64_t step;         // done by then
    double data_seconds;  // waited for by then
  };
  std::deque<Mark> marks_;  // oldest first
  StepPace pace_;
  Clock::time_point step_at_;   // the end of the last step
  double planned_by_then_ = 0;  // PlannedSeconds() at that time
  double flops_ = -1;           // of a step on this rank; negative: not counted yet
};

}  // namespace mslua
