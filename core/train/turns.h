// The turns of a training in an image (core/image/image.h): what a process that starts again resumes from.
//
// A turn is one pass of the trainer's loop: a step, or the end of an epoch. Turns are committed on all ranks the same
// ones, all of them where a step takes 2 ms or more, else about every 2 ms. A process that ends loses what followed the
// last of them: the step in flight, or what was done since.
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
#include "core/train/progress.h"
#include "core/train/tensor_part.h"

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
  bool stopped = false;                  // a callback of this rank has ended the training
};

// The record as text, which ParseTurn reads back.
std::string TurnText(const TurnRecord& record);
// DataLoss: not a record.
StatusOr<TurnRecord> ParseTurn(absl::string_view text);

// How many turns to make before the next commit, after `steps` steps in `seconds` at the pace `pace`: commits are to be
// 2 ms apart. At most twice as many as before: a short step among long ones does not leave those uncommitted. Without a
// step (the end of an epoch) nothing is known.
int64_t NextPace(int64_t pace, double seconds, int64_t steps);

class Turns {
 public:
  // `record` has what is fixed. `store` has settled into an image. Nothing is owned; all outlive it. `notice` gets one
  // line when turns can no longer be kept.
  Turns(TurnRecord record, Store* store, const Progress* progress, RecordHealth* health,
        std::function<void(const std::string&)> notice);

  // The last committed turn is this one, and the next is committed.
  void StartAt(int64_t turn);
  // The end of a turn. Where it is to be committed all is made ready: records are written, the image is prepared.
  Status Prepare();
  // The same between two turns: what has changed since the last one is to be committed now.
  Status PrepareNow();
  // After all ranks have prepared. `pace`: the smallest of the ranks' wishes, so that they commit the same turns.
  void Commit(int64_t pace);
  // How many turns this rank wants to make before the next commit.
  int64_t pace() const { return pace_; }

 private:
  TurnRecord record_;
  const std::string fixed_;  // the part of its text that does not change
  Store& store_;
  Image& image_;
  const Progress& progress_;
  RecordHealth& health_;
  const std::function<void(const std::string&)> notice_;
  int64_t turn_ = 0, due_ = 0;
  int64_t pace_ = 1, agreed_ = 1;  // this rank's wish, and all ranks'
  int64_t committed_step_ = -1;    // -1: none yet
  std::chrono::steady_clock::time_point committed_at_;
  bool prepared_ = false, noted_ = false;
};

}  // namespace mslua
