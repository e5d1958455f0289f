// The pairs of tokens that byte-pair encoding joins.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "core/text/vocabulary.h"

namespace mslua::text {

class Merges {
 public:
  struct Result {
    int32_t rank, id;
  };

  // `left` and `right` next to each other become `id`. Of several pairs that of the lowest rank is joined first, of
  // equal ranks the leftmost one. A pair that is there already keeps its first rank.
  void Add(int32_t left, int32_t right, Result result) { pairs_.emplace(Key(left, right), result); }
  bool empty() const { return pairs_.empty(); }
  size_t size() const { return pairs_.size(); }

  // Joins pairs of ids[begin..] until none is left. O(n log n).
  void Apply(std::vector<int32_t>* ids, size_t begin) const;

  // Adds all pairs whose joined token is in the vocabulary: `ranks` has the tokens, each with its rank. Splits fall
  // between characters of UTF-8 where `characters`.
  void AddSplits(const Vocabulary& vocabulary, absl::Span<const Result> ranks, bool characters);

 private:
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Result* Find(int32_t left, int32_t right) const {
    const auto found = pairs_.find(Key(left, right));
    return found == pairs_.end() ? nullptr : &found->second;
  }
  absl::flat_hash_map<uint64_t, Result> pairs_;
};

}  // namespace mslua::text
