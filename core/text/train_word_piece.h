// Trains a WordPiece vocabulary as BERT's tokenizers have: pieces that begin a word, and pieces with ## inside one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::text {

// Counts the words of texts and makes the file. The same texts in any order give the same file.
class WordPieceTrainer {
 public:
  // `lowercase`: letters become small and lose their accents, as in the uncased BERT.
  explicit WordPieceTrainer(bool lowercase) : lowercase_(lowercase) {}

  // INVALID_ARGUMENT: the offset at which it is not UTF-8.
  Status Add(absl::string_view text);

  // The text of a tokenizer.json: [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4, `special`, the characters of the texts
  // as begins of words and inside, then pieces as pairs were joined: the most frequent first, of equals the one with
  // lower ids. Of more than 1000 characters the most frequent are taken, the others are unknown. INVALID_ARGUMENT: the
  // special tokens and characters do not fit into `vocab_size`; no text; a special token that is there twice.
  StatusOr<std::string> Train(int64_t vocab_size, const std::vector<std::string>& special) const;

 private:
  const bool lowercase_;
  absl::flat_hash_map<std::string, int64_t> words_;  // with their counts
};

}  // namespace mslua::text
