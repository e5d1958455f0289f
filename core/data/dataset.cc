#include "core/data/dataset.h"

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace mslua::data {

StatusOr<Usage> ParseUsage(const std::string& name) {
  if (name == "train") return Usage::kTrain;
  if (name == "test") return Usage::kTest;
  if (name == "all") return Usage::kAll;
  return absl::InvalidArgumentError(absl::StrCat("usage: expected train, test or all, got '", name, "'"));
}

Status Generator::Get(int64_t, Row*) {
  return absl::UnimplementedError("this generator is a sequence: it has no element by index");
}
Status Generator::Rewind() {
  return absl::UnimplementedError("this generator has random access: it is not a sequence");
}
StatusOr<bool> Generator::Next(Row*) { return Rewind(); }

const char* Name(const Transform& transform) {
  static constexpr const char* kNames[] = {
      "RandomCrop", "RandomHorizontalFlip", "Resize", "CenterCrop", "Rescale", "Normalize", "HWC2CHW", "TypeCast",
      "OneHot"};
  static_assert(std::size(kNames) == std::variant_size_v<Transform>);
  return kNames[transform.index()];
}

const char* Name(const Op& op) {
  static constexpr const char* kNames[] = {"map",  "shuffle", "batch",  "repeat", "take",
                                           "skip", "project", "rename", "filter"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  return kNames[op.index()];
}

}  // namespace mslua::data
