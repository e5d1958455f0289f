// Makes the parts of a tokenizer from their JSON. Null is no part, and gives a null pointer.
// INVALID_ARGUMENT: a type that is not built, together with those that are; a wrong key; each with its place.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/json/json.h"
#include "core/text/part.h"

namespace mslua::text {

// A part of tokenizer.json, from its JSON; `place` names it in errors: "pre_tokenizer". Null where the JSON is null,
// but for a model. InvalidArgument: a type or a key that is not built.
StatusOr<std::unique_ptr<Normalizer>> ReadNormalizer(const Json& json, const std::string& place);
StatusOr<std::unique_ptr<PreTokenizer>> ReadPreTokenizer(const Json& json, const std::string& place);
// A model without a type, as old files have it, is BPE where it has merges, else WordPiece.
StatusOr<std::unique_ptr<Model>> ReadModel(const Json& json, const std::string& place);
StatusOr<std::unique_ptr<PostProcessor>> ReadPostProcessor(const Json& json, const std::string& place);
// `joined`: what comes before it has joined all tokens into one.
StatusOr<std::unique_ptr<Decoder>> ReadDecoder(const Json& json, const std::string& place, bool joined = false);

}  // namespace mslua::text
