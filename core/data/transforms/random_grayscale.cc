// RandomGrayscale.
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_grayscale) {
  VisionDef def("random_grayscale", "RandomGrayscale");
  def.doc = "Shades of grey with probability `prob`, in three channels alike.";
  FieldDef prob = ProbField();
  prob.fallback = 0.1;
  def.fields = {prob};
  def.draws = 1;
  def.check = [](const Fields&, int64_t c) {
    return c == 3 ? absl::OkStatus()
                  : BadField("RandomGrayscale", absl::StrCat("expected an image of 3 channels, got ", c));
  };
  def.paint = WithProbability([](const Fields&, float bound, Planes* image) {
    const Planes colours = *image;
    PaintGrey(bound, 3, colours, image);
  });
  return def;
}

}  // namespace mslua::data
