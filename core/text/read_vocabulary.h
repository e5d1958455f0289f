// The key "vocab" of a model: {"the": 464, ...}.
#pragma once

#include "core/text/part_reader.h"
#include "core/text/vocabulary.h"

namespace mslua::text {

StatusOr<Vocabulary> ReadVocabulary(PartReader* reader);

}  // namespace mslua::text
