#include "core/text/unigram.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/text/byte_fallback.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

constexpr double kUnknownPenalty = 10;

struct Step {  // the best way to a place
  double score = 0;
  int32_t id = 0;     // of the token that ends there
  int64_t from = -1;  // where that token begins; -1: no way is known
};

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, int32_t unknown, bool byte_fallback,
                 std::vector<bool> matched)
    : scores_(std::move(scores)), unknown_(unknown), byte_fallback_(byte_fallback), nodes_(1) {
  vocabulary_ = std::move(vocabulary);
  double least = std::numeric_limits<double>::max();
  for (size_t id = 0; id < scores_.size(); ++id) {
    least = std::min(least, scores_[id]);
    if (!matched.empty() && !matched[id]) continue;
    uint32_t node = 0;
    for (const char byte : *vocabulary_.Token(static_cast<int64_t>(id))) {
      const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(byte);
      const auto [child, added] = children_.emplace(key, static_cast<uint32_t>(nodes_.size()));
      if (added) nodes_.emplace_back();
      node = child->second;
    }
    nodes_[node].id = static_cast<int32_t>(id);
  }
  nodes_[0].id = -1;
  unknown_score_ = least - kUnknownPenalty;
}

Status Unigram::AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const {
  if (byte_fallback_ && AppendByteTokens(vocabulary_, text, ids)) return absl::OkStatus();
  if (unknown_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the vocabulary has no token for ", QuotedToken(text), ", and no unknown token"));
  }
  ids->push_back(unknown_);
  return absl::OkStatus();
}

Status Unigram::Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const {
  std::vector<Step> best(piece.size() + 1);
  for (size_t begin = 0; begin < piece.size();) {
    const size_t one = CharBytes(piece[begin]);
    bool single = false;  // a token for this character alone
    const auto reach = [&](size_t end, double score, int32_t id) {
      Step& step = best[end];
      if (step.from < 0 || score > step.score) step = {score, id, static_cast<int64_t>(begin)};
    };
    uint32_t node = 0;
    for (size_t end = begin; end < piece.size();) {
      const auto child = children_.find(uint64_t{node} << 8 | static_cast<uint8_t>(piece[end++]));
      if (child == children_.end()) break;
      node = child->second;
      const int32_t id = nodes_[node].id;
      if (id < 0) continue;
      reach(end, best[begin].score + scores_[static_cast<size_t>(id)], id);
      single = single || end - begin == one;
    }
    if (!single) reach(begin + one, best[begin].score + unknown_score_, -1);
    begin += one;
  }
  std::vector<Step> way;
  std::vector<size_t> ends;
  for (size_t end = piece.size(); end > 0; end = static_cast<size_t>(best[end].from)) {
    way.push_back(best[end]);
    ends.push_back(end);
  }
  for (size_t k = way.size(); k-- > 0;) {
    if (way[k].id >= 0 && way[k].id != unknown_) {
      ids->push_back(way[k].id);
      continue;
    }
    const auto begin = static_cast<size_t>(way[k].from);  // several in a row are one
    while (k > 0 && (way[k - 1].id < 0 || way[k - 1].id == unknown_)) --k;
    RETURN_IF_ERROR(AppendUnknown(piece.substr(begin, ends[k] - begin), ids));
  }
  return absl::OkStatus();
}

}  // namespace mslua::text
