#include "core/data/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mslua::data {

namespace {

// An error where the file's first bytes are not those of UTF-8.
Status CheckText(const std::string& path, absl::string_view begin) {
  const char* what = nullptr;
  if (absl::StartsWith(begin, "\x1f\x8b")) what = "is compressed by gzip: expected text (gunzip makes it)";
  if (absl::StartsWith(begin, "PK\x03\x04")) what = "is a ZIP archive, as spreadsheets are: expected text";
  if (absl::StartsWith(begin, "\xff\xfe") || absl::StartsWith(begin, "\xfe\xff"))
    what = "is UTF-16: expected UTF-8 (iconv -f UTF-16 -t UTF-8 makes it)";
  if (what == nullptr && absl::StrContains(begin.substr(0, 4096), '\0')) what = "has bytes that are 0: expected text";
  return what == nullptr ? absl::OkStatus() : absl::DataLossError(absl::StrCat(path, " ", what));
}

}  // namespace

StatusOr<Pieces> Pieces::Open(const std::string& path) {
  Pieces pieces;
  ASSIGN_OR_RETURN(pieces.file_, InputFile::Open(path));
  RETURN_IF_ERROR(pieces.Fill());
  const absl::string_view begin(pieces.begin(), static_cast<size_t>(pieces.size()));
  RETURN_IF_ERROR(CheckText(path, begin));
  if (absl::StartsWith(begin, "\xef\xbb\xbf")) pieces.begin_ = 3;
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
