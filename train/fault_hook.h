// MSLUA_FAULT: a crash that is asked for, in tests of what a job does then.
#pragma once

#include <cstdint>
#include <string>

#include "core/runtime/store.h"
#include "core/train/trainer.h"

namespace mslua {

struct Fault {
  enum class Kind {
    kAbort,     // each time that the rank has made the step
    kScribble,  // once in a job: random bytes all over the memory that the job resumes from, then a crash in it
  };
  Kind kind = Kind::kAbort;
  int rank = 0;
  int64_t step = 0;
};
// Of "abort@rank=R,step=S" or "scribble@rank=R,step=S". InvalidArgument: it is none.
StatusOr<Fault> ParseFault(const std::string& text);

// On the rank of the fault. After the step's other hooks, before the step is kept.
class FaultHook : public TrainHook {
 public:
  // `store`, which outlives it, is in an image where the fault is a scribble.
  FaultHook(const Fault& fault, Store* store) : fault_(fault), store_(*store) {}

  int64_t NextStep(const TrainState& state) override { return state.step <= fault_.step ? fault_.step : INT64_MAX; }
  Status AtStep(const TrainState& state) override;

 private:
  void Scribble();

  const Fault fault_;
  Store& store_;
};

}  // namespace mslua
