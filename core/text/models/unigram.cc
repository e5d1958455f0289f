// Unigram of tokenizer.json: [["<unk>", 0.0], ["▁the", -3.2], ...].
#include "core/text/unigram.h"

#include "absl/strings/str_cat.h"
#include "core/text/define.h"

namespace mslua::text {
namespace {

StatusOr<std::unique_ptr<Model>> Read(PartReader* reader) {
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const Json& entry : reader->List("vocab")) {
    const std::string key = absl::StrCat("vocab[", scores.size(), "]");
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      return reader->Wrong(key, absl::StrCat("expected a token and its score, got ", ShowJson(entry)));
    const Status added = vocabulary.Add(entry[0].get<std::string>(), static_cast<int64_t>(scores.size()));
    if (!added.ok()) return reader->Wrong(key, added.message());
    scores.push_back(entry[1].get<double>());
  }
  const int64_t unknown = reader->Int("unk_id", -1);
  if (unknown >= static_cast<int64_t>(scores.size()) || unknown < -1)
    return reader->Wrong("unk_id", absl::StrCat("expected an id of the vocabulary, got ", unknown));
  const bool byte_fallback = reader->Bool("byte_fallback", false);
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), static_cast<int32_t>(unknown),
                                   byte_fallback);
}

}  // namespace

MSLUA_MODEL(unigram) { return {{"Unigram"}, Read}; }

}  // namespace mslua::text
