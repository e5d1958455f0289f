#include "rendezvous/crash_note.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/input_file.h"

namespace mslua {

std::string CrashNote(const std::string& path, const std::string& who) {
  constexpr int64_t kMost = 16 << 20;
  if (path.empty() || who.empty()) return "";
  const auto text = ReadFile(path, kMost);
  const bool reported = text.ok() && absl::StrContains(*text, absl::StrCat("(", who, ") crashed"));
  return reported ? absl::StrCat("; backtrace in ", path) : "";
}

}  // namespace mslua
