// RandomAdjustSharpness. Follows torchvision.transforms.functional.adjust_sharpness.
#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_adjust_sharpness) {
  VisionDef def("random_adjust_sharpness", "RandomAdjustSharpness");
  def.doc = "Makes the image sharper, with probability `prob`: 0 is blurred, 1 as it is, 2 sharper.";
  FieldDef degree{"degree", FieldType::kNumber, "0: blurred; 1: as it is; 2: sharper"};
  degree.required = true;
  degree.limits = AtLeast(0);
  def.fields = {degree, ProbField()};
  def.draws = 1;
  def.paint = WithProbability([](const Fields& fields, float bound, Planes* image) {
    AdjustSharpness(static_cast<float>(fields.Number("degree")), bound, image);
  });
  return def;
}

}  // namespace mslua::data
