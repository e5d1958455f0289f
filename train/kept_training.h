// A training of a job that starts again: what an earlier process has left of it in memory, and the turns that this one
// keeps. The images are with the job's keeper (launch/image_keeper.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "core/checkpoint/async_saver.h"
#include "core/image/image.h"
#include "core/runtime/store.h"
#include "core/train/progress.h"
#include "core/train/turns.h"
#include "launch/image_keeper.h"
#include "launch/job.h"
#include "train/kept_checkpoint.h"

namespace mslua {

class Groups;

class KeptTraining {
 public:
  // Training `number`, from 0, of `job`, which may be null: then, and in a job that does not start again, nothing is
  // found and nothing is kept. `together`: the ranks that train it, which make the calls below together; null: this
  // rank alone.
  KeptTraining(Job* job, int64_t number, Groups* together, int rank);

  // Which training of its process it is, from 0.
  int64_t number() const { return number_; }
  // Looks for the newest turn that any rank has committed. It is found when every rank holds it, of this program. Else
  // what the images hold whole is a checkpoint.
  Status Find(const KeptCheckpoint::Program& program);
  bool found() const { return found_ != nullptr; }
  // What other numbers of ranks have kept, or other processes; null: nothing, or a turn was found. It has the memory
  // that its checkpoint is of.
  KeptCheckpoint* moved() const { return moved_.get(); }
  void DropMoved() { moved_ = nullptr; }
  // Of the turn that was found, or of the checkpoint.
  const TurnRecord& record() const { return record_; }
  // Steps that were begun after it.
  int64_t steps_again() const;

  struct Keeping {
    Store* store = nullptr;
    absl::flat_hash_set<std::string> updated;  // names of the tensors that the step updates
    TensorNames names;                         // of the store's tensors in checkpoints, and how they lie in them
    TensorParts parts;
    Progress* progress = nullptr;
    RecordHealth* health = nullptr;
    std::function<void(const std::string&)> notice;
  };
  // Moves the store into the image: into a new one, or with the values of the turn that was found. `fixed` is what all
  // records have. From then on the trainer keeps its turns. What is named outlives this object.
  Status Keep(TurnRecord fixed, const Keeping& keeping);

  // Finishes the save that a process before this one had begun before the turn that is resumed from, and that training
  // repeats no more. `notice` gets a line where that fails.
  Status FinishSave(const checkpoint::Companions& companions, const std::function<void(const std::string&)>& notice);
  // Keeps a save until it is written; null: the job keeps nothing in memory.
  checkpoint::AsyncSaver::KeepMemory keep_unfinished();

  // Keeps what has changed between two steps, at once. The ranks that train together call it there.
  Status KeepNow();

  // How many turns this rank wants to make before the next is kept; what all agree on is to be told.
  int64_t pace() const { return turns_ == nullptr ? 1 : turns_->pace(); }
  void AgreeOn(int64_t pace) { agreed_pace_ = pace; }

 private:
  // Whether the job's ranks train each by itself.
  bool apart() const { return together_ == nullptr && job_->size() > 1; }
  void Commit() { turns_->Commit(together_ == nullptr ? turns_->pace() : agreed_pace_); }
  StatusOr<int64_t> NewestTurn(const Image* image, const std::string& identity) const;
  // This rank's image of the newest generation; null: there is none.
  StatusOr<std::shared_ptr<Image>> OwnImage(ImageKeeper& keeper);
  Status Put(ImageKeeper& keeper, const Image& image) const;
  Status BeginGeneration(std::string* birth);
  Status Begin(ImageKeeper& keeper, const std::shared_ptr<Image>& image);
  // Nothing older than this generation is resumed from any more.
  Status DropOlder(ImageKeeper& keeper) const;

  Job* const job_;
  Groups* const together_;
  const int rank_;
  int64_t number_ = 0;
  int64_t generation_ = 0;
  std::shared_ptr<Image> found_;
  std::unique_ptr<KeptCheckpoint> moved_;
  TurnRecord record_;
  std::unique_ptr<Turns> turns_;
  int64_t agreed_pace_ = 1;
};

}  // namespace mslua
