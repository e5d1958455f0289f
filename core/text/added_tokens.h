// Tokens that are found in text before it is split: [MASK], <|endoftext|>.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the whitespace before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in normalized text, else in the user's
  bool special = false;      // stands for no text: a decoder may leave it out
};

// Looks for some of them. Where several begin at one place the longest is found.
class AddedTokenFinder {
 public:
  void Add(std::string content, const AddedToken& token);

  // A part of a text: a token, or the text between two.
  struct Part {
    absl::string_view text;
    const AddedToken* token = nullptr;
  };
  // Calls `out` for the parts of `text` in their order, none empty.
  Status Split(absl::string_view text, bool with_special, absl::FunctionRef<Status(const Part&)> out) const;

 private:
  // Null, or the token at `at`.
  const AddedToken* Find(absl::string_view text, size_t at, bool with_special, size_t* bytes) const;

  absl::flat_hash_map<std::string, AddedToken> tokens_;
  std::array<bool, 256> first_bytes_{};
  std::vector<size_t> lengths_;  // of all tokens, from the longest
};

}  // namespace mslua::text
