#include "core/base/status.h"

#include "absl/strings/str_cat.h"

namespace mslua {

Status Annotate(const Status& status, const std::string& context) {
  if (status.ok()) return status;
  return Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace mslua
