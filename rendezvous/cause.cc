#include "rendezvous/cause.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr char kRankPayload[] = "mslua/rank";
constexpr char kCodePayload[] = "mslua/exit_code";
constexpr char kAgainPayload[] = "mslua/again";

int PayloadInt(const Status& status, const char* name, int otherwise) {
  const auto payload = status.GetPayload(name);
  int value = 0;
  return payload.has_value() && absl::SimpleAtoi(std::string(*payload), &value) ? value : otherwise;
}

}  // namespace

Cause CauseOf(const Status& status) {
  Cause cause;
  cause.rank = PayloadInt(status, kRankPayload, cause.rank);
  cause.exit_code = PayloadInt(status, kCodePayload, cause.exit_code);
  return cause;
}

bool HasCause(const Status& status) { return status.GetPayload(kCodePayload).has_value(); }

Status WithCause(Status status, const Cause& cause) {
  status.SetPayload(kRankPayload, absl::Cord(absl::StrCat(cause.rank)));
  status.SetPayload(kCodePayload, absl::Cord(absl::StrCat(cause.exit_code)));
  return status;
}

Status WithAgain(Status status) {
  status.SetPayload(kAgainPayload, absl::Cord("1"));
  return status;
}

bool StartsAgain(const Status& status) { return status.GetPayload(kAgainPayload).has_value(); }

}  // namespace mslua
