// Comma-separated values (RFC 4180): a record a line, fields in double quotes where they hold a delimiter, a quote
// (written twice) or a line break.
#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/data/pieces.h"
#include "core/data/sources/define.h"
#include "core/data/table.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxRecord = int64_t{64} << 20;  // a longer record: a quote is not closed

// The first delimiter or line feed, or `end`. Compares eight bytes at once: fields are short.
char* FindEnd(char* p, char* end, char delimiter) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = kOnes << 7;
  const uint64_t delimiters = kOnes * static_cast<uint8_t>(delimiter), feeds = kOnes * '\n';
  const auto zeros = [](uint64_t x) { return (x - kOnes) & ~x & kHigh; };  // the lowest one found is right
  for (; end - p >= 8; p += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, p, 8);
    const uint64_t found = zeros(bytes ^ delimiters) | zeros(bytes ^ feeds);
    if (found != 0) return p + __builtin_ctzll(found) / 8;
  }
  while (p < end && *p != delimiter && *p != '\n') ++p;
  return p;
}

// ---- Records -------------------------------------------------------------------------------------------------------

class CsvFile : public TableFile {
 public:
  // `names`: of the columns; empty: the file begins with a header.
  CsvFile(Pieces pieces, char delimiter, std::vector<std::string> names)
      : pieces_(std::move(pieces)), delimiter_(delimiter), names_(std::move(names)) {}

  StatusOr<std::vector<std::string>> Names(const std::vector<std::string>&) override {
    header_ = names_.empty();
    if (!header_) return names_;
    std::vector<absl::string_view> fields;
    ASSIGN_OR_RETURN(const bool any, NextRecord(&fields));
    if (!any) return absl::DataLossError(absl::StrCat("CsvDataset: ", pieces_.path(), " is empty: expected a header"));
    for (absl::string_view field : fields) names_.emplace_back(field);
    for (const std::string& name : names_) {
      const size_t at = name.find('\r');
      if (at == std::string::npos || name.substr(at + 1, 1) == "\n") continue;
      return absl::DataLossError(absl::StrCat("CsvDataset: lines of ", pieces_.path(),
                                              " end in carriage returns alone: expected line feeds (tr '\\r' '\\n' "
                                              "makes them)"));
    }
    return names_;
  }

  StatusOr<bool> Next(std::vector<absl::string_view>* fields) override {
    ASSIGN_OR_RETURN(const bool more, NextRecord(fields));
    if (!more || fields->size() == names_.size()) return more;
    return absl::DataLossError(absl::StrCat(place(), ": ", fields->size(), fields->size() == 1 ? " column" : " columns",
                                            ", expected ", names_.size(), header_ ? ", as in the header" : ""));
  }

  int64_t line() const override { return line_; }

 private:
  enum Outcome { kRecord, kEnd, kMore, kBadQuote };

  std::string place() const { return absl::StrCat(pieces_.path(), ":", line_); }

  // The next record that is not an empty line.
  StatusOr<bool> NextRecord(std::vector<absl::string_view>* fields) {
    while (true) {
      line_ = next_line_;
      const Outcome outcome = Split(fields);
      if (outcome == kRecord && blank_) continue;
      if (outcome == kRecord) return true;
      if (outcome == kEnd) return false;
      if (outcome == kBadQuote) {
        return absl::DataLossError(
            absl::StrCat(place(), ": column ", fields->size() + 1, ": text stands behind a closing quote"));
      }
      if (pieces_.at_end() || pieces_.size() > kMaxRecord)
        return absl::DataLossError(absl::StrCat(place(), ": a quote is not closed"));
      RETURN_IF_ERROR(pieces_.Fill());
    }
  }

  // One record, which is used up where it is whole.
  Outcome Split(std::vector<absl::string_view>* fields) {
    fields->clear();
    unquoted_.clear();
    char* const first = pieces_.begin();
    char* p = first;
    char* const end = pieces_.end();
    if (p == end) return pieces_.at_end() ? kEnd : kMore;
    int64_t lines = 1;
    while (true) {
      if (p < end && *p == '"') {
        const Outcome outcome = SplitQuoted(&p, end, &lines, fields);
        if (outcome != kRecord) return outcome;
      } else {
        char* const begin = p;
        p = FindEnd(p, end, delimiter_);
        if (p == end && !pieces_.at_end()) return kMore;
        const bool carriage = p > begin && p[-1] == '\r' && (p == end || *p == '\n');
        fields->emplace_back(begin, p - begin - (carriage ? 1 : 0));
      }
      if (p == end || *p == '\n') break;
      ++p;  // the delimiter
    }
    blank_ = fields->size() == 1 && (*fields)[0].empty() && *first != '"';
    pieces_.UseUntil(std::min(p + 1, end));
    next_line_ = line_ + lines;
    return kRecord;
  }

  // A field in quotes; *p moves behind it and a carriage return that ends the line.
  Outcome SplitQuoted(char** p, char* end, int64_t* lines, std::vector<absl::string_view>* fields) {
    bool doubled = false;
    char* const begin = *p + 1;
    char* q = begin;
    for (; q < end; ++q) {
      if (*q == '\n') ++*lines;
      if (*q != '"') continue;
      if (q + 1 == end || q[1] != '"') break;
      doubled = true;
      ++q;
    }
    if (q >= end || (q + 1 == end && !pieces_.at_end())) return kMore;
    char* after = q + 1;
    if (after < end && *after == '\r') {
      if (after + 1 == end && !pieces_.at_end()) return kMore;
      if (after + 1 == end || after[1] == '\n') ++after;
    }
    if (after < end && *after != delimiter_ && *after != '\n') return kBadQuote;
    if (doubled) {
      unquoted_.emplace_back();
      std::string& text = unquoted_.back();
      for (char* c = begin; c < q; ++c) {
        text.push_back(*c);
        if (*c == '"') ++c;
      }
      fields->push_back(text);
    } else {
      fields->emplace_back(begin, q - begin);
    }
    *p = after;
    return kRecord;
  }

  Pieces pieces_;
  const char delimiter_;
  std::vector<std::string> names_;
  bool header_ = false;
  bool blank_ = false;  // the last record is an empty line
  int64_t line_ = 0, next_line_ = 1;
  std::deque<std::string> unquoted_;  // fields with doubled quotes, of the last record
};

// Those of tables, with column_names behind label and field_delim behind column_type.
std::vector<FieldDef> CsvFields() {
  std::vector<FieldDef> fields = TableFields("a CSV file, or a list of files that are read one after another");
  const auto behind = [&](const char* name) {
    return 1 + std::find_if(fields.begin(), fields.end(), [&](const FieldDef& f) { return f.name == name; });
  };
  fields.insert(behind("label"), {"column_names", FieldType::kStrings,
                                  "names of the columns; without them each file begins with a header"});
  fields.insert(behind("column_type"), {"field_delim", FieldType::kString, "the character between two fields", ","});
  return fields;
}

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  const std::string delimiter = fields.String("field_delim");
  if (delimiter.size() != 1 || absl::StrContains("\"\r\n", delimiter)) {
    return absl::InvalidArgumentError(
        absl::StrCat("CsvDataset: field_delim: expected one character, no quote, got \"", delimiter, "\""));
  }
  const std::vector<std::string> names = fields.Strings("column_names");
  return OpenTable(
      "CsvDataset", fields,
      [&](const std::string& path, const std::vector<std::string>&) -> StatusOr<std::unique_ptr<TableFile>> {
        ASSIGN_OR_RETURN(Pieces pieces, Pieces::Open(path));
        return std::unique_ptr<TableFile>(std::make_unique<CsvFile>(std::move(pieces), delimiter[0], names));
      });
}

}  // namespace

MSLUA_SOURCE(csv) {
  SourceDef def("csv", "CsvDataset");
  def.title = "CSV";
  def.doc =
      "Records of CSV files, a column each: \"float\" gives float32 [], \"int\", \"category\" and \"hash(N)\" int32 "
      "[]. Categories are numbered from 0 in the order of their bytes; give the training files as `categories_from` of "
      "the test data, so that both have the same numbers. `CsvDataset(\"train.csv\", { columns = { city = "
      "\"hash(100)\", income = \"category\" }, label = \"income\", pack = true })`.";
  def.fields = CsvFields();
  def.open = Open;
  def.fits = [](const std::string& path) { return absl::EndsWithIgnoreCase(path, ".csv"); };
  def.expects = "a CSV file";
  def.order = 1;
  def.inspect = {{"column_type", "category"}};
  return def;
}

}  // namespace mslua::data
