#include "core/text/pairs.h"

namespace mslua::text {

Pairs::Pairs(std::vector<Word> words) : words_(std::move(words)) {
  for (size_t k = 0; k < words_.size(); ++k) Count(k, 1);
  for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  changed_.clear();
}

bool Pairs::Best(Pair* pair) {
  while (!queue_.empty()) {
    const Candidate best = queue_.top();
    queue_.pop();
    const int64_t now = counts_[best.pair];
    if (now == best.count && now >= 2) {
      *pair = best.pair;
      return true;
    }
    if (now < best.count && now >= 2) queue_.push({now, best.pair});
  }
  return false;
}

void Pairs::Join(Pair pair, int32_t id) {
  const absl::flat_hash_set<size_t> places = std::move(places_[pair]);
  places_.erase(pair);
  for (const size_t k : places) {
    Count(k, -1);
    std::vector<int32_t>& ids = words_[k].ids;
    size_t to = 0;
    for (size_t from = 0; from < ids.size(); ++to) {
      const bool joined = from + 1 < ids.size() && ids[from] == pair.first && ids[from + 1] == pair.second;
      ids[to] = joined ? id : ids[from];
      from += joined ? 2 : 1;
    }
    ids.resize(to);
    Count(k, 1);
  }
  for (const Pair& grown : changed_) queue_.push({counts_[grown], grown});
  changed_.clear();
}

void Pairs::Count(size_t k, int sign) {
  const Word& word = words_[k];
  for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
    const Pair pair{word.ids[i], word.ids[i + 1]};
    counts_[pair] += sign * word.count;
    if (sign < 0) continue;
    places_[pair].insert(k);
    changed_.insert(pair);
  }
}

}  // namespace mslua::text
