// Trains a byte-level BPE: which pairs of tokens a text joins most often.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::text {

// Counts the words of texts and makes the file. The same texts in any order give the same file.
class BpeTrainer {
 public:
  // INVALID_ARGUMENT: the offset at which it is not UTF-8.
  Status Add(absl::string_view text);

  // The text of a tokenizer.json: 256 bytes, then merges as they were found, then the special tokens. Fewer than
  // `vocab_size` where no pair occurs twice any more. Of pairs that occur equally often the one with lower ids is
  // joined. INVALID_ARGUMENT: `vocab_size` is less than bytes and special tokens; no text; a special token that is
  // there twice.
  StatusOr<std::string> Train(int64_t vocab_size, const std::vector<std::string>& special) const;

 private:
  absl::flat_hash_map<std::string, int64_t> words_;  // in the alphabet of bytes, with their counts
};

}  // namespace mslua::text
