#include "core/data/stand_in.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/base/text.h"

namespace mslua::data {

std::vector<std::string> StandIns() {
  std::vector<std::string> kinds;
  for (const SourceDef& def : Sources()) {
    if (def.make != nullptr) kinds.push_back(def.kind);
  }
  return kinds;
}

Status MakeStandIn(const std::string& kind, const std::string& path, const MakeOptions& options) {
  for (const SourceDef& def : Sources()) {
    if (def.kind == kind && def.make != nullptr) return def.make(path, options);
  }
  const std::vector<std::string> kinds = StandIns();
  return absl::InvalidArgumentError(
      absl::StrCat("data make: expected ", JoinOr(kinds), ", got '", kind, "'", DidYouMean(kind, kinds)));
}

Status PrepareStandIn(const std::string& path, const std::vector<std::string>& files, const MakeOptions& options) {
  if (options.train < 1 || options.test < 1 || std::max(options.train, options.test) > 100'000'000) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data make: expected at least one training and one test sample, got ", options.train, " and ", options.test));
  }
  RETURN_IF_ERROR(MakeFolders(path));
  for (const std::string& file : files) {
    if (IsFile(absl::StrCat(path, "/", file))) {
      return absl::AlreadyExistsError(
          absl::StrCat("data make: ", path, "/", file, " exists and is kept; choose another folder or remove it"));
    }
  }
  return absl::OkStatus();
}

SampleDraws StandInDraws(uint64_t seed, absl::string_view part, int64_t sample) {
  return SampleDraws(seed, StreamOf(part), static_cast<uint64_t>(sample) * kStandInNumbers);
}

uint8_t Pixel(double value) { return static_cast<uint8_t>(std::min(std::max(value, 0.0), 255.0)); }

}  // namespace mslua::data
