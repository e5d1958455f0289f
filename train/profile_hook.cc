#include "train/profile_hook.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "train/notice.h"

namespace mslua {

StatusOr<ProfiledSteps> ParseProfiledSteps(const std::string& text) {
  constexpr int64_t kMostSteps = 50;  // a trace has an event for each launch
  ProfiledSteps steps;
  const std::vector<std::string> words = absl::StrSplit(text, ':');
  const bool good = words.size() == 2 && absl::SimpleAtoi(words[0], &steps.first) &&
                    absl::SimpleAtoi(words[1], &steps.count) && steps.first >= 1 && steps.count >= 1 &&
                    steps.count <= kMostSteps;
  if (good) return steps;
  return absl::InvalidArgumentError(
      absl::StrCat("--profile: expected S:N, the first step from 1 and a number of steps ", "from 1 to ", kMostSteps,
                   ", got '", text, "'"));
}

ProfileHook::ProfileHook(Progress* progress, const ProfiledSteps& steps, int rank, std::string folder,
                         std::function<StatusOr<std::vector<std::string>>(const std::string& mine)> gather)
    : progress_(progress), steps_(steps), rank_(rank), folder_(std::move(folder)), gather_(std::move(gather)) {}

int64_t ProfileHook::NextStep(const TrainState& state) {
  if (written_) return INT64_MAX;
  if (profile_ != nullptr) return state.step + (seen_ == state.step ? 1 : 0);
  return state.step <= steps_.first - 1 ? steps_.first - 1 : INT64_MAX;
}

Status ProfileHook::Begin(int64_t done) {
  if (profile_ != nullptr || written_ || done != steps_.first - 1) return absl::OkStatus();
  // What follows is at the same time on all ranks.
  if (gather_) RETURN_IF_ERROR(gather_("").status());
  profile_ = std::make_unique<endpoint::StepProfile>(steps_.count, endpoint::StepProfile::Now());
  profile_->LeaveBoundary(progress_->trainer->executable());
  seen_ = done;
  return absl::OkStatus();
}

Status ProfileHook::AtStep(const TrainState& state) {
  if (profile_ == nullptr) return Begin(state.step);
  if (seen_ == state.step) return absl::OkStatus();
  seen_ = state.step;
  profile_->AddStep(state.step);
  if (profile_->complete()) return Write(state.step);
  profile_->LeaveBoundary(progress_->trainer->executable());
  return absl::OkStatus();
}

Status ProfileHook::Write(int64_t step) {
  std::vector<std::string> all = {profile_->Serialize(rank_)};
  profile_.reset();
  written_ = true;
  if (gather_) {
    ASSIGN_OR_RETURN(all, gather_(all[0]));
  }
  if (rank_ > 0) return absl::OkStatus();
  const endpoint::MergedTrace merged = endpoint::StepProfile::Merge(all);
  const std::string folder = folder_ + "/trace", path = absl::StrCat(folder, "/step_", step, ".json");
  RETURN_IF_ERROR(MakeFolders(folder));
  RETURN_IF_ERROR(WriteFileAtomically(path, merged.json));
  PrintNote(absl::StrCat("profiled steps ", steps_.first, " to ", step, " -> ", path,
                         " (ui.perfetto.dev): ", merged.summary));
  return absl::OkStatus();
}

void ProfileHook::AtEnd(const TrainState& state, const Status& outcome) {
  profile_.reset();
  if (!written_ && outcome.ok() && rank_ == 0)
    PrintNote(absl::StrCat("--profile: nothing is profiled: training ended at step ", state.step, ", before step ",
                           steps_.first + steps_.count - 1));
}

}  // namespace mslua
