#include "attach/server/steering.h"

#include <algorithm>

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

void Steering::CancelPause(const std::string& why) {
  pause_at_ = -1;
  for (const Request& r : on_pause_) outlet_.answer(r, absl::FailedPreconditionError(why));
  on_pause_.clear();
}

void Steering::AnswerPause(int64_t step) {
  pause_at_ = -1;
  for (const Request& r : on_pause_) outlet_.answer(r, AtStep("paused", step));
  on_pause_.clear();
}

// The trainer makes the change by itself.
void Steering::TellScheduled(int64_t step) {
  for (const Scheduled& s : scheduled_) {
    if (s.step <= step && view_.rank == 0) outlet_.event(s.client, absl::StrCat("done at step ", step, ": ", s.text));
  }
  const auto due = [step](const Scheduled& s) { return s.step <= step; };
  scheduled_.erase(std::remove_if(scheduled_.begin(), scheduled_.end(), due), scheduled_.end());
}

void Steering::Unschedule(const std::string& input) {
  const auto of_input = [&](const Scheduled& s) { return s.input == input; };
  scheduled_.erase(std::remove_if(scheduled_.begin(), scheduled_.end(), of_input), scheduled_.end());
}

void Steering::Forget(uint64_t client) {
  watches_.Forget(client);
  breaks_.Forget(client);
  const auto of_client = [client](const Request& r) { return r.client == client; };
  if (std::any_of(on_pause_.begin(), on_pause_.end(), of_client)) CancelPause("the client that asked has gone");
}

bool Steering::Busy() const {
  return !watches_.empty() || breaks_.size() > 0 || pause_is_to_come() || profiling_.active() || !scheduled_.empty();
}

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
