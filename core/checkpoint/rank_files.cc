#include "core/checkpoint/rank_files.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEnd = 140;  // bytes of a manifest that hold its digest

}  // namespace

RankFiles::RankFiles(const std::string& path, const Manifest& manifest, const std::string& text)
    : path_(path),
      manifest_(manifest),
      end_(text.substr(text.size() - std::min(text.size(), kEnd))),
      size_(static_cast<int64_t>(text.size())) {
  for (const DataFile& file : manifest.files) {
    std::error_code error;
    if (!file.folder.empty() && fs::exists(absl::StrCat(path, "/", file.name), error)) {
      home_ = file.folder;
      return;
    }
  }
}

bool RankFiles::HasThisManifest(const std::string& folder) {
  const auto [known, is_new] = known_.emplace(folder, false);
  if (!is_new) return known->second;
  const auto manifest = InputFile::Open(absl::StrCat(folder, "/", kManifestName));
  if (!manifest.ok() || (*manifest)->size() != size_) return false;
  std::string end(end_.size(), '\0');
  known->second =
      (*manifest)->Read(size_ - static_cast<int64_t>(end.size()), static_cast<int64_t>(end.size()), &end[0]).ok() &&
      end == end_;
  return known->second;
}

StatusOr<std::unique_ptr<InputFile>> RankFiles::Open(size_t i) {
  const DataFile& file = manifest_.files[i];
  auto here = InputFile::Open(absl::StrCat(path_, "/", file.name));
  if (file.folder.empty() || !absl::IsNotFound(here.status())) return here;
  std::string folders[2] = {"", file.folder};
  if (!home_.empty()) {
    folders[0] = absl::StrCat(path_, "/", fs::path(file.folder).lexically_relative(home_).string());
  }
  for (const std::string& folder : folders) {
    if (folder.empty() || !HasThisManifest(folder)) continue;
    auto there = InputFile::Open(absl::StrCat(folder, "/", file.name));
    if (there.ok()) return there;
  }
  return here;
}

}  // namespace mslua::checkpoint
