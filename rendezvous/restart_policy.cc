#include "rendezvous/restart_policy.h"

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "rendezvous/cause.h"

namespace mslua {

bool MayStartAgain(int exit_code) { return exit_code == kExitRankCrashed || exit_code == kExitHang; }

RestartPolicy::Verdict RestartPolicy::Judge(const Status& failure, const JobTurn& turn) {
  Verdict verdict;
  if (failure.ok()) return verdict;
  const Cause cause = CauseOf(failure);
  if (!MayStartAgain(cause.exit_code)) return verdict;
  const std::pair<int, int> now = {cause.rank, cause.exit_code};
  const bool progress = turn != turn_;
  same_ = !progress && now == last_ ? same_ + 1 : 1;
  without_progress_ = progress ? 1 : without_progress_ + 1;
  turn_ = turn;
  last_ = now;
  if (same_ == kSameFailures) {
    verdict.why = absl::StrCat("the job has failed ", kSameFailures,
                               " times in the same way without finishing a step in between: it does not start again");
    return verdict;
  }
  if (most_ >= 0 && restarts_ == most_) {
    verdict.why = absl::StrCat("the job has started again ", most_, " times (--max-restarts): it does not start again");
    verdict.counted = true;
    return verdict;
  }
  ++restarts_;
  verdict.again = true;
  verdict.pause = without_progress_ == 1   ? absl::ZeroDuration()
                  : without_progress_ == 2 ? absl::Milliseconds(500)
                                           : absl::Seconds(2);
  return verdict;
}

}  // namespace mslua
