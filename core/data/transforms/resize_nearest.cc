// Resize to the nearest pixel: values stay as they are, as those of a mask of classes must. In Lua it is Resize with
// interpolation = "nearest".
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(resize_nearest) {
  VisionDef def("resize_nearest", "ResizeNearest");
  def.doc = "Scales the image, to the nearest pixel.";
  def.fields = {NumbersField("size", "{height, width}, or one number for the shorter edge", {}, FieldType::kInts)};
  def.resizes = true;
  def.check = [](const Fields& fields, int64_t) { return CheckSizeOfResize(fields); };
  def.size = SizeOfResize;
  def.move = [](const Fields& fields, SampleDraws*, const ImageTaps& taps) {
    const ImageSize size =
        SizeOfResize(fields, {static_cast<int64_t>(taps.rows->size()), static_cast<int64_t>(taps.columns->size())});
    TakeNearest(size.height, taps.rows, taps.spare);
    TakeNearest(size.width, taps.columns, taps.spare);
  };
  return def;
}

}  // namespace mslua::data
