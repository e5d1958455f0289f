// RandomVerticalFlip.
#include <algorithm>

#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_vertical_flip) {
  VisionDef def("random_vertical_flip", "RandomVerticalFlip");
  def.doc = "Mirrors top and bottom with probability `prob`.";
  def.fields = {ProbField()};
  def.draws = 1;
  def.move = [](const Fields& fields, SampleDraws* draws, const ImageTaps& taps) {
    if (draws->Uniform(0, 1) < fields.Number("prob")) std::reverse(taps.rows->begin(), taps.rows->end());
  };
  return def;
}

}  // namespace mslua::data
