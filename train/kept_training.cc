#include "train/kept_training.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/authentication.h"
#include "core/base/exit_code.h"
#include "core/checkpoint/unfinished_save.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

constexpr char kBeginning[] = "the images of the beginning";

// The turns that an image holds of a program of that identity, the committed one and the prepared one (kNoTurn: not
// there), and the birth of its generation.
std::vector<std::string> TurnsOf(const Image& image, const std::string& identity) {
  std::vector<std::string> turns;
  std::string birth;
  for (const int64_t turn : {image.committed(), image.prepared()}) {
    const auto text = image.RecordOf(turn);
    const auto record = text.ok() ? ParseTurn(*text) : StatusOr<TurnRecord>(text.status());
    const bool ours = record.ok() && record->identity == identity;
    turns.push_back(absl::StrCat(ours ? turn : Image::kNoTurn));
    if (ours) birth = record->birth;
  }
  turns.push_back(birth);
  return turns;
}

std::vector<TurnTensor> TensorsOf(const std::vector<ImageEntry>& entries, const KeptTraining::Keeping& keeping) {
  std::vector<TurnTensor> tensors;
  for (const ImageEntry& e : entries) {
    const auto name = keeping.names.find(e.name);
    const auto part = keeping.parts.find(e.name);
    tensors.push_back({e.name, e.type, e.updated, name == keeping.names.end() ? "" : name->second,
                       part == keeping.parts.end() ? TensorPart() : part->second});
  }
  return tensors;
}

}  // namespace

KeptTraining::KeptTraining(Job* job, int64_t number, Groups* together, int rank)
    : job_(job), together_(together), rank_(rank), number_(number) {}

StatusOr<std::shared_ptr<Image>> KeptTraining::OwnImage(ImageKeeper& keeper) {
  ASSIGN_OR_RETURN(auto kept, keeper.List(ImagesOfRank(number_, rank_)));
  std::shared_ptr<Image> newest;
  for (const ImageKeeper::Kept& k : kept) {
    const int64_t number = GenerationOf(k.name);
    if (newest != nullptr && number < generation_) continue;
    ASSIGN_OR_RETURN(newest, Image::Open(k.memory.get()));
    generation_ = number;
  }
  return newest;
}

Status KeptTraining::Find(const KeptCheckpoint::Program& program) {
  if (job_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(ImageKeeper* const keeper, job_->images());
  if (keeper == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::shared_ptr<Image> image, OwnImage(*keeper));
  ASSIGN_OR_RETURN(const int64_t turn, NewestTurn(image.get(), program.identity));
  if (turn == Image::kNoTurn) {
    if (apart()) return absl::OkStatus();
    ASSIGN_OR_RETURN(moved_, KeptCheckpoint::Find(*keeper, number_, program, together_));
    if (moved_ != nullptr) record_ = moved_->record();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(image->GoTo(turn));
  ASSIGN_OR_RETURN(const std::string text, image->RecordOf(turn));
  ASSIGN_OR_RETURN(record_, ParseTurn(text));
  found_ = std::move(image);
  return absl::OkStatus();
}

// The newest turn that any rank has committed, if every rank holds it; else kNoTurn.
StatusOr<int64_t> KeptTraining::NewestTurn(const Image* image, const std::string& identity) const {
  const std::string mine = image == nullptr ? "none" : absl::StrJoin(TurnsOf(*image, identity), " ");
  std::vector<std::string> all = {mine};
  if (together_ != nullptr) {
    ASSIGN_OR_RETURN(all, GatherTexts(*together_, mine, "the images that ranks have kept"));
  }
  int64_t newest = Image::kNoTurn;
  std::string birth;
  std::vector<std::vector<int64_t>> held;
  for (const std::string& text : all) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    int64_t committed = 0, prepared = 0;
    const bool has =
        words.size() == 3 && absl::SimpleAtoi(words[0], &committed) && absl::SimpleAtoi(words[1], &prepared);
    // Turns of images that were not made together are not the same.
    if (!has || (!birth.empty() && words[2] != birth)) return Image::kNoTurn;
    birth = words[2];
    held.push_back({committed, prepared});
    newest = std::max(newest, committed);
  }
  const bool everywhere = std::all_of(held.begin(), held.end(), [&](const std::vector<int64_t>& turns) {
    return std::find(turns.begin(), turns.end(), newest) != turns.end();
  });
  return everywhere ? newest : Image::kNoTurn;
}

int64_t KeptTraining::steps_again() const {
  if (moved_ != nullptr) return moved_->steps_again();
  return found_ == nullptr ? 0 : std::max<int64_t>(0, found_->begun() - record_.state.step);
}

Status KeptTraining::Keep(TurnRecord fixed, const Keeping& keeping) {
  if (job_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(ImageKeeper* const keeper, job_->images());
  if (keeper == nullptr) return absl::OkStatus();
  Store& store = *keeping.store;
  const std::vector<ImageEntry> entries = store.ImageEntries(keeping.updated);
  std::shared_ptr<Image> image = found_;
  if (found() && !found_->Holds(entries)) {
    RETURN_IF_ERROR(keeper->Drop(ImageOf(number_, rank_, generation_)));
    return WithExitCode(absl::InternalError("the image in memory holds other tensors than this training"),
                        kExitRankCrashed);
  }
  if (!found()) {
    ASSIGN_OR_RETURN(image, Image::Make(entries));
    RETURN_IF_ERROR(BeginGeneration(&fixed.birth));
  }
  const bool adopt = found();
  if (adopt) RETURN_IF_ERROR(Put(*keeper, *image));
  store.Settle(image, keeping.updated, Image::WriterFor(entries), adopt);
  fixed.world = together_ == nullptr ? 1 : together_->size();
  fixed.rank = rank_;
  fixed.generation = generation_;
  if (adopt) fixed.birth = record_.birth;
  fixed.tensors = TensorsOf(entries, keeping);
  turns_ = std::make_unique<Turns>(std::move(fixed), &store, keeping.progress, keeping.health, keeping.notice);
  keeping.progress->trainer->KeepTurns([this] { return turns_->Prepare(); }, [this] { Commit(); });
  if (!adopt) return Begin(*keeper, image);
  turns_->StartAt(store.image()->committed());
  return absl::OkStatus();
}

Status KeptTraining::KeepNow() {
  if (turns_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(turns_->PrepareNow());
  if (together_ != nullptr) RETURN_IF_ERROR(LargestOfRanks(*together_, 0, "what a command has changed").status());
  Commit();
  return absl::OkStatus();
}

Status KeptTraining::FinishSave(const checkpoint::Companions& companions,
                                const std::function<void(const std::string&)>& notice) {
  if (job_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(ImageKeeper* const keeper, job_->images());
  if (keeper == nullptr) return absl::OkStatus();
  const std::string name = UnfinishedSaveOf(number_, rank_);
  ASSIGN_OR_RETURN(const Fd memory, keeper->Get(name));
  if (!memory) return absl::OkStatus();
  const auto save = checkpoint::UnfinishedSave::Open(memory.get());
  const bool resumes = found() || moved_ != nullptr;
  if (save.ok() && resumes && (*save)->run().step <= record_.state.step) {
    const Status finished = (*save)->Finish(companions);
    if (!finished.ok()) notice(absl::StrCat("checkpoint ", (*save)->path(), " was not saved: ", finished.message()));
  } else if (!save.ok() && !absl::IsNotFound(save.status())) {
    notice(absl::StrCat("a checkpoint was not saved: ", save.status().message()));
  }
  return keeper->Drop(name);
}

checkpoint::AsyncSaver::KeepMemory KeptTraining::keep_unfinished() {
  if (job_ == nullptr) return nullptr;
  const auto keeper = job_->images();
  if (!keeper.ok() || *keeper == nullptr) return nullptr;
  return [keeper = *keeper, name = UnfinishedSaveOf(number_, rank_)](int descriptor) {
    return descriptor < 0 ? keeper->Drop(name) : keeper->Put(name, descriptor);
  };
}

Status KeptTraining::Put(ImageKeeper& keeper, const Image& image) const {
  for (const std::string& name : {ImageOf(number_, rank_, generation_), NewestImageOf(rank_)})
    RETURN_IF_ERROR(keeper.Put(name, image.descriptor()));
  return absl::OkStatus();
}

// Its number is larger than those of all images that there are. The epoch's is: where some images are not here, it
// grows all the same.
Status KeptTraining::BeginGeneration(std::string* birth) {
  const int64_t newest = std::max(generation_, moved_ == nullptr ? 0 : moved_->newest_generation());
  generation_ = std::max(newest + 1, job_->epoch());
  ASSIGN_OR_RETURN(const std::string random, RandomBytes(8));
  *birth = absl::BytesToHexString(random);
  if (together_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(generation_, LargestOfRanks(*together_, static_cast<int32_t>(generation_), kBeginning));
  return ShareText(*together_, birth, kBeginning);
}

// The beginning is a turn too. Until all ranks have kept it, what was kept before is not replaced.
Status KeptTraining::Begin(ImageKeeper& keeper, const std::shared_ptr<Image>& image) {
  if (moved_ != nullptr) turns_->StartAt(moved_->newest_turn());
  RETURN_IF_ERROR(turns_->Prepare());
  if (together_ != nullptr) RETURN_IF_ERROR(LargestOfRanks(*together_, 0, kBeginning).status());
  turns_->Commit(1);
  RETURN_IF_ERROR(Put(keeper, *image));
  if (together_ != nullptr) RETURN_IF_ERROR(LargestOfRanks(*together_, 0, kBeginning).status());
  moved_ = nullptr;
  return DropOlder(keeper);
}

Status KeptTraining::DropOlder(ImageKeeper& keeper) const {
  const int64_t ranks = together_ == nullptr ? 1 : together_->size();
  absl::flat_hash_set<std::string> newer = {ImageOf(number_, rank_, generation_), NewestImageOf(rank_)};
  for (int64_t r = 0; r < ranks; ++r) {
    newer.insert(ImageOf(number_, static_cast<int>(r), generation_));
    newer.insert(NewestImageOf(static_cast<int>(r)));
  }
  const std::string images = apart() ? ImagesOfRank(number_, rank_) : ImagesOf(number_);
  for (const std::string& prefix : {images, apart() ? NewestImageOf(rank_) : std::string(kNewestImages)}) {
    ASSIGN_OR_RETURN(const auto kept, keeper.List(prefix));
    for (const ImageKeeper::Kept& k : kept) {
      if (!newer.contains(k.name)) RETURN_IF_ERROR(keeper.Drop(k.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace mslua
