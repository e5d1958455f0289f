#include "attach/server/profiling.h"

#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"

namespace mslua::endpoint {

Status Profiling::Begin(const Request& request, int64_t steps) {
  if (profile_ != nullptr) return absl::FailedPreconditionError("a profile is being made already");
  // What follows is at the same time on all ranks.
  if (view_.gather) RETURN_IF_ERROR(view_.gather("").status());
  profile_ = std::make_unique<StepProfile>(steps, StepProfile::Now());
  request_ = request;
  return absl::OkStatus();
}

void Profiling::AddStep(const TrainState& state) {
  if (profile_ == nullptr) return;
  profile_->AddStep(state.step);
  if (!profile_->complete()) return;
  const auto answer = Finish(state);
  profile_.reset();
  outlet_.answer(request_, answer);
}

void Profiling::LeaveBoundary() {
  if (profile_ != nullptr) profile_->LeaveBoundary(view_.trainer->executable());
}

void Profiling::Close(std::vector<Request>* unanswered) {
  if (profile_ != nullptr) unanswered->push_back(request_);
  profile_.reset();
}

// Rank 0 writes the trace of all and speaks for them.
StatusOr<Answer> Profiling::Finish(const TrainState& state) {
  std::vector<std::string> all = {profile_->Serialize(view_.rank)};
  if (view_.gather) {
    ASSIGN_OR_RETURN(all, view_.gather(all[0]));
  }
  if (view_.rank > 0) return Answer();
  const MergedTrace merged = StepProfile::Merge(all);
  const std::string folder = view_.folder + "/trace", path = absl::StrCat(folder, "/step_", state.step, ".json");
  RETURN_IF_ERROR(MakeFolders(folder));
  RETURN_IF_ERROR(WriteFileAtomically(path, merged.json));
  return Answer{
      absl::StrCat("profiled up to step ", state.step, " on ", view_.ranks, view_.ranks == 1 ? " rank" : " ranks",
                   " -> ", path, " (ui.perfetto.dev)\n ", merged.summary),
      absl::StrCat("{\"path\":", Dump(path), ",\"step\":", state.step, ",\"summary\":", Dump(merged.summary), "}")};
}

}  // namespace mslua::endpoint
