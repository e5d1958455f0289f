// For the files of this folder: each declares one vision transform. The build finds the file by its name, which is the
// transform's kind (docs/howto/add_a_dataset.md).
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/data/vision.h"

// core/data/transforms/pad.cc:  MSLUA_VISION(pad) { VisionDef def("pad", "Pad"); ... return def; }
#define MSLUA_VISION(kind) VisionDef Vision_##kind()

namespace mslua::data {

// A field that takes one number or a list, with its default.
inline FieldDef NumbersField(std::string name, std::string doc, FieldValue fallback = {},
                             FieldType type = FieldType::kNumbers) {
  FieldDef field{std::move(name), type, std::move(doc)};
  field.required = std::holds_alternative<std::monostate>(fallback);
  field.fallback = std::move(fallback);
  return field;
}

// The field `prob`.
inline FieldDef ProbField() {
  FieldDef field{"prob", FieldType::kNumber, "how likely it is applied", 0.5};
  field.limits = Between(0, 1);
  return field;
}

// Luma as torchvision computes it.
inline float Luma(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }

// Shades of grey of an image of 3 channels, in so many channels alike. Follows
// torchvision.transforms.functional.rgb_to_grayscale.
inline void PaintGrey(float bound, int64_t channels, const Planes& in, Planes* out) {
  out->Resize(channels, in.height, in.width);
  for (int64_t i = 0; i < in.height * in.width; ++i) {
    const float grey = Luma(in.plane(0)[i], in.plane(1)[i], in.plane(2)[i]);
    for (int64_t c = 0; c < channels; ++c) out->plane(c)[i] = bound == 255 ? std::floor(grey) : grey;
  }
}

// A paint of whole images that is applied with probability `prob`, a field.
inline std::function<void(const Fields&, float, SampleDraws*, const Planes&, Planes*)> WithProbability(
    std::function<void(const Fields& fields, float bound, Planes* image)> change) {
  return [change = std::move(change)](const Fields& fields, float bound, SampleDraws* draws, const Planes& in,
                                      Planes* out) {
    *out = in;
    if (draws->Uniform(0, 1) < fields.Number("prob")) change(fields, bound, out);
  };
}

}  // namespace mslua::data
