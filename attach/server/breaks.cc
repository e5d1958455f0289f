#include "attach/server/breaks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attach/server/command.h"

namespace mslua::endpoint {
namespace {

constexpr size_t kMostBreaks = 100;

}  // namespace

Status Breaks::Add(uint64_t client, const std::string& text, int64_t done) {
  if (list_.size() >= kMostBreaks) return absl::ResourceExhaustedError("there are too many breaks (.clear)");
  Break b{client, text, Break::Kind::kNan, 0};
  absl::string_view rest = text;
  const bool above = absl::StartsWith(rest, "loss>"), below = absl::StartsWith(rest, "loss<");
  if (above || below) {
    b.kind = above ? Break::Kind::kAbove : Break::Kind::kBelow;
    if (!absl::SimpleAtod(rest.substr(5), &b.limit) || !std::isfinite(b.limit))
      return absl::InvalidArgumentError(absl::StrCat(".break ", text, ": expected a finite number after loss",
                                                     rest.substr(4, 1),
                                                     " (.break nan stops where the loss is not finite)"));
  } else if (absl::StartsWith(rest, "step ")) {
    b.kind = Break::Kind::kStep;
    ASSIGN_OR_RETURN(const int64_t step, ParseCount(rest.substr(5), 1, ".break step"));
    if (step <= done) {
      return absl::InvalidArgumentError(
          absl::StrCat(".break ", text, ": expected a step that is to come, but ", done, " steps are done"));
    }
    b.limit = static_cast<double>(step);
  } else if (rest != "nan") {
    return absl::InvalidArgumentError("usage: .break nan | loss>V | loss<V | step N");
  }
  list_.push_back(b);
  Changed();
  return absl::OkStatus();
}

size_t Breaks::Clear() {
  const size_t n = list_.size();
  list_.clear();
  Changed();
  return n;
}

void Breaks::Forget(uint64_t client) {
  const auto of_client = [client](const Break& b) { return b.client == client; };
  list_.erase(std::remove_if(list_.begin(), list_.end(), of_client), list_.end());
  Changed();
}

void Breaks::Remove(int32_t hit) {
  list_.erase(list_.begin() + (hit - 1));
  Changed();
}

void Breaks::Changed() {
  has_nan_ = std::any_of(list_.begin(), list_.end(), [](const Break& b) { return b.kind == Break::Kind::kNan; });
}

int32_t Breaks::FindHit(const TrainState& state) const {
  if (state.step == 0) return 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    const Break& b = list_[i];
    const bool hit = (b.kind == Break::Kind::kNan && !std::isfinite(state.loss)) ||
                     (b.kind == Break::Kind::kAbove && state.loss > b.limit) ||
                     (b.kind == Break::Kind::kBelow && state.loss < b.limit) ||
                     (b.kind == Break::Kind::kStep && static_cast<double>(state.step) >= b.limit);
    if (hit) return static_cast<int32_t>(i) + 1;
  }
  return 0;
}

}  // namespace mslua::endpoint
