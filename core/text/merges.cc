#include "core/text/merges.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "core/text/unicode.h"

namespace mslua::text {
namespace {

struct Symbol {
  int32_t id;  // -1: joined with the one before it
  int32_t previous, next;
};

struct Candidate {
  int32_t rank, place;
  int32_t left, right, id;
  bool operator<(const Candidate& other) const { return std::tie(rank, place) > std::tie(other.rank, other.place); }
};

}  // namespace

void Merges::Apply(std::vector<int32_t>* ids, size_t begin) const {
  const auto n = static_cast<int32_t>(ids->size() - begin);
  if (n < 2) return;
  std::vector<Symbol> symbols(static_cast<size_t>(n));
  for (int32_t k = 0; k < n; ++k)
    symbols[static_cast<size_t>(k)] = {(*ids)[begin + static_cast<size_t>(k)], k - 1, k + 1 < n ? k + 1 : -1};
  const auto at = [&symbols](int32_t k) -> Symbol& { return symbols[static_cast<size_t>(k)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    const int32_t right = at(left).next;
    const Result* result = Find(at(left).id, at(right).id);
    if (result != nullptr) queue.push({result->rank, left, at(left).id, at(right).id, result->id});
  };
  for (int32_t k = 0; k + 1 < n; ++k) consider(k);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.place);
    if (left.id != best.left || left.next < 0 || at(left.next).id != best.right) continue;
    Symbol& right = at(left.next);
    left.id = best.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = best.place;
    consider(left.previous);
    consider(best.place);
  }
  ids->resize(begin);
  for (int32_t k = 0; k >= 0; k = at(k).next) ids->push_back(at(k).id);
}

void Merges::AddSplits(const Vocabulary& vocabulary, absl::Span<const Result> ranks, bool characters) {
  for (const Result& result : ranks) {
    const absl::string_view token = *vocabulary.Token(result.id);
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (characters && (static_cast<uint8_t>(token[cut]) & 0xc0) == 0x80) continue;
      const int32_t left = vocabulary.Find(token.substr(0, cut));
      const int32_t right = left < 0 ? -1 : vocabulary.Find(token.substr(cut));
      if (right >= 0) Add(left, right, result);
    }
  }
}

}  // namespace mslua::text
