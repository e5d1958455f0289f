// What a recipe records of a training beside its metrics: ms.summary of Lua, histograms of parameters and gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/data/encode.h"
#include "core/files/record_file.h"
#include "core/train/event_file.h"
#include "core/train/trainer.h"

namespace mslua {

// summaries.jsonl in the run folder has a line for each; "at" is the step after which it was recorded:
//   {"step":12,"at":12,"temperature":0.5}
//   {"step":12,"at":12,"histogram":{"name":"w","count":100,"nan":0,"infinite":0,"low":-1,"high":1,"mean":0.1,
//    "std":0.5,"counts":[...]}}
//   {"step":12,"at":12,"text":{"name":"sample","text":"..."}}
//   {"step":12,"at":12,"image":{"name":"digits","file":"summaries/digits_12.png","height":28,"width":28}}
// Behind "at" stands "ended":true where the epoch of that step, or the training, had ended. The same goes to the run's
// TensorBoard events.
class Summaries : public TrainHook {
 public:
  // `events`, `trainer` and `health` outlive it, of the events all but the destructor. `notice` gets lines for users.
  static StatusOr<std::unique_ptr<Summaries>> Create(const std::string& folder, EventFile* events,
                                                     const Trainer* trainer, RecordHealth* health,
                                                     std::function<void(const std::string&)> notice);

  // What is wrong with a name: empty, too long, no UTF-8, control characters, "." or ".." as a part; of a scalar also
  // a key of metrics.jsonl. Empty: nothing.
  static std::string NameProblem(absl::string_view name, bool scalar);
  // Whether a line of summaries.jsonl was recorded after a checkpoint of `step`, so that a run that resumes from the
  // checkpoint records it again. `in_epoch`: the end of the step's epoch was still to come.
  static bool IsLater(absl::string_view line, int64_t step, bool in_epoch);

  // Names have no problem. `step` below 0: the training's.
  void Scalar(const std::string& name, int64_t step, double value);
  // Says so, once for each name, where values are not finite.
  void AddHistogram(const std::string& name, int64_t step, const Histogram& histogram);
  void Text(const std::string& name, int64_t step, const std::string& text);
  // Unavailable: the file cannot be written.
  Status Image(const std::string& name, int64_t step, const data::Picture& picture);

  // After a checkpoint of this step: what is recorded after the step is written at once, as a run that resumes from the
  // checkpoint does not record it again.
  void WriteThrough() { through_ = trainer_->state().step; }

  Status AtEpochEnd(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;

 private:
  Summaries(std::string folder, EventFile* events, const Trainer* trainer,
            std::function<void(const std::string&)> notice)
      : folder_(std::move(folder)), events_(events), trainer_(trainer), notice_(std::move(notice)) {}
  int64_t StepOf(int64_t step) const { return step < 0 ? trainer_->state().step : step; }
  void Write(int64_t step, const std::string& key, const std::string& value);
  void Flush();

  const std::string folder_;
  EventFile* const events_;
  const Trainer* const trainer_;
  const std::function<void(const std::string&)> notice_;
  std::unique_ptr<RecordFile> file_;
  int64_t through_ = -1;              // the step whose records are written at once
  bool ended_ = false;                // the training
  std::set<std::string> not_finite_;  // histograms that users were told about
};

inline constexpr char kSummaries[] = "summaries.jsonl", kSummaryPictures[] = "summaries";

}  // namespace mslua
