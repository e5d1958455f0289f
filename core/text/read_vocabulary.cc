#include "core/text/read_vocabulary.h"

#include "absl/strings/str_cat.h"

namespace mslua::text {

StatusOr<Vocabulary> ReadVocabulary(PartReader* reader) {
  Vocabulary vocabulary;
  for (const auto& [token, id] : reader->Object("vocab").items()) {
    if (!id.is_number_unsigned())
      return reader->Wrong("vocab", absl::StrCat(QuotedToken(token), ": expected an id, got ", ShowJson(id)));
    const Status added = vocabulary.Add(token, static_cast<int64_t>(std::min(id.get<uint64_t>(), uint64_t{1} << 53)));
    if (!added.ok()) return reader->Wrong("vocab", added.message());
  }
  if (vocabulary.size() == 0) return reader->Wrong("vocab", "expected tokens with their ids, got none");
  return vocabulary;
}

}  // namespace mslua::text
