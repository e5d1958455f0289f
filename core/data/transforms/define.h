// For the files of this folder: each declares one vision transform. The build finds the file by its name, which is the
// transform's kind (docs/howto/add_a_dataset.md).
#pragma once

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

}  // namespace mslua::data
