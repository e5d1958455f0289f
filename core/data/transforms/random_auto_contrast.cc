// RandomAutoContrast. Follows torchvision.transforms.functional.autocontrast.
#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_auto_contrast) {
  VisionDef def("random_auto_contrast", "RandomAutoContrast");
  def.doc = "Stretches each channel to the whole range, with probability `prob`.";
  def.fields = {ProbField()};
  def.draws = 1;
  def.paint = WithProbability([](const Fields&, float bound, Planes* image) { AutoContrast(bound, image); });
  return def;
}

}  // namespace mslua::data
