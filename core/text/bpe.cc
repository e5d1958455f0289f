#include "core/text/bpe.h"

#include "absl/strings/str_cat.h"
#include "core/text/byte_fallback.h"
#include "core/text/unicode.h"

namespace mslua::text {

Bpe::Bpe(Vocabulary vocabulary, Merges merges, BpeSettings settings)
    : merges_(std::move(merges)), settings_(std::move(settings)) {
  vocabulary_ = std::move(vocabulary);
}

Status Bpe::Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const {
  if (settings_.whole_first) {
    const int32_t whole = vocabulary_.Find(piece);
    if (whole >= 0) {
      ids->push_back(whole);
      return absl::OkStatus();
    }
  }
  const bool plain = settings_.prefix.empty() && settings_.suffix.empty();
  const size_t begin = ids->size();
  bool after_unknown = false;
  std::string affixed;
  for (size_t at = 0; at < piece.size();) {
    const absl::string_view c = piece.substr(at, CharBytes(piece[at]));
    int32_t id;
    if (plain) {
      id = vocabulary_.Find(c);
    } else {
      const bool last = at + c.size() == piece.size();
      affixed = absl::StrCat(at > 0 ? settings_.prefix : "", c, last ? settings_.suffix : "");
      id = vocabulary_.Find(affixed);
    }
    at += c.size();
    const bool unknown = id < 0 && !(settings_.byte_fallback && AppendByteTokens(vocabulary_, c, ids));
    if (unknown && settings_.unknown < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the vocabulary has no token for ", QuotedToken(c), ", and no unknown token"));
    }
    if (id >= 0) ids->push_back(id);
    if (unknown && !(after_unknown && settings_.fuse_unknown)) ids->push_back(settings_.unknown);
    after_unknown = unknown;
  }
  merges_.Apply(ids, begin);
  return absl::OkStatus();
}

}  // namespace mslua::text
