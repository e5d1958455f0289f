// The turns of a training in an image (core/image/image.h): what a process that starts again resumes from.
//
// A turn is one pass of the trainer's loop: a step, or the end of an epoch. Turns are committed at least 2 ms apart, on
// all ranks the same ones; a process that ends loses what followed the last of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/files/record_file.h"
#include "core/image/image.h"
#include "core/runtime/store.h"
#include "core/train/console.h"
#include "core/train/tensor_part.h"
#include "core/train/trainer.h"

namespace mslua {

// A tensor of the store, as the image has it and as a checkpoint would.
struct TurnTensor {
  std::string name;
  TensorType type;
  bool updated = false;  // by the step
  std::string saved_as;  // its name in a checkpoint; empty: it is in none
  TensorPart part;       // of the tensor of that name
};

// Where a training stood at the end of a turn.
struct TurnRecord {
  // Fixed for the training.
  std::string identity;  // of what is trained: a process that trains something else does not resume from this
  std::string family;    // the same, but for the number of ranks
  int64_t world = 1, rank = 0;
  int64_t generation = 0;           // of images: larger where the job has continued in other ones
  std::string birth;                // random, the same on all ranks: two generations of one number are told apart by it
  std::string folder;               // the run's; may be empty
  std::string plan;                 // the recorded choices of the plan, opaque
  std::string lineage;              // of the run's checkpoints (checkpoint::Lineage::run); empty: it saves none
  std::vector<TurnTensor> tensors;  // of the store, in its order
  // At the end of the turn.
  TrainState state;
  Counters counters;
  std::vector<std::string> interventions;
  std::map<std::string, int64_t> files;  // bytes of each file of records, by path
};

std::string TurnText(const TurnRecord& record);
// DataLoss: not a record.
StatusOr<TurnRecord> ParseTurn(absl::string_view text);

class Turns {
 public:
  // `record` has what is fixed. `store` has settled into an image. Nothing is owned; all outlive it. `notice` gets one
  // line when turns can no longer be kept.
  Turns(TurnRecord record, Store* store, const Trainer* trainer, Console* console, RecordHealth* health,
        std::function<void(const std::string&)> notice);

  // The last committed turn is this one, and the next is committed.
  void StartAt(int64_t turn);
  // The end of a turn. Where it is to be committed all is made ready: records are written, the image is prepared.
  Status Prepare();
  // After all ranks have prepared. `pace`: the largest of the ranks' wishes, so that they commit the same turns.
  void Commit(int64_t pace);
  // How many turns this rank wants to make before the next commit.
  int64_t pace() const { return pace_; }

 private:
  TurnRecord record_;
  const std::string fixed_;  // the part of its text that does not change
  Store& store_;
  Image& image_;
  const Trainer& trainer_;
  Console& console_;
  RecordHealth& health_;
  const std::function<void(const std::string&)> notice_;
  int64_t turn_ = 0, due_ = 0, pace_ = 1, committed_turn_ = 0;
  std::chrono::steady_clock::time_point committed_at_;
  bool prepared_ = false, noted_ = false;
};

}  // namespace mslua
