#include "core/data/dataset.h"

#include <type_traits>

#include "core/data/vision.h"

namespace mslua::data {

const char* Name(const Transform& transform) {
  static constexpr const char* kNames[] = {
      "RandomCrop", "RandomHorizontalFlip", "Resize", "CenterCrop", "Rescale", "Normalize", "HWC2CHW", "TypeCast",
      "OneHot"};
  static_assert(std::size(kNames) + 1 == std::variant_size_v<Transform>);
  if (const auto* vision = std::get_if<Vision>(&transform)) {
    const VisionDef* def = FindVision(vision->kind);
    return def == nullptr ? "map" : def->class_name.c_str();
  }
  return kNames[transform.index()];
}

const char* Name(const Op& op) {
  static constexpr const char* kNames[] = {"map",     "shuffle", "batch",  "repeat",   "take", "skip",
                                           "project", "rename",  "filter", "weighted", "map",  "map"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  const auto* batch = std::get_if<BatchOp>(&op);
  if (batch != nullptr && batch->buckets != nullptr) return "bucket_batch_by_length";
  if (batch != nullptr && !batch->padding.empty()) return "padded_batch";
  return kNames[op.index()];
}

}  // namespace mslua::data
