#include "core/text/added_tokens.h"

#include <algorithm>

#include "core/text/unicode.h"

namespace mslua::text {
namespace {

// Whether the character that ends at `at`, or begins there, is part of a word.
bool WordBefore(absl::string_view text, size_t at) {
  if (at == 0) return false;
  do --at;
  while ((static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
  return IsWord(NextChar(text, &at));
}
bool WordAt(absl::string_view text, size_t at) { return at < text.size() && IsWord(NextChar(text, &at)); }

size_t WithoutSpaceBefore(absl::string_view text, size_t least, size_t at) {
  while (at > least) {
    size_t before = at;
    do --before;
    while ((static_cast<uint8_t>(text[before]) & 0xc0) == 0x80);
    size_t end = before;
    if (!IsWhitespace(NextChar(text, &end))) break;
    at = before;
  }
  return at;
}

size_t WithoutSpaceBehind(absl::string_view text, size_t at) {
  while (at < text.size()) {
    size_t end = at;
    if (!IsWhitespace(NextChar(text, &end))) break;
    at = end;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::Add(std::string content, const AddedToken& token) {
  if (content.empty()) return;
  first_bytes_[static_cast<uint8_t>(content[0])] = true;
  if (std::find(lengths_.begin(), lengths_.end(), content.size()) == lengths_.end()) {
    lengths_.push_back(content.size());
    std::sort(lengths_.rbegin(), lengths_.rend());
  }
  tokens_.emplace(std::move(content), token);
}

const AddedToken* AddedTokenFinder::Find(absl::string_view text, size_t at, bool with_special, size_t* bytes) const {
  for (const size_t length : lengths_) {
    if (length > text.size() - at) continue;
    const auto found = tokens_.find(text.substr(at, length));
    if (found == tokens_.end() || (found->second.special && !with_special)) continue;
    if (found->second.single_word && (WordBefore(text, at) || WordAt(text, at + length))) continue;
    *bytes = length;
    return &found->second;
  }
  return nullptr;
}

Status AddedTokenFinder::Split(absl::string_view text, bool with_special,
                               absl::FunctionRef<Status(const Part&)> out) const {
  size_t before = 0;
  for (size_t at = 0; at < text.size();) {
    size_t bytes = 0;
    const AddedToken* token =
        first_bytes_[static_cast<uint8_t>(text[at])] ? Find(text, at, with_special, &bytes) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t begin = token->lstrip ? WithoutSpaceBefore(text, before, at) : at;
    at += bytes;
    if (token->rstrip) at = WithoutSpaceBehind(text, at);
    if (begin > before) RETURN_IF_ERROR(out({text.substr(before, begin - before)}));
    RETURN_IF_ERROR(out({text.substr(begin, at - begin), token}));
    before = at;
  }
  if (before < text.size()) RETURN_IF_ERROR(out({text.substr(before)}));
  return absl::OkStatus();
}

}  // namespace mslua::text
