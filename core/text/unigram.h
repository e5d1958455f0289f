// SentencePiece's unigram model: of all ways to split a piece into tokens the one whose scores sum up highest.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/text/part.h"

namespace mslua::text {

class Unigram : public Model {
 public:
  // scores[k] is that of the token of id k. `unknown`: id of characters that no token has; -1: an error.
  // With `byte_fallback` the tokens of their bytes stand in their place, where the vocabulary has them. `matched` tells
  // which tokens may be found in text, empty: all.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, int32_t unknown, bool byte_fallback,
          std::vector<bool> matched = {});
  Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override;

 private:
  struct Node {
    int32_t id = -1;  // of the token that ends here
  };
  Status AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const;

  const std::vector<double> scores_;
  const int32_t unknown_;
  const bool byte_fallback_;
  double unknown_score_ = 0;
  std::vector<Node> nodes_;                           // of the tree of tokens
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // node << 8 | byte -> node
};

}  // namespace mslua::text
