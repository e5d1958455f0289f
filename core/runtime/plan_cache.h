// A cache of what earlier compiles decided, kept between runs, so that a restart neither searches nor tunes again.
// Files hold decisions, never code: text, named by the hash of everything that they depend on.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/status.h"

namespace mslua {

class PlanCache {
 public:
  // Files in `folder`, which is made when something is kept; empty: nothing is kept or found.
  explicit PlanCache(std::string folder) : folder_(std::move(folder)) {}
  // "plans" in UserCacheFolder(); empty where there is none.
  static std::string UserFolder();

  // The key of what depends on `parts`: what is decided ("tune", "search"), the machine and build, the graph, options.
  static std::string Key(absl::Span<const absl::string_view> parts);

  // What was kept under the key. A damaged file is as good as none; it is replaced when the key is kept again.
  absl::optional<std::string> Find(const std::string& key) const;
  // Whole or not at all, safe beside other processes. The oldest files go when there are more than kMostFiles.
  Status Keep(const std::string& key, absl::string_view text) const;

  static constexpr int kMostFiles = 256;

 private:
  std::string PathOf(const std::string& key) const;
  std::string folder_;
};

// The contents of a cache file: a head line, the text, its checksum. Pure; DATA_LOSS says what is wrong.
std::string WrapPlan(absl::string_view text);
StatusOr<std::string> UnwrapPlan(absl::string_view file);

}  // namespace mslua
