// What a rank tells about itself at any time, from another thread than the one that trains, without waiting for it.
#pragma once

#include <string>

#include "attach/server/boundary.h"
#include "attach/server/command.h"
#include "attach/server/training_view.h"

namespace mslua::endpoint {

class Snapshots {
 public:
  // On the training thread, before the first step: takes a copy of what the store and the plan say.
  explicit Snapshots(const TrainingView& view);

  StatusOr<Answer> Take(const Command& command);
  // The line of .ranks, and its heading.
  std::string RankLine();
  static std::string RankHeading();

 private:
  struct StoredType {
    std::string name, kind;
    TensorType type;
    TensorPlace place;
  };

  StatusOr<Answer> Params(const Command& command) const;
  StatusOr<Answer> Layout(const Command& command) const;
  StatusOr<Answer> GraphText(const Command& command) const;
  StatusOr<Answer> Calls(const Command& command) const;
  Answer Memory() const;
  Answer Plan() const;
  Answer Diagnosis() const;
  Answer Stack() const;
  StatusOr<Answer> Plot(const Command& command) const;
  StatusOr<Answer> Tail(const Command& command) const;
  Answer Ranks();
  // Losses of the last steps (at most `most`), oldest first, and the number of the first, from 1.
  std::vector<float> Losses(int64_t most, int64_t* first) const;

  const TrainingView& view_;
  const std::string host_;
  std::vector<StoredType> stored_;
  int64_t store_bytes_ = 0;
  PlanReport report_;
  std::string graph_;  // its text
};

// A curve of `values` in the terminal, `width` x `height` characters; `first` is the step of the first value.
std::string DrawCurve(const std::vector<float>& values, int64_t first, int width, int height, const std::string& title);

}  // namespace mslua::endpoint
