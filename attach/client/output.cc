#include "attach/client/output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attach/client/connection.h"
#include "core/base/printable.h"
#include "nlohmann/json.hpp"

namespace mslua::repl {
namespace {

using Json = nlohmann::ordered_json;

std::string CsvField(const Json& value) {
  std::string text =
      value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// The rows to be shown: objects.
std::vector<const Json*> RowsOf(const Json& json) {
  std::vector<const Json*> rows;
  for (const auto& member : json.items()) {
    if (!member.value().is_array() || member.value().empty()) continue;
    for (const Json& row : member.value()) {
      if (row.is_object()) rows.push_back(&row);
    }
    if (!rows.empty()) return rows;
  }
  return {&json};
}

}  // namespace

StatusOr<std::string> ToCsv(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("this answer is text alone, with no values for .mode csv");
  const std::vector<const Json*> rows = RowsOf(json);
  std::vector<std::string> names;
  for (const Json* row : rows) {
    for (const auto& member : row->items()) {
      if (std::find(names.begin(), names.end(), member.key()) == names.end()) names.push_back(member.key());
    }
  }
  std::vector<std::string> lines = {
      absl::StrJoin(names, ",", [](std::string* out, const std::string& name) { *out += CsvField(name); })};
  for (const Json* row : rows) {
    std::vector<std::string> fields;
    for (const std::string& name : names) fields.push_back(row->contains(name) ? CsvField((*row)[name]) : "");
    lines.push_back(absl::StrJoin(fields, ","));
  }
  return absl::StrJoin(lines, "\n");
}

Output::~Output() {
  if (file_ != nullptr) std::fclose(file_);
}

StatusOr<bool> Output::Command(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.empty() || (words[0] != ".mode" && words[0] != ".output")) return false;
  if (words.size() > 2) return absl::InvalidArgumentError("usage: .mode table|json|csv, .output [FILE]");
  const std::string argument = words.size() == 2 ? words[1] : "";
  if (words[0] == ".mode") {
    if (argument == "table")
      mode_ = Mode::kTable;
    else if (argument == "json")
      mode_ = Mode::kJson;
    else if (argument == "csv")
      mode_ = Mode::kCsv;
    else
      return absl::InvalidArgumentError("usage: .mode table|json|csv");
    return true;
  }
  std::FILE* file = nullptr;
  if (!argument.empty()) {
    file = std::fopen(argument.c_str(), "we");
    if (file == nullptr) return absl::UnavailableError(absl::StrCat(".output ", argument, ": ", std::strerror(errno)));
  }
  if (file_ != nullptr) std::fclose(file_);
  file_ = file;
  return true;
}

Status Output::Print(absl::string_view answer) {
  std::string text(absl::StripSuffix(answer, "\n"));
  if (text.empty()) return absl::OkStatus();
  if (mode_ == Mode::kCsv && absl::StartsWith(text, "{")) {
    ASSIGN_OR_RETURN(text, ToCsv(text));
  }
  std::FILE* const to = file_ != nullptr ? file_ : stdout;
  if (std::fprintf(to, "%s\n", Printable(text).c_str()) < 0 || std::fflush(to) != 0)
    return absl::UnavailableError(absl::StrCat("cannot write the answer: ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace mslua::repl
