#include "core/data/vision.h"

#include <algorithm>

namespace mslua::data {

std::vector<VisionDef> AllVisionTransforms();  // generated

const std::vector<VisionDef>& VisionTransforms() {
  static const auto* const all = new std::vector<VisionDef>(AllVisionTransforms());
  return *all;
}

const VisionDef* FindVision(const std::string& kind) {
  const auto& all = VisionTransforms();
  const auto it = std::find_if(all.begin(), all.end(), [&](const VisionDef& def) { return def.kind == kind; });
  return it == all.end() ? nullptr : &*it;
}

ImageSize SizeOfResize(const Fields& fields, ImageSize size) {
  const std::vector<double> v = fields.Numbers("size");
  const auto first = static_cast<int64_t>(v[0]);
  if (v.size() == 2) return {first, static_cast<int64_t>(v[1])};
  if (size.height < 0 || size.width < 0) return {-1, -1};
  if (size.height <= size.width) return {first, first * size.width / size.height};
  return {first * size.height / size.width, first};
}

Status CheckSizeOfResize(const Fields& fields) {
  const std::vector<double> v = fields.Numbers("size");
  if ((v.size() == 1 || v.size() == 2) && v[0] >= 1 && v.back() >= 1 && v[0] <= 65536 && v.back() <= 65536)
    return absl::OkStatus();
  return BadField("Resize", "size: expected a number or {height, width}, from 1 to 65536");
}

}  // namespace mslua::data
