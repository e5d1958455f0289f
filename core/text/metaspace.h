// The settings that the pre-tokenizer and the decoder Metaspace share.
#pragma once

#include <string>

#include "core/text/part_reader.h"

namespace mslua::text {

struct Metaspace {
  enum class Prepend { kNever, kFirst, kAlways };
  std::string replacement = "\u2581";
  Prepend prepend = Prepend::kAlways;
};

// Old files have add_prefix_space, new ones prepend_scheme.
Metaspace ReadMetaspace(PartReader* reader);

}  // namespace mslua::text
