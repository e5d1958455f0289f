// A text file that is read in pieces, for parsers of records.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/input_file.h"
#include "core/base/status.h"

namespace mslua::data {

class Pieces {
 public:
  // A byte order mark at the begin is left out. DataLoss: the file begins as one that is not UTF-8 text.
  static StatusOr<Pieces> Open(const std::string& path);

  // What is read and not used yet.
  char* begin() { return buffer_.data() + begin_; }
  char* end() { return buffer_.data() + end_; }
  int64_t size() const { return static_cast<int64_t>(end_ - begin_); }
  bool at_end() const { return offset_ == file_->size(); }  // of the file: Fill adds nothing
  // The first `c` of it; null: it has none.
  const char* Find(char c) const {
    if (begin_ == end_) return nullptr;
    return static_cast<const char*>(std::memchr(buffer_.data() + begin_, c, end_ - begin_));
  }
  // Marks bytes as used, up to `p`.
  void UseUntil(const char* p) { begin_ = static_cast<size_t>(p - buffer_.data()); }
  // Reads on; what is not used moves.
  Status Fill();

  const std::string& path() const { return file_->path(); }

 private:
  std::unique_ptr<InputFile> file_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t offset_ = 0;  // in the file: what is read next
};

}  // namespace mslua::data
