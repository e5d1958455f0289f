#include "core/text/parts.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/text/define.h"

namespace mslua::text {

std::vector<NormalizerDef> AllNormalizers();
std::vector<PreTokenizerDef> AllPreTokenizers();
std::vector<ModelDef> AllModels();
std::vector<PostProcessorDef> AllPostProcessors();
std::vector<DecoderDef> AllDecoders();

namespace {

template <class Part>
StatusOr<std::unique_ptr<Part>> ReadPart(const std::vector<PartDef<Part>>& defs, absl::string_view what,
                                         const std::string& type, PartReader* reader) {
  std::vector<std::string> built;
  for (const PartDef<Part>& def : defs) {
    built.insert(built.end(), def.types.begin(), def.types.end());
    if (std::find(def.types.begin(), def.types.end(), type) == def.types.end()) continue;
    auto part = def.read(reader);
    RETURN_IF_ERROR(reader->mistake());
    if (part.ok()) RETURN_IF_ERROR(reader->status());
    return part;
  }
  std::sort(built.begin(), built.end());
  return reader->Wrong(
      "", absl::StrCat("the ", what, " '", type, "' is not built; built are ", absl::StrJoin(built, ", ")));
}

}  // namespace

StatusOr<std::unique_ptr<Normalizer>> ReadNormalizer(const Json& json, const std::string& place) {
  static const auto* const defs = new std::vector<NormalizerDef>(AllNormalizers());
  if (json.is_null()) return nullptr;
  PartReader reader(json, place);
  return ReadPart(*defs, "normalizer", reader.String("type"), &reader);
}

StatusOr<std::unique_ptr<PreTokenizer>> ReadPreTokenizer(const Json& json, const std::string& place) {
  static const auto* const defs = new std::vector<PreTokenizerDef>(AllPreTokenizers());
  if (json.is_null()) return nullptr;
  PartReader reader(json, place);
  return ReadPart(*defs, "pre-tokenizer", reader.String("type"), &reader);
}

StatusOr<std::unique_ptr<Model>> ReadModel(const Json& json, const std::string& place) {
  static const auto* const defs = new std::vector<ModelDef>(AllModels());
  PartReader reader(json, place);
  return ReadPart(*defs, "model", reader.String("type", reader.Get("merges") != nullptr ? "BPE" : "WordPiece"),
                  &reader);
}

StatusOr<std::unique_ptr<PostProcessor>> ReadPostProcessor(const Json& json, const std::string& place) {
  static const auto* const defs = new std::vector<PostProcessorDef>(AllPostProcessors());
  if (json.is_null()) return nullptr;
  PartReader reader(json, place);
  return ReadPart(*defs, "post-processor", reader.String("type"), &reader);
}

StatusOr<std::unique_ptr<Decoder>> ReadDecoder(const Json& json, const std::string& place, bool joined) {
  static const auto* const defs = new std::vector<DecoderDef>(AllDecoders());
  if (json.is_null()) return nullptr;
  PartReader reader(json, place);
  reader.joined = joined;
  return ReadPart(*defs, "decoder", reader.String("type"), &reader);
}

}  // namespace mslua::text
