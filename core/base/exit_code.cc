#include "core/base/exit_code.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr char kPayload[] = "mslua/exit_code";

}  // namespace

Status WithExitCode(Status status, ExitCode code) {
  if (!status.ok() && ExitCodeIn(status) == kExitOk) status.SetPayload(kPayload, absl::Cord(absl::StrCat(int{code})));
  return status;
}

ExitCode ExitCodeIn(const Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int code = kExitOk;
  if (payload && !absl::SimpleAtoi(std::string(*payload), &code)) return kExitInternal;
  return static_cast<ExitCode>(code);
}

}  // namespace mslua
