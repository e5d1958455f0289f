#include "core/step/located_status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr char kPayload[] = "mslua/located";

}  // namespace

Status AtLine(const Status& status, const Location* where) {
  if (where == nullptr || where->file.empty() || IsLocated(status)) return status;
  if (absl::StartsWith(status.message(), where->file + ":")) return status;
  Status located = Annotate(status, absl::StrCat(where->file, ":", where->line));
  MarkLocated(&located);
  return located;
}

bool IsLocated(const Status& status) { return status.GetPayload(kPayload).has_value(); }

void MarkLocated(Status* status) { status->SetPayload(kPayload, absl::Cord()); }

}  // namespace mslua
