// SentencePiece's table of replacements (precompiled_charsmap): a double array of prefixes, and the texts that stand in
// their place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/status.h"

namespace mslua::text {

class Charsmap {
 public:
  // DATA_LOSS: truncated, or texts that are not UTF-8.
  static StatusOr<Charsmap> Read(absl::string_view blob);

  struct Match {
    size_t bytes = 0;  // of the prefix that is replaced
    absl::string_view text;
  };
  // The shortest or the longest prefix of `text` that has a replacement; none: there is none.
  absl::optional<Match> Find(absl::string_view text, bool longest) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a NUL
};

}  // namespace mslua::text
