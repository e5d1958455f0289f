#include "rendezvous/member_link.h"

#include <algorithm>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "rendezvous/cause.h"

namespace mslua {

std::string RandomName() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

std::string OnOneLine(const std::string& text) {
  std::string line = Printable(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

int FailureCode(const ControlMessage& message) {
  int code = 0;
  return absl::SimpleAtoi(message.Field("code"), &code) && code > 0 && code < 256 ? code : kExitRankCrashed;
}

Status AbortOf(const ControlMessage& message) {
  Cause cause = {-1, FailureCode(message)};
  int rank = 0;
  if (absl::SimpleAtoi(message.Field("rank"), &rank) && rank >= 0) cause.rank = rank;
  return WithCause(absl::AbortedError(PrintableMessage(message.Field("why"))), cause);
}

ControlMessage AbortFor(const Status& why) {
  const Cause cause = CauseOf(why);
  return {ControlMessage::Type::kAbort,
          {{"why", std::string(why.message())},
           {"rank", absl::StrCat(cause.rank)},
           {"code", absl::StrCat(cause.exit_code)}}};
}

absl::Duration LimitOf(const Fd& socket, absl::Duration limit) { return PeerCanRun(socket) ? 12 * limit : limit; }

Status EndOf(const std::string& name, int rank, const Status& status) {
  if (absl::IsDataLoss(status)) {
    return WithCause(
        absl::UnavailableError(absl::StrCat("data from ", name, " was damaged on its way: ", status.message())),
        {-1, kExitRankCrashed});
  }
  if (absl::IsPermissionDenied(status)) {
    return WithCause(absl::UnavailableError(absl::StrCat("the connection to ", name, " was ended: ", status.message())),
                     {-1, kExitSecurity});
  }
  if (IsBrokenLink(status) || absl::IsDeadlineExceeded(status)) {
    return WithCause(absl::UnavailableError(absl::StrCat("the link to ", name, " is broken: ", status.message())),
                     {rank, kExitHang});
  }
  return WithCause(absl::UnavailableError(absl::StrCat(name, " has ended without leaving the job")),
                   {rank, kExitRankCrashed});
}

}  // namespace mslua
