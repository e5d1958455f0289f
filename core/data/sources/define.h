// For the files of this folder: each declares one source of samples. The build finds the file by its name, which is the
// source's kind (docs/howto/add_a_dataset.md).
#pragma once

#include <string>
#include <utility>

#include "core/data/source.h"

// core/data/sources/mnist.cc:  MSLUA_SOURCE(mnist) { SourceDef def("mnist", "MnistDataset"); ... return def; }
#define MSLUA_SOURCE(kind) SourceDef Source_##kind()

namespace mslua::data {

// Which of a dataset's parts: its training samples, its test samples, or both in this order.
enum class Usage { kTrain, kTest, kAll };

// The field `usage`, and its value.
inline FieldDef UsageField() {
  FieldDef field{"usage", FieldType::kString, "which samples: of training, of the test, or both in this order",
                 "train"};
  field.choices = {"train", "test", "all"};
  return field;
}
inline Usage UsageOf(const Fields& fields) {
  const std::string usage = fields.String("usage");
  return usage == "train" ? Usage::kTrain : usage == "test" ? Usage::kTest : Usage::kAll;
}

// The required field that names the folder or file.
inline FieldDef PathField(std::string name, std::string doc, FieldType type = FieldType::kString) {
  FieldDef field{std::move(name), type, std::move(doc)};
  field.required = field.path = true;
  return field;
}

}  // namespace mslua::data
