// Which pairs of neighbouring tokens the words of a text have, for the training of BPE and WordPiece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace mslua::text {

using Pair = std::pair<int32_t, int32_t>;

struct Word {
  std::vector<int32_t> ids;
  int64_t count = 0;  // how often the text has it
};

// The words of a text and where their pairs are.
class Pairs {
 public:
  explicit Pairs(std::vector<Word> words);

  // The pair that occurs most often, of equals the one with lower ids; false: none occurs twice.
  bool Best(Pair* pair);
  // Puts `id` in the place of the pair.
  void Join(Pair pair, int32_t id);

 private:
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  // Adds the pairs of word k to the counts, or takes them away.
  void Count(size_t k, int sign);

  std::vector<Word> words_;
  absl::flat_hash_map<Pair, int64_t> counts_;
  absl::flat_hash_map<Pair, absl::flat_hash_set<size_t>> places_;  // words that have it, or had it
  std::set<Pair> changed_;                                         // pairs that may occur more often than before
  std::priority_queue<Candidate> queue_;                           // no count in it is too low
};

}  // namespace mslua::text
