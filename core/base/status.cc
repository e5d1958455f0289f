#include "core/base/status.h"

#include <cerrno>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace mslua {

Status Annotate(const Status& status, const std::string& context) {
  if (status.ok()) return status;
  Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view name, const absl::Cord& value) { annotated.SetPayload(name, value); });
  return annotated;
}

Status FileError(absl::string_view doing, absl::string_view path) {
  const int code = errno;  // before anything else can change it
  return absl::ErrnoToStatus(code, absl::StrCat(doing, " ", path));
}

}  // namespace mslua
