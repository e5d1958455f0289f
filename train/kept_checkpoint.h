// The state that ranks have kept in memory, as a checkpoint for any number of ranks: what a job resumes from when it
// continues on another number of ranks, or when a rank comes back without its memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/groups.h"
#include "core/image/image.h"
#include "core/train/shared_checkpoint.h"
#include "core/train/turns.h"
#include "launch/image_keeper.h"

namespace mslua {

class KeptCheckpoint {
 public:
  // What is trained, on these ranks and on any number of them.
  struct Program {
    std::string identity, family;
  };
  // The newest turn of training `number` of its job that the images of all hosts hold whole; null: there is none.
  // `keeper`: of this host; `together`: the ranks that look, all of which call this; null: this one alone.
  static StatusOr<std::unique_ptr<KeptCheckpoint>> Find(ImageKeeper& keeper, int64_t number, const Program& program,
                                                        Groups* together);

  // The checkpoint, once: its values are in the images, which this object has.
  SharedCheckpoint Take() { return std::move(checkpoint_); }
  // Where the training stood; of one of the ranks that kept it.
  const TurnRecord& record() const { return record_; }
  // Steps that were begun after it.
  int64_t steps_again() const { return steps_again_; }
  // Ranks that continue with another rank's values of what each has of its own: nobody has kept theirs.
  int64_t without_own() const { return without_own_; }
  // What comes after is newer than any image: larger generations and turns than these.
  int64_t newest_generation() const { return newest_generation_; }
  int64_t newest_turn() const { return newest_turn_; }

 private:
  // An image of this host.
  struct Own {
    std::shared_ptr<Image> image;
    int64_t generation = 0, world = 1, rank = 0;
  };
  // What is known of an image of any host.
  struct Summary {
    int64_t generation = 0, world = 1, rank = 0, committed = 0, prepared = 0, begun = 0;
    std::string birth;
    bool Holds(int64_t turn) const { return turn == committed || turn == prepared; }
  };
  // A tensor of an image under its name in the checkpoint: where its values lie.
  using Values = std::map<std::pair<std::string, std::string>, absl::string_view>;  // by file and name

  KeptCheckpoint() = default;
  Status LookAround(ImageKeeper& keeper, int64_t number, const Program& program);
  StatusOr<std::vector<std::string>> Gather(const std::string& mine) const;
  // Whether the checkpoint could be made of that turn.
  StatusOr<bool> Make(int64_t generation, int64_t turn);
  // The part of a manifest for what that rank kept, and where its values lie.
  StatusOr<std::string> PartOf(const Own& own, int64_t turn, bool first, TurnRecord* record, Values* values) const;
  void Provide(const Values& values);

  Groups* together_ = nullptr;
  std::vector<Own> own_;
  std::vector<std::vector<Summary>> all_;  // by rank that looks
  SharedCheckpoint checkpoint_;
  TurnRecord record_;
  int64_t steps_again_ = 0, without_own_ = 0, newest_generation_ = 0, newest_turn_ = 0;
};

}  // namespace mslua
