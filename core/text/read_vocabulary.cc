#include "core/text/read_vocabulary.h"

#include "absl/strings/str_cat.h"

namespace mslua::text {

StatusOr<Vocabulary> ReadVocabulary(PartReader* reader) {
  Vocabulary vocabulary;
  for (const auto& [token, id] : reader->Object("vocab").items()) {
    if (CountOf(id) < 0)
      return reader->Wrong("vocab", absl::StrCat(QuotedToken(token), ": expected an id, got ", ShowJson(id)));
    const Status added = vocabulary.Add(token, CountOf(id));
    if (!added.ok()) return reader->Wrong("vocab", added.message());
  }
  if (vocabulary.size() == 0) return reader->Wrong("vocab", "expected tokens with their ids, got none");
  return vocabulary;
}

}  // namespace mslua::text
