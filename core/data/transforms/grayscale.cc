// Grayscale: luma.
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(grayscale) {
  VisionDef def("grayscale", "Grayscale");
  def.doc = "Shades of grey of an RGB image, 0.2989 r + 0.587 g + 0.114 b, in one channel or in three alike.";
  FieldDef channels{"num_output_channels", FieldType::kInt, "1 or 3", 1};
  channels.limits = Between(1, 3);
  def.fields = {channels};
  def.check = [](const Fields& fields, int64_t c) {
    if (c != 3) return BadField("Grayscale", absl::StrCat("expected an image of 3 channels, got ", c));
    if (fields.Int("num_output_channels") == 2)
      return BadField("Grayscale", "num_output_channels: expected 1 or 3, got 2");
    return absl::OkStatus();
  };
  def.channels = [](const Fields& fields, int64_t) { return fields.Int("num_output_channels"); };
  def.paint = [](const Fields& fields, float bound, SampleDraws*, const Planes& in, Planes* out) {
    PaintGrey(bound, fields.Int("num_output_channels"), in, out);
  };
  return def;
}

}  // namespace mslua::data
