#include "core/data/dataset.h"

#include <type_traits>

namespace mslua::data {

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
