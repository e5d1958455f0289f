#include "core/data/file.h"

#include <dirent.h>
#include <errno.h>
#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/input_file.h"

namespace mslua::data {

StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return FileError("cannot list", path);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Status ReadFile(const std::string& path, int64_t limit, std::vector<uint8_t>* out) {
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(path));
  if (file->size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->size(), " bytes, at most ", limit, " are expected"));
  }
  out->resize(static_cast<size_t>(file->size()));
  return file->Read(0, file->size(), out->data());
}

Status ReadFileInflated(const std::string& path, int64_t limit, std::vector<uint8_t>* out) {
  gzFile file = gzopen(path.c_str(), "rbe");
  if (file == nullptr) return FileError("cannot open", path);
  out->clear();
  constexpr size_t kPiece = 1 << 16;
  Status status;
  while (status.ok()) {
    const size_t before = out->size();
    out->resize(before + kPiece);
    const int got = gzread(file, out->data() + before, kPiece);
    out->resize(before + std::max(got, 0));
    int code = Z_OK;
    const char* what = gzerror(file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      status = absl::DataLossError(absl::StrCat(path, " is corrupt gzip data (", what, ")"));
    } else if (static_cast<int64_t>(out->size()) > limit) {
      status = absl::InvalidArgumentError(absl::StrCat(path, " inflates to more than the ", limit, " bytes expected"));
    } else if (got == 0) {
      break;
    }
  }
  // Z_BUF_ERROR: the last stream had no end.
  if (gzclose(file) != Z_OK && status.ok()) {
    status = absl::DataLossError(absl::StrCat(path, " is truncated gzip data"));
  }
  return status;
}

}  // namespace mslua::data
