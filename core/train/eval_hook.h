// Evaluation while training: every so many epochs or steps, and once more where training ends between them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/train/evaluator.h"
#include "core/train/progress.h"
#include "core/train/time_left.h"

namespace mslua {

struct MetricInfo {
  std::string name;
  std::string kind;  // "mean", "percent" (a share, of which more is better), "perplexity" (exp of the mean)
};

class EvalHook : public TrainHook {
 public:
  // 0: not by this rule. `best` is called after an evaluation that was better than all before: more of the first
  // metric that is a share, else less of the first metric. An evaluation with a metric that is NaN is never better.
  EvalHook(Progress* progress, Evaluator* evaluator, std::vector<MetricInfo> metrics, int64_t every_epochs,
           int64_t every_steps);
  // What makes the metrics' values of the sums and the number of samples; else each is its sum by sample.
  using Finish = std::function<StatusOr<Numbers>(const std::vector<MetricSums>& sums, int64_t samples)>;
  void FinishBy(Finish finish) { finish_ = std::move(finish); }
  // No evaluation beside those when training ends.
  void SkipLast() {
    at_end_ = false;
    planned_.SkipLast();
  }
  // How long an evaluation takes, in steps of the training: for the time left, until the first one.
  void Expect(double steps) { planned_.Expect(steps); }
  // After each evaluation.
  void OnEvaluated(std::function<void()> evaluated) { on_evaluated_ = std::move(evaluated); }
  void OnBest(std::function<void()> best) { on_best_ = std::move(best); }

  // Evaluates, prints and records, and gives the line; `epoch` is its number from 1.
  StatusOr<std::string> Now(const TrainState& s, int64_t epoch);
  // Of the counters in a checkpoint: the step of the newest evaluation whose values the checkpoint has too; 0: there is
  // none.
  static int64_t DoneIn(const Counters& counters);

  int64_t NextStep(const TrainState& s) override;
  Status AtStep(const TrainState& s) override;
  Status AtEpochEnd(const TrainState& s) override;
  Status AtLastStep(const TrainState& s) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  // Once for each step. `planned`: by the rules, and not for the end of training alone: that one does not count, as a
  // training that resumes there does not have it.
  Status Evaluate(const TrainState& s, int64_t epoch, bool planned);
  StatusOr<std::string> Measure(const TrainState& s, int64_t epoch);
  // Makes the newest evaluation one that counts.
  void Count();
  void Tell(const Numbers& values);
  StatusOr<Numbers> Values();
  // Whether these values, as they are shown, beat all before.
  bool Better(const std::vector<double>& values);

  Progress* const progress_;
  Evaluator* const evaluator_;
  const std::vector<MetricInfo> metrics_;
  const int64_t every_epochs_, every_steps_;
  Finish finish_;
  std::function<void()> on_evaluated_;
  std::function<void()> on_best_;
  bool at_end_ = true;
  PlannedWork planned_;
  int64_t done_ = 0;          // the step of the newest evaluation that nobody asked for by hand
  Numbers newest_, counted_;  // values of the newest evaluation, and of the newest one that counts
  bool counts_ = true;        // they are one
  bool has_best_ = false;
  double best_ = 0;
};

}  // namespace mslua
