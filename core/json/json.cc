#include "core/json/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// Line and column, from 1, of the byte at `position`.
std::string Place(absl::string_view text, size_t position) {
  const absl::string_view before = text.substr(0, std::min(position, text.size()));
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t start = before.rfind('\n');
  const size_t column = start == absl::string_view::npos ? before.size() : before.size() - start - 1;
  return absl::StrCat("line ", line, ", column ", std::max<size_t>(column, 1));
}

// Builds the tree from the parser's events. The library's own callback interface looks through an object again at the
// end of each of its members, which takes quadratic time.
class TreeBuilder {
 public:
  TreeBuilder(absl::string_view text, int depth) : text_(text), depth_(depth) {}

  bool null() { return Put(nullptr) != nullptr; }
  bool boolean(bool value) { return Put(value) != nullptr; }
  bool number_integer(Json::number_integer_t value) { return Put(value) != nullptr; }
  bool number_unsigned(Json::number_unsigned_t value) { return Put(value) != nullptr; }
  bool number_float(Json::number_float_t value, const Json::string_t&) { return Put(value) != nullptr; }
  bool string(Json::string_t& value) { return Put(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(Json::value_t::object); }
  bool start_array(size_t) { return Open(Json::value_t::array); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(Json::string_t& name) {
    const auto [member, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    member_ = &member->second;
    if (!is_new) error_ = absl::DataLossError(absl::StrCat("'", name, "' is given twice"));
    return is_new;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    absl::string_view what = error.what();
    const size_t reason = what.find(": ");
    if (reason != absl::string_view::npos) what.remove_prefix(reason + 2);
    error_ = absl::DataLossError(absl::StrCat("not JSON at ", Place(text_, position), ": ", what));
    return false;
  }

  StatusOr<Json> Take(bool parsed) {
    if (parsed) return std::move(root_);
    return error_.ok() ? absl::DataLossError("not JSON") : error_;
  }

 private:
  template <class Value>
  Json* Put(Value&& value) {
    Json* place = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      place = &open_.back()->get_ref<Json::array_t&>().emplace_back();
    } else if (!open_.empty()) {
      place = member_;
    }
    *place = Json(std::forward<Value>(value));
    return place;
  }
  bool Open(Json::value_t kind) {
    if (static_cast<int>(open_.size()) >= depth_) {
      error_ = absl::DataLossError(absl::StrCat("JSON nested deeper than ", depth_));
      return false;
    }
    open_.push_back(Put(Json(kind)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const absl::string_view text_;
  const int depth_;
  Json root_;
  std::vector<Json*> open_;  // objects and arrays that have not ended, the outermost first
  Json* member_ = nullptr;   // of the innermost object, whose key was read last
  Status error_;
};

}  // namespace

StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.bytes) {
    return absl::DataLossError(absl::StrCat("JSON of ", text.size(), " bytes, at most ", limits.bytes, " are read"));
  }
  if (absl::StartsWith(text, "\xef\xbb\xbf")) {
    return absl::DataLossError("JSON begins with a byte order mark (EF BB BF): save the text as UTF-8 without one");
  }
  // The parser takes a NUL for the end of the text.
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) return absl::DataLossError(absl::StrCat("JSON holds a NUL at byte ", nul));
  TreeBuilder builder(text, limits.depth);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take(parsed);
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string ShowJson(const Json& value) {
  std::string text = DumpJson(value);
  return text.size() <= 60 ? text : absl::StrCat(text.substr(0, 57), "...");
}

}  // namespace mslua
