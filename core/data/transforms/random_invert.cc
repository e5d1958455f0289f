// RandomInvert.
#include "core/data/transforms/define.h"
#include "core/data/vision.h"

namespace mslua::data {

MSLUA_VISION(random_invert) {
  VisionDef def("random_invert", "RandomInvert");
  def.doc = "Inverts all values, 255 - v of integers and 1 - v of others, with probability `prob`.";
  def.fields = {ProbField()};
  def.draws = 1;
  def.paint = WithProbability([](const Fields&, float bound, Planes* image) {
    for (float& v : image->values) v = bound - v;
  });
  return def;
}

}  // namespace mslua::data
