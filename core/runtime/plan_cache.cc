#include "core/runtime/plan_cache.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"

namespace mslua {
namespace {

constexpr char kHead[] = "mslua plan 1\n";
constexpr char kEnding[] = ".plan";
constexpr int64_t kMostBytes = 64 << 20;

// Files of plans with the time of their last change.
std::vector<std::pair<time_t, std::string>> PlansIn(const std::string& folder) {
  std::vector<std::pair<time_t, std::string>> plans;
  DIR* const d = opendir(folder.c_str());
  if (d == nullptr) return plans;
  while (const dirent* entry = readdir(d)) {
    std::string path = absl::StrCat(folder, "/", entry->d_name);
    struct stat info;
    if (absl::EndsWith(path, kEnding) && stat(path.c_str(), &info) == 0) plans.emplace_back(info.st_mtime, path);
  }
  closedir(d);
  return plans;
}

std::string Checksum(absl::string_view text) {
  return absl::StrFormat("crc32c %08x\n", Crc32c(text.data(), text.size()));
}

}  // namespace

std::string PlanCache::UserFolder() {
  const std::string cache = UserCacheFolder();
  return cache.empty() ? "" : absl::StrCat(cache, "/plans");
}

std::string PlanCache::Key(absl::Span<const absl::string_view> parts) {
  // Lengths before contents: no two lists of parts are one text.
  Blake2b hash;
  for (absl::string_view part : parts) {
    const std::string size = absl::StrCat(part.size(), ":");
    hash.Update(size.data(), size.size());
    hash.Update(part.data(), part.size());
  }
  return hash.HexDigest().substr(0, 32);
}

std::string PlanCache::PathOf(const std::string& key) const { return absl::StrCat(folder_, "/", key, kEnding); }

absl::optional<std::string> PlanCache::Find(const std::string& key) const {
  if (folder_.empty()) return absl::nullopt;
  const auto file = ReadFile(PathOf(key), kMostBytes);
  if (!file.ok()) return absl::nullopt;
  auto text = UnwrapPlan(*file);
  if (!text.ok()) return absl::nullopt;
  return *std::move(text);
}

Status PlanCache::Keep(const std::string& key, absl::string_view text) const {
  if (folder_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(MakeFolders(folder_));
  RETURN_IF_ERROR(WriteFileAtomically(PathOf(key), WrapPlan(text)));
  auto plans = PlansIn(folder_);
  if (plans.size() <= kMostFiles) return absl::OkStatus();
  std::sort(plans.begin(), plans.end());
  for (size_t i = 0; i + kMostFiles < plans.size(); ++i) unlink(plans[i].second.c_str());
  return absl::OkStatus();
}

std::string WrapPlan(absl::string_view text) { return absl::StrCat(kHead, text, Checksum(text)); }

StatusOr<std::string> UnwrapPlan(absl::string_view file) {
  if (!absl::ConsumePrefix(&file, kHead)) return absl::DataLossError("not a plan of this version");
  const size_t size = Checksum("").size();
  if (file.size() < size) return absl::DataLossError("the plan is truncated");
  const absl::string_view text = file.substr(0, file.size() - size);
  if (file.substr(text.size()) != Checksum(text)) return absl::DataLossError("the plan's checksum is wrong");
  return std::string(text);
}

}  // namespace mslua
