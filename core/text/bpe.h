// Byte-pair encoding: a piece is split into characters, of which pairs are joined.
#pragma once

#include <string>

#include "core/text/merges.h"
#include "core/text/part.h"

namespace mslua::text {

struct BpeSettings {
  int32_t unknown = -1;        // id of a character that is not in the vocabulary; -1: an error
  bool fuse_unknown = false;   // one for several in a row
  bool byte_fallback = false;  // the tokens of its bytes in its place, where the vocabulary has them
  bool whole_first = false;    // a piece that is a token itself is that token
  std::string prefix, suffix;  // of the characters that do not begin a piece; of the one that ends it
};

class Bpe : public Model {
 public:
  Bpe(Vocabulary vocabulary, Merges merges, BpeSettings settings);
  Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override;

 private:
  const Merges merges_;
  const BpeSettings settings_;
};

}  // namespace mslua::text
