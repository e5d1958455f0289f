// For the files of the folders normalizers, pre_tokenizers, models, post_processors and decoders: each declares one
// part. The build finds the file by its folder (docs/howto/tokenizers.md).
//
//   core/text/normalizers/lowercase.cc:
//   MSLUA_NORMALIZER(lowercase) { return {{"Lowercase"}, [](PartReader*) { return std::make_unique<Lowercase>(); }}; }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/text/part.h"
#include "core/text/part_reader.h"

#define MSLUA_NORMALIZER(name) NormalizerDef Normalizer_##name()
#define MSLUA_PRE_TOKENIZER(name) PreTokenizerDef PreTokenizer_##name()
#define MSLUA_MODEL(name) ModelDef Model_##name()
#define MSLUA_POST_PROCESSOR(name) PostProcessorDef PostProcessor_##name()
#define MSLUA_DECODER(name) DecoderDef Decoder_##name()

namespace mslua::text {

template <class Part>
struct PartDef {
  std::vector<std::string> types;  // values of "type" in tokenizer.json
  // Makes the part from its object. Mistakes of single keys go to the reader, whose status the caller looks at.
  std::function<StatusOr<std::unique_ptr<Part>>(PartReader* reader)> read;
};

using NormalizerDef = PartDef<Normalizer>;
using PreTokenizerDef = PartDef<PreTokenizer>;
using ModelDef = PartDef<Model>;
using PostProcessorDef = PartDef<PostProcessor>;
using DecoderDef = PartDef<Decoder>;

}  // namespace mslua::text
