#include "core/data/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

namespace mslua::data {

StatusOr<Pieces> Pieces::Open(const std::string& path) {
  Pieces pieces;
  ASSIGN_OR_RETURN(pieces.file_, InputFile::Open(path));
  RETURN_IF_ERROR(pieces.Fill());
  if (absl::StartsWith({pieces.begin(), static_cast<size_t>(pieces.size())}, "\xef\xbb\xbf")) pieces.begin_ = 3;
  return StatusOr<Pieces>(std::move(pieces));
}

Status Pieces::Fill() {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t n = std::min(kPiece, file_->size() - offset_);
  const size_t held = end_ - begin_;
  if (held > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, held);
  if (buffer_.size() < held + static_cast<size_t>(n)) buffer_.resize(2 * held + static_cast<size_t>(kPiece));
  begin_ = 0;
  RETURN_IF_ERROR(file_->Read(offset_, n, buffer_.data() + held));
  offset_ += n;
  end_ = held + static_cast<size_t>(n);
  return absl::OkStatus();
}

}  // namespace mslua::data
