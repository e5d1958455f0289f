// Errors are values: absl::Status and two macros to hand them on.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mslua {

using absl::Status;
using absl::StatusOr;

// `status` with "context: " before its message; OK stays OK.
Status Annotate(const Status& status, const std::string& context);

// The error of the system call on the file or folder `path` that has just failed: its code and text come from errno,
// after "DOING PATH", as in "cannot open data/x.bin: No such file or directory".
Status FileError(absl::string_view doing, absl::string_view path);

}  // namespace mslua

#define MSLUA_CONCAT_INNER(a, b) a##b
#define MSLUA_CONCAT(a, b) MSLUA_CONCAT_INNER(a, b)

// Leaves the function with the status of `expr` unless it is OK.
#define RETURN_IF_ERROR(expr)                      \
  do {                                             \
    ::absl::Status status_macro_ = (expr);         \
    if (!status_macro_.ok()) return status_macro_; \
  } while (false)

// Moves the value of the StatusOr `expr` into `lhs`, or leaves with its status.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(MSLUA_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) return tmp.status();          \
  lhs = std::move(tmp).value()
