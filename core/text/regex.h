// The regular expressions of tokenizer files, in the syntax that their libraries share (Oniguruma, fancy-regex).
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"

struct pcre2_real_code_8;

namespace mslua::text {

// Any thread may search with one.
class Regex {
 public:
  // INVALID_ARGUMENT with the pattern and the place in it: wrong syntax, or an escape that PCRE2 reads otherwise.
  static StatusOr<Regex> Compile(const std::string& pattern);

  // Calls found(begin, end) for the matches in `text`, which is valid UTF-8, from left to right. An empty match moves
  // on by a character. Fails when `found` does, and when a match takes too much time.
  Status ForEach(absl::string_view text, absl::FunctionRef<Status(size_t begin, size_t end)> found) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::string pattern_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// The pattern that matches `text` itself.
std::string QuotedPattern(absl::string_view text);

}  // namespace mslua::text
