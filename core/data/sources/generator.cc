// Samples that a function makes.
#include "core/data/sources/define.h"

namespace mslua::data {

MSLUA_SOURCE(generator) {
  SourceDef def("generator", "GeneratorDataset");
  def.title = "generator";
  def.doc =
      "Samples that Lua makes: a function that returns an iterator, called each epoch, or, with `length`, "
      "`function(i)` for i from 1. Both give a value for each column: a tensor, a number or a list of numbers.";
  FieldDef source{"source", FieldType::kGenerator, "the function"};
  FieldDef names{"column_names", FieldType::kStrings, "names of the columns"};
  FieldDef length{"length", FieldType::kInt, "samples there are; without it the source returns an iterator"};
  source.required = names.required = true;
  length.limits = AtLeast(1);
  def.fields = {source, names, length};
  return def;
}

}  // namespace mslua::data
