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

}  // namespace mslua::data
