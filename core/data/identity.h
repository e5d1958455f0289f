// Which dataset a description describes, as text: equal texts mean that samples are made in the same way of the same
// arguments.
#pragma once

#include <string>

#include "core/data/dataset.h"

namespace mslua::data {

// Of the source with its fields and parts, and of the operations in their order. Files count by their names alone.
std::string IdentityOf(const Dataset& dataset);

}  // namespace mslua::data
