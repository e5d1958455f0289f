// JSON lines: an object a line, whose keys are the columns.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/data/pieces.h"
#include "core/data/sources/define.h"
#include "core/data/table.h"
#include "core/json/json.h"

namespace mslua::data {
namespace {

class JsonLines : public TableFile {
 public:
  // `named`: columns that options name.
  JsonLines(Pieces pieces, std::vector<std::string> named) : pieces_(std::move(pieces)), named_(std::move(named)) {}

  // Of the first file: the keys of its first record and those that options name, in the order of their bytes.
  StatusOr<std::vector<std::string>> Names(const std::vector<std::string>& known) override {
    ASSIGN_OR_RETURN(any_, Read());
    std::vector<std::string> names = known_ = known;
    if (known.empty()) {
      if (!any_) return absl::DataLossError(absl::StrCat("JsonlDataset: ", pieces_.path(), " has no record"));
      names = named_;
      for (const auto& [key, value] : object_.items()) names.push_back(key);
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
    }
    for (size_t k = 0; k < names.size(); ++k) places_[names[k]] = k;
    texts_.resize(names.size());
    return names;
  }

  StatusOr<bool> Next(std::vector<absl::string_view>* fields) override {
    if (!first_) {
      ASSIGN_OR_RETURN(any_, Read());
    }
    first_ = false;
    if (!any_) return false;
    for (std::string& text : texts_) text.clear();
    for (const auto& [key, value] : object_.items()) {
      const auto place = places_.find(key);
      if (place == places_.end()) {
        return absl::DataLossError(absl::StrCat(pieces_.path(), ":", line_, ": ", UnknownKey(key),
                                                "; give its type in `columns`, or \"skip\" to leave it out"));
      }
      texts_[place->second] = TextOf(value);
    }
    fields->assign(texts_.begin(), texts_.end());
    return true;
  }

  int64_t line() const override { return line_; }

 private:
  std::string UnknownKey(absl::string_view key) const {
    if (known_.empty()) return absl::StrCat("the first record has no key ", QuotedField(key));
    std::vector<std::string> missing;
    for (const std::string& name : known_) {
      if (!object_.contains(name)) missing.push_back(QuotedField(name));
    }
    return absl::StrCat("key ", QuotedField(key), " is not in the data read before this file, whose keys are ",
                        SomeOf(known_, 20), missing.empty() ? "" : "; missing here: ", SomeOf(missing, 20));
  }

  // As a field of a CSV file has it: a string without quotes, null as an empty field, lists and objects as JSON.
  static std::string TextOf(const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_null()) return "";
    return value.dump();
  }

  // The next line that is not blank, into object_; false at the end of the file.
  StatusOr<bool> Read() {
    while (true) {
      char* const begin = pieces_.begin();
      const char* const feed = pieces_.Find('\n');
      if (feed == nullptr && !pieces_.at_end()) {
        if (pieces_.size() > JsonLimits().bytes)
          return absl::DataLossError(
              absl::StrCat(pieces_.path(), ":", line_ + 1, ": the line is longer than ", JsonLimits().bytes, " bytes"));
        RETURN_IF_ERROR(pieces_.Fill());
        continue;
      }
      if (feed == nullptr && pieces_.size() == 0) return false;
      const char* const end = feed == nullptr ? pieces_.end() : feed;
      pieces_.UseUntil(feed == nullptr ? end : end + 1);
      ++line_;
      const absl::string_view text = absl::StripAsciiWhitespace({begin, static_cast<size_t>(end - begin)});
      if (text.empty()) continue;
      StatusOr<Json> json = ParseJson(text);
      if (!json.ok())
        return absl::DataLossError(absl::StrCat(pieces_.path(), ":", line_, ": is no JSON: ", json.status().message()));
      if (!json->is_object())
        return absl::DataLossError(
            absl::StrCat(pieces_.path(), ":", line_, ": expected an object, got ", ShowJson(*json)));
      object_ = *std::move(json);
      return true;
    }
  }

  Pieces pieces_;
  const std::vector<std::string> named_;
  std::vector<std::string> known_;                   // of the files before; empty: this is the first
  Json object_;                                      // of the last record
  bool any_ = false, first_ = true;                  // whether there is one; it is the one that Names has read
  absl::flat_hash_map<std::string, size_t> places_;  // of the columns
  std::vector<std::string> texts_;                   // of the last record
  int64_t line_ = 0;
};

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  return OpenTable(
      "JsonlDataset", fields,
      [](const std::string& path, const std::vector<std::string>& named) -> StatusOr<std::unique_ptr<TableFile>> {
        ASSIGN_OR_RETURN(Pieces pieces, Pieces::Open(path));
        return std::unique_ptr<TableFile>(std::make_unique<JsonLines>(std::move(pieces), named));
      });
}

}  // namespace

MSLUA_SOURCE(jsonl) {
  SourceDef def("jsonl", "JsonlDataset");
  def.title = "JSON lines";
  def.doc =
      "Records of JSON lines, an object each: a column for every key of the first record, in the order of their bytes, "
      "with the types and packing of CsvDataset. null and an absent key are an empty field; a list or an object is its "
      "text. `JsonlDataset(\"train.jsonl\", { columns = { city = \"hash(100)\", id = \"skip\" }, label = \"income\" "
      "})`.";
  def.fields = TableFields("a file with a JSON object a line, or a list of files that are read one after another");
  def.open = Open;
  def.fits = [](const std::string& path) {
    return absl::EndsWithIgnoreCase(path, ".jsonl") || absl::EndsWithIgnoreCase(path, ".ndjson");
  };
  def.expects = "a file of JSON lines";
  def.order = 1;
  def.inspect = {{"column_type", "category"}};
  return def;
}

}  // namespace mslua::data
