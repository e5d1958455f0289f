#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/regex.h"

#include <pcre2.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

constexpr size_t kLongestPattern = 1 << 14;
constexpr uint32_t kMatchLimit = 10'000'000;

// What an escape is in PCRE2, within brackets and outside; null: it means the same there.
struct Escape {
  char letter;
  const char *inside, *outside;
};
constexpr Escape kEscapes[] = {
    {'s', R"(\p{White_Space})", R"(\p{White_Space})"},
    {'S', R"(\P{White_Space})", R"(\P{White_Space})"},
    {'d', R"(\p{Nd})", R"(\p{Nd})"},
    {'D', R"(\P{Nd})", R"(\P{Nd})"},
    {'w', R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})", R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])"},
    {'W', nullptr, R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])"},
    {'v', R"(\x0b)", R"(\x0b)"},
};

// The pattern as PCRE2 reads it.
StatusOr<std::string> Translated(const std::string& pattern) {
  std::string out;
  bool inside = false;  // brackets
  size_t first = 0;     // where they begin: there a ] is a character
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '[' && inside)
      return absl::InvalidArgumentError(absl::StrCat("byte ", i, ": brackets in brackets are not built; write \\["));
    if (c == '[') {
      inside = true;
      first = i + 1;
      if (first < pattern.size() && pattern[first] == '^') ++first;
    }
    if (c == ']' && i != first) inside = false;
    if (c != '\\') {
      out.push_back(c);
      continue;
    }
    if (++i == pattern.size()) return absl::InvalidArgumentError("a backslash at the end");
    const char letter = pattern[i];
    const Escape* known = nullptr;
    for (const Escape& escape : kEscapes) {
      if (escape.letter == letter) known = &escape;
    }
    const char* text = known == nullptr ? nullptr : inside ? known->inside : known->outside;
    if (text != nullptr) {
      out += text;
    } else if (known == nullptr && (!absl::ascii_isalnum(static_cast<unsigned char>(letter)) ||
                                    absl::string_view("pPrntfbBx0").find(letter) != absl::string_view::npos)) {
      out += {'\\', letter};
    } else {
      return absl::InvalidArgumentError(absl::StrCat("byte ", i - 1, ": the escape \\", std::string(1, letter),
                                                     inside ? " in brackets" : "", " is not built"));
    }
  }
  return out;
}

std::string MessageOf(int error) {
  PCRE2_UCHAR text[200];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

StatusOr<Regex> Regex::Compile(const std::string& pattern) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("regular expression '", pattern.substr(0, 400), "': ", why));
  };
  if (pattern.size() > kLongestPattern) return wrong(absl::StrCat("longer than ", kLongestPattern, " bytes"));
  if (FindInvalidUtf8(pattern) != absl::string_view::npos) return wrong("not UTF-8");
  const StatusOr<std::string> translated = Translated(pattern);
  if (!translated.ok()) return wrong(translated.status().message());
  int error = 0;
  PCRE2_SIZE place = 0;
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr));
  if (regex.code_ == nullptr) return wrong(absl::StrCat(MessageOf(error), " at byte ", place));
  pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
  return regex;
}

Status Regex::ForEach(absl::string_view text, absl::FunctionRef<Status(size_t, size_t)> found) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
  size_t compiled = 0;  // bytes of machine code
  pcre2_pattern_info(code_.get(), PCRE2_INFO_JITSIZE, &compiled);
  const auto search = compiled > 0 ? pcre2_jit_match : pcre2_match;
  for (size_t at = 0; at <= text.size();) {
    int n = search(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (n == PCRE2_ERROR_JIT_STACKLIMIT) {
      n = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(),
                      context.get());
    }
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("regular expression '", pattern_, "': byte ", at, " of the text: ", MessageOf(n)));
    }
    const size_t begin = ends[0], end = ends[1];
    if (end > begin) RETURN_IF_ERROR(found(begin, end));
    at = end > begin ? end : end < text.size() ? end + CharBytes(text[end]) : end + 1;
  }
  return absl::OkStatus();
}

std::string QuotedPattern(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_' && static_cast<uint8_t>(c) < 0x80 && !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c > ' ')
      out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace mslua::text
