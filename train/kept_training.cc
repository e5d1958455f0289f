#include "train/kept_training.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

// The turns that an image holds of a program of that identity: the committed one, the prepared one; kNoTurn: not there.
std::vector<int64_t> TurnsOf(const Image& image, const std::string& identity) {
  std::vector<int64_t> turns;
  for (const int64_t turn : {image.committed(), image.prepared()}) {
    const auto text = image.RecordOf(turn);
    const auto record = text.ok() ? ParseTurn(*text) : StatusOr<TurnRecord>(text.status());
    turns.push_back(record.ok() && record->identity == identity ? turn : Image::kNoTurn);
  }
  return turns;
}

}  // namespace

KeptTraining::KeptTraining(Job* job, Groups* together, int rank)
    : job_(job), together_(together), rank_(rank), number_(job == nullptr ? 0 : job->NextTraining()) {}

Status KeptTraining::Find(const std::string& identity) {
  if (job_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(ImageKeeper* const keeper, job_->images());
  if (keeper == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Fd descriptor, keeper->Get(ImageOf(number_, rank_)));
  std::shared_ptr<Image> image;
  if (descriptor) {
    ASSIGN_OR_RETURN(image, Image::Open(descriptor.get()));
  }
  ASSIGN_OR_RETURN(const int64_t turn, NewestTurn(image.get(), identity));
  if (turn == Image::kNoTurn) return absl::OkStatus();
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
  std::vector<std::vector<int64_t>> held;
  for (const std::string& text : all) {
    held.emplace_back();
    for (const absl::string_view word : absl::StrSplit(text, ' ')) {
      if (int64_t turn = Image::kNoTurn; absl::SimpleAtoi(word, &turn)) held.back().push_back(turn);
    }
    if (!held.back().empty()) newest = std::max(newest, held.back()[0]);
  }
  const bool everywhere = std::all_of(held.begin(), held.end(), [&](const std::vector<int64_t>& turns) {
    return std::find(turns.begin(), turns.end(), newest) != turns.end();
  });
  return everywhere ? newest : Image::kNoTurn;
}

int64_t KeptTraining::steps_again() const {
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
    RETURN_IF_ERROR(keeper->Drop(ImageOf(number_, rank_)));
    return WithExitCode(absl::InternalError("the image in memory holds other tensors than this training"),
                        kExitRankCrashed);
  }
  if (!found()) {
    ASSIGN_OR_RETURN(image, Image::Make(entries));
  }
  for (const std::string& name : {ImageOf(number_, rank_), NewestImageOf(rank_)})
    RETURN_IF_ERROR(keeper->Put(name, image->descriptor()));
  store.Settle(std::move(image), keeping.updated, found());
  for (const auto& e : store.entries()) fixed.tensors.push_back(e->name);
  turns_ = std::make_unique<Turns>(std::move(fixed), &store, keeping.trainer, keeping.console, keeping.health,
                                   keeping.notice);
  keeping.trainer->KeepTurns([this] { return turns_->Prepare(); },
                             [this] { turns_->Commit(together_ == nullptr ? turns_->pace() : agreed_pace_); });
  if (!found()) return Begin();
  turns_->StartAt(store.image()->committed());
  return absl::OkStatus();
}

// The beginning is a turn too.
Status KeptTraining::Begin() {
  RETURN_IF_ERROR(turns_->Prepare());
  if (together_ != nullptr) RETURN_IF_ERROR(LargestOfRanks(*together_, 0, "the images of the beginning").status());
  turns_->Commit(1);
  return absl::OkStatus();
}

}  // namespace mslua
