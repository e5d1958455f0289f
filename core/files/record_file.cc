#include "core/files/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {
namespace {

constexpr int64_t kFlushBytes = 16 << 10, kKeptBytes = 1 << 20;

int64_t SizeOfFile(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_size : -1;
}

// Where the last whole line of the file ends; -1 when it cannot be read.
int64_t EndOfLines(int fd) {
  char block[4096];
  for (int64_t end = SizeOfFile(fd); end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(sizeof block));
    const ssize_t n = pread(fd, block, static_cast<size_t>(end - begin), begin);
    if (n != end - begin) return -1;
    const size_t line = absl::string_view(block, static_cast<size_t>(n)).rfind('\n');
    if (line != absl::string_view::npos) return begin + static_cast<int64_t>(line) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

void RecordHealth::Failed(const std::string& path, const Status& why) {
  cause_ = std::string(why.message());
  if (failing_.empty()) {
    notice_(absl::StrCat(cause_, ": training continues, and its records wait in memory, the last 1 MiB of each file"));
  }
  failing_.insert(path);
}

void RecordHealth::Wrote(const std::string& path) {
  if (failing_.erase(path) == 0 || !failing_.empty()) return;
  notice_(lost_.empty() ? absl::StrCat(path, " can be written again: no record was lost")
                        : absl::StrCat(path, " can be written again: ", outcome().message()));
}

void RecordHealth::Lost(const std::string& path, int64_t records) {
  if (records > 0) lost_[path] += records;
}

Status RecordHealth::outcome() const {
  if (lost_.empty()) return absl::OkStatus();
  const std::string files = absl::StrJoin(lost_, ", ", [](std::string* out, const auto& lost) {
    absl::StrAppend(out, lost.second, lost.second == 1 ? " record of " : " records of ", lost.first);
  });
  return absl::ResourceExhaustedError(absl::StrCat(files, " were lost: ", cause_));
}

std::map<std::string, int64_t> RecordHealth::FlushAll() {
  std::map<std::string, int64_t> sizes;
  for (RecordFile* const file : open_) {
    file->Flush();
    sizes[file->path_] = SizeOfFile(file->fd_);
  }
  return sizes;
}

Status TruncateRecords(const std::string& path, int64_t bytes) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= bytes) return absl::OkStatus();
  return truncate(path.c_str(), bytes) == 0 ? absl::OkStatus() : FileError("cannot truncate", path);
}

Status TruncateRecordsFrom(const std::string& path, const std::function<bool(absl::string_view line)>& beyond) {
  std::ifstream file(path, std::ios::binary);
  int64_t begin = 0;
  for (std::string line; std::getline(file, line);) {
    if (beyond(line)) return TruncateRecords(path, begin);
    begin += static_cast<int64_t>(line.size()) + 1;
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(const std::string& path, bool lines, RecordHealth* health) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("cannot write", path);
  std::unique_ptr<RecordFile> file(new RecordFile(path, fd, health));
  struct stat info;
  if (lines && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    const int64_t end = EndOfLines(fd);
    if (end < 0) return FileError("cannot read", path);
    if (end < info.st_size) file->tail_at_ = end;
  }
  return file;
}

RecordFile::RecordFile(std::string path, int fd, RecordHealth* health)
    : path_(std::move(path)), fd_(fd), health_(health), flush_at_(kFlushBytes) {
  health_->open_.insert(this);
}

RecordFile::~RecordFile() {
  Flush();
  health_->Lost(path_, static_cast<int64_t>(sizes_.size()));
  health_->open_.erase(this);
  close(fd_);
}

void RecordFile::Append(absl::string_view record) {
  absl::StrAppend(&waiting_, record);
  sizes_.push_back(static_cast<int64_t>(record.size()));
  if (static_cast<int64_t>(waiting_.size()) >= flush_at_) Flush();
}

void RecordFile::AppendLines(absl::string_view lines) {
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    const absl::string_view line = lines.substr(0, end == absl::string_view::npos ? end : end + 1);
    Append(line);
    lines.remove_prefix(line.size());
  }
}

bool RecordFile::TruncateTail() {
  if (tail_at_ < 0) return true;
  if (SizeOfFile(fd_) > tail_at_ && ftruncate(fd_, tail_at_) != 0) return false;
  tail_at_ = -1;
  return true;
}

// Takes the records away that lie in the first `bytes`; the rest begins with the one that is truncated.
void RecordFile::DropWritten(int64_t bytes) {
  int64_t whole = 0;
  while (!sizes_.empty() && whole + sizes_.front() <= bytes) {
    whole += sizes_.front();
    sizes_.pop_front();
  }
  waiting_.erase(0, static_cast<size_t>(whole));
}

void RecordFile::DropOldest() {
  int64_t bytes = 0, records = 0;
  while (static_cast<int64_t>(waiting_.size()) - bytes > kKeptBytes) {
    bytes += sizes_.front();
    sizes_.pop_front();
    ++records;
  }
  waiting_.erase(0, static_cast<size_t>(bytes));
  health_->Lost(path_, records);
}

void RecordFile::Flush() {
  if (waiting_.empty()) return;
  const int64_t begin = TruncateTail() ? SizeOfFile(fd_) : -1;
  int64_t written = 0;
  const int64_t size = static_cast<int64_t>(waiting_.size());
  while (begin >= 0 && written < size) {
    const ssize_t n = write(fd_, waiting_.data() + written, static_cast<size_t>(size - written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += n;
  }
  if (written == size) {
    waiting_.clear();
    sizes_.clear();
    flush_at_ = kFlushBytes;
    health_->Wrote(path_);
    return;
  }
  const Status why = FileError("cannot write", path_);
  DropWritten(written);
  const int64_t end = begin + size - static_cast<int64_t>(waiting_.size());
  if (begin >= 0 && SizeOfFile(fd_) > end) tail_at_ = end;
  TruncateTail();
  DropOldest();
  flush_at_ = static_cast<int64_t>(waiting_.size()) + kFlushBytes;
  health_->Failed(path_, why);
}

}  // namespace mslua
