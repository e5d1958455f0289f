// The records that a training writes beside its work: metrics, events, logs. A disk that is full does not end training:
// what cannot be written waits in memory, the last 1 MiB of each file, and is written when there is space again. A file
// holds whole records, even after a truncated write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

class RecordFile;

// What became of the records of all files of one training. Used by one thread.
class RecordHealth {
 public:
  // `notice` gets one line when writing begins to fail, and one when all files can be written again.
  explicit RecordHealth(std::function<void(const std::string&)> notice) : notice_(std::move(notice)) {}

  void Failed(const std::string& path, const Status& why);
  void Wrote(const std::string& path);
  void Lost(const std::string& path, int64_t records);
  // OK when every record was written; else which were lost, and why.
  Status outcome() const;

  // Writes what waits for all files that are open; gives the bytes of each by its path.
  std::map<std::string, int64_t> FlushAll();

 private:
  const std::function<void(const std::string&)> notice_;
  std::set<std::string> failing_;
  std::map<std::string, int64_t> lost_;  // records, by path
  std::string cause_;                    // of the latest failure
  friend class RecordFile;
  std::set<RecordFile*> open_;
};

// Truncates a file of records to what FlushAll() said of it: what was written after that is removed. A file that is
// not there, or shorter, stays as it is.
Status TruncateRecords(const std::string& path, int64_t bytes);
// Removes the first line of which `beyond` is true, and all lines behind it. A file that cannot be read stays as it is.
Status TruncateRecordsFrom(const std::string& path, const std::function<bool(absl::string_view line)>& beyond);

class RecordFile {
 public:
  // Opens `path` for appending, and makes it if need be. `lines`: records are lines of text; what follows the last line
  // break of a file that is there, a truncated line, is removed. `health` outlives the file.
  static StatusOr<std::unique_ptr<RecordFile>> Open(const std::string& path, bool lines, RecordHealth* health);
  ~RecordFile();  // flushes; what cannot be written now is lost
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // One whole record. It is written by Flush(), or when 16 KiB wait that were not tried before.
  void Append(absl::string_view record);
  // Records that are lines.
  void AppendLines(absl::string_view lines);
  void Flush();

 private:
  friend class RecordHealth;
  RecordFile(std::string path, int fd, RecordHealth* health);
  // Whether the file ends where its last whole record does.
  bool TruncateTail();
  void DropWritten(int64_t bytes);
  void DropOldest();

  const std::string path_;
  const int fd_;
  RecordHealth* const health_;
  std::string waiting_;
  std::deque<int64_t> sizes_;  // of the records in waiting_
  int64_t flush_at_;           // bytes that wait
  int64_t tail_at_ = -1;       // a truncated record begins here and is still there; -1: none
};

}  // namespace mslua
