#include "train/recoveries.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/atomic_file.h"
#include "core/base/input_file.h"
#include "core/files/record_file.h"
#include "core/json/json_string.h"
#include "train/run_folder.h"

namespace mslua {
namespace {

constexpr char kBegin[] = "{\"event\":\"recovery\",";
constexpr int64_t kMost = int64_t{1} << 30;

}  // namespace

Status AddRecovery(const std::string& folder, const Recovery& recovery) {
  const std::string path = absl::StrCat(folder, "/", kRunEvents);
  std::string line =
      absl::StrCat(kBegin, "\"step\":", recovery.step, ",\"time\":", std::time(nullptr), ",\"epoch\":", recovery.epoch,
                   ",\"ranks\":", recovery.ranks, ",\"from\":", JsonString(recovery.from));
  if (recovery.again >= 0) absl::StrAppend(&line, ",\"again\":", recovery.again);
  if (!recovery.cause.empty()) absl::StrAppend(&line, ",\"cause\":", JsonString(recovery.cause));
  line += "}\n";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("cannot open", path);
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const Status status = written ? absl::OkStatus() : FileError("cannot write", path);
  close(fd);
  return status;
}

Status TruncateEvents(const std::string& path, int64_t bytes) {
  const auto text = ReadFile(path, kMost);
  if (absl::IsNotFound(text.status()) || (text.ok() && static_cast<int64_t>(text->size()) <= bytes))
    return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  std::string kept = text->substr(0, static_cast<size_t>(bytes));
  for (const absl::string_view line : absl::StrSplit(absl::string_view(*text).substr(kept.size()), '\n')) {
    if (absl::StartsWith(line, kBegin) && absl::EndsWith(line, "}")) absl::StrAppend(&kept, line, "\n");
  }
  return static_cast<int64_t>(kept.size()) == bytes ? TruncateRecords(path, bytes) : WriteFileAtomically(path, kept);
}

}  // namespace mslua
