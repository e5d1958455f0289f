#include "core/data/vision.h"

#include <algorithm>

namespace mslua::data {

const VisionDef* FindVision(const std::string& kind) {
  const auto& all = VisionTransforms();
  const auto it = std::find_if(all.begin(), all.end(), [&](const VisionDef& def) { return def.kind == kind; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace mslua::data
