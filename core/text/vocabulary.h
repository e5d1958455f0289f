// The tokens of a model and their ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/status.h"

namespace mslua::text {

constexpr int64_t kMostTokens = int64_t{1} << 24;  // ids are below it

class Vocabulary {
 public:
  // DATA_LOSS: the id is not in [0, kMostTokens), or the token or the id is there already.
  Status Add(std::string token, int64_t id);
  // -1: not there.
  int32_t Find(absl::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  // Null: no token has this id.
  const std::string* Token(int64_t id) const {
    if (id < 0 || id >= size() || !tokens_[static_cast<size_t>(id)].has_value()) return nullptr;
    return &*tokens_[static_cast<size_t>(id)];
  }
  // The highest id and 1.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<absl::optional<std::string>> tokens_;
};

// A token for a message: quoted, at most 60 bytes.
std::string QuotedToken(absl::string_view token);

}  // namespace mslua::text
