// The key "vocab" of a model: {"the": 464, ...}.
#pragma once

#include "core/text/part_reader.h"
#include "core/text/vocabulary.h"

namespace mslua::text {

// At least one token. The error names the part and the token whose id is none, or is taken.
StatusOr<Vocabulary> ReadVocabulary(PartReader* reader);

}  // namespace mslua::text
