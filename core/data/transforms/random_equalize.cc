// RandomEqualize. Follows torchvision.transforms.functional.equalize.
#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_equalize) {
  VisionDef def("random_equalize", "RandomEqualize");
  def.doc = "Gives each channel a histogram that is as even as it can be, with probability `prob`.";
  def.fields = {ProbField()};
  def.draws = 1;
  def.paint = WithProbability([](const Fields&, float bound, Planes* image) { Equalize(bound, image); });
  return def;
}

}  // namespace mslua::data
