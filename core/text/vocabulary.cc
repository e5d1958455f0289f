#include "core/text/vocabulary.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace mslua::text {

Status Vocabulary::Add(std::string token, int64_t id) {
  if (id < 0 || id >= kMostTokens) {
    return absl::DataLossError(
        absl::StrCat("token ", QuotedToken(token), ": expected an id in 0..", kMostTokens - 1, ", got ", id));
  }
  if (const std::string* other = Token(id); other != nullptr) {
    return absl::DataLossError(
        absl::StrCat("id ", id, " is given to two tokens, ", QuotedToken(*other), " and ", QuotedToken(token)));
  }
  if (!ids_.emplace(token, static_cast<int32_t>(id)).second)
    return absl::DataLossError(absl::StrCat("token ", QuotedToken(token), " has two ids, ", Find(token), " and ", id));
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = std::move(token);
  return absl::OkStatus();
}

std::string QuotedToken(absl::string_view token) {
  const bool whole = token.size() <= 60;
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(token.substr(0, 60)), whole ? "'" : "'...");
}

}  // namespace mslua::text
