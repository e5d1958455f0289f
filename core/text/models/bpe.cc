// BPE of tokenizer.json, of bytes or with a fallback to bytes.
#include "core/text/bpe.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/read_vocabulary.h"

namespace mslua::text {
namespace {

// The two tokens of "a b" or ["a", "b"].
bool PairOf(const Json& merge, std::string* left, std::string* right) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    *left = merge[0].get<std::string>();
    *right = merge[1].get<std::string>();
    return true;
  }
  if (!merge.is_string()) return false;
  const std::string& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return false;
  *left = text.substr(0, space);
  *right = text.substr(space + 1);
  return true;
}

StatusOr<Merges> ReadMerges(PartReader* reader, const Vocabulary& vocabulary, const std::string& prefix) {
  Merges merges;
  int32_t rank = 0;
  if (reader->Get("merges") == nullptr) return reader->Wrong("merges", "expected a list of pairs, which is missing");
  for (const Json& merge : reader->List("merges")) {
    const std::string key = absl::StrCat("merges[", rank, "]");
    std::string left, right;
    if (!PairOf(merge, &left, &right))
      return reader->Wrong(key, absl::StrCat("expected two tokens, got ", ShowJson(merge)));
    const std::string joined = left + (absl::StartsWith(right, prefix) ? right.substr(prefix.size()) : right);
    const std::string* const tokens[] = {&left, &right, &joined};
    int32_t ids[3];
    for (int k = 0; k < 3; ++k) {
      ids[k] = vocabulary.Find(*tokens[k]);
      if (ids[k] < 0) return reader->Wrong(key, absl::StrCat("the vocabulary has no token ", QuotedToken(*tokens[k])));
    }
    merges.Add(ids[0], ids[1], {rank++, ids[2]});
  }
  return merges;
}

StatusOr<std::unique_ptr<Model>> Read(PartReader* reader) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(reader));
  BpeSettings settings;
  settings.prefix = reader->String("continuing_subword_prefix", "");
  settings.suffix = reader->String("end_of_word_suffix", "");
  settings.fuse_unknown = reader->Bool("fuse_unk", false);
  settings.byte_fallback = reader->Bool("byte_fallback", false);
  settings.whole_first = reader->Bool("ignore_merges", false);
  const Json* dropout = reader->Get("dropout");
  if (dropout != nullptr && *dropout != 0)
    return reader->Wrong("dropout",
                         absl::StrCat("merges that are left out at random are not built, got ", ShowJson(*dropout)));
  const std::string unknown = reader->String("unk_token", "");
  if (!unknown.empty()) {
    settings.unknown = vocabulary.Find(unknown);
    if (settings.unknown < 0)
      return reader->Wrong("unk_token", absl::StrCat("the vocabulary has no token ", QuotedToken(unknown)));
  }
  ASSIGN_OR_RETURN(Merges merges, ReadMerges(reader, vocabulary, settings.prefix));
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), std::move(settings));
}

}  // namespace

MSLUA_MODEL(bpe) { return {{"BPE"}, Read}; }

}  // namespace mslua::text
