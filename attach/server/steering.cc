#include "attach/server/steering.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua::endpoint {

void Steering::StepTo(int64_t step, const Request& request) {
  pause_at_ = step;
  Continue();
  on_pause_.push_back(request);
}

void Steering::Continue() {
  paused_ = false;
  view_.trainer->progress().Enter(TrainProgress::Phase::kBetween);
}

void Steering::AnswerPause(int64_t step) {
  pause_at_ = -1;
  for (const Request& r : on_pause_) outlet_.answer(r, AtStep("paused", step));
  on_pause_.clear();
}

void Steering::Forget(uint64_t client) {
  watches_.Forget(client);
  breaks_.Forget(client);
}

bool Steering::Busy() const { return !watches_.empty() || breaks_.size() > 0 || pause_at_ >= 0 || profiling_.active(); }

void Steering::Close(std::vector<Request>* unanswered) {
  unanswered->insert(unanswered->end(), on_pause_.begin(), on_pause_.end());
  on_pause_.clear();
  watches_.Close(unanswered);
  profiling_.Close(unanswered);
}

Answer AtStep(const char* text, int64_t step) {
  return {absl::StrCat(text, " at step ", step), absl::StrFormat("{\"step\":%d}", step)};
}

}  // namespace mslua::endpoint
