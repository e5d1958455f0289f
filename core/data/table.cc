#include "core/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/base/text.h"
#include "core/data/file.h"
#include "core/data/sources/define.h"

namespace mslua::data {
namespace {

enum class Kind { kFloat, kInt, kCategory, kHash, kSkip };

// "float", "int", "category", "category(16)", "hash(100)", "skip".
struct Type {
  Kind kind = Kind::kFloat;
  int64_t count = 0;  // of hash: buckets; of category: values at most, 0 for any number
};

StatusOr<Type> ParseType(const std::string& dataset, const std::string& column, const std::string& text) {
  static constexpr const char* kWords[] = {"float", "int", "category", "hash", "skip"};  // by Kind
  Type type;
  const size_t open = text.find('(');
  const std::string word = text.substr(0, open);
  size_t k = 0;
  while (k < std::size(kWords) && word != kWords[k]) ++k;
  bool good = k < std::size(kWords);
  if (good) type.kind = static_cast<Kind>(k);
  const bool counted = open != std::string::npos;
  if (good && counted) {
    good = (type.kind == Kind::kCategory || type.kind == Kind::kHash) && text.back() == ')' &&
           absl::SimpleAtoi(text.substr(open + 1, text.size() - open - 2), &type.count) && type.count >= 1 &&
           type.count <= std::numeric_limits<int32_t>::max();
  }
  if (good && (counted || type.kind != Kind::kHash)) return type;
  return absl::InvalidArgumentError(
      absl::StrCat(dataset, ": columns: ", column,
                   ": expected \"float\", \"int\", \"category\", \"category(N)\", \"hash(N)\" or \"skip\", got \"",
                   text, "\"", DidYouMean(word, {std::begin(kWords), std::end(kWords)})));
}

// Bucket of a text: FNV-1a of its bytes, mixed as SplitMix64 does. The same for every machine and run.
int32_t Bucket(absl::string_view text, int64_t buckets) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return static_cast<int32_t>((h ^ (h >> 31)) % static_cast<uint64_t>(buckets));
}

// A column of the files, and the values of its categories.
struct TableColumn {
  std::string name;
  Type type;
  bool as_float = false;  // an int that is packed beside floats
  int place = -1;         // in a row; -1: skipped
  absl::optional<std::string> missing;
  absl::flat_hash_map<std::string, int32_t> values;  // in order of appearance, later of their bytes
  bool crossed = false;                              // a cross reads its texts
  std::vector<size_t> parts;                         // of a cross: the columns of the files that it joins
};

// Whether a field has no value: blanks are none of a number.
bool IsEmpty(const TableColumn& column, absl::string_view text) {
  const bool number = column.type.kind == Kind::kFloat || column.type.kind == Kind::kInt;
  return text.empty() || (number && text.find_first_not_of(' ') == absl::string_view::npos);
}

// A number of few digits, "-12.5", which one division rounds as it should; false: not of this kind.
bool ParseShort(absl::string_view text, float* value) {
  static constexpr float kPowers[] = {1, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f};
  const char* p = text.data();
  const char* const end = p + text.size();
  const bool negative = p < end && *p == '-';
  p += negative ? 1 : 0;
  if (p == end || end - p > 8) return false;  // at most 7 digits and a dot
  const char* dot = nullptr;
  uint32_t digits = 0, count = 0;
  for (; p < end; ++p) {
    const uint32_t digit = static_cast<uint8_t>(*p) - uint32_t{'0'};
    if (digit <= 9) {
      digits = digits * 10 + digit;
      ++count;
    } else if (*p == '.' && dot == nullptr) {
      dot = p;
    } else {
      return false;
    }
  }
  if (count == 0 || digits >= uint32_t{1} << 24) return false;
  *value = static_cast<float>(digits) / kPowers[dot == nullptr ? 0 : end - dot - 1];
  if (negative) *value = -*value;
  return true;
}

// The text's number as the 4 bytes of a cell.
template <class T>
Status ParseNumber(absl::string_view text, const char* what, uint32_t* cell) {
  if constexpr (std::is_same_v<T, float>) {
    float value = 0;
    if (ParseShort(text, &value)) {
      std::memcpy(cell, &value, sizeof value);
      return absl::OkStatus();
    }
  }
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  absl::string_view digits = text;
  if (digits.size() > 1 && digits.front() == '+' && digits[1] != '-') digits.remove_prefix(1);
  T value{};
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if constexpr (std::is_same_v<T, float>) {
    double wide = 0;
    if (error == std::errc::result_out_of_range &&
        std::from_chars(digits.data(), digits.data() + digits.size(), wide).ec == std::errc() && std::abs(wide) < 1) {
      value = static_cast<float>(wide);  // too small for a float: zero
      error = std::errc();
    }
  }
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || !std::isfinite(static_cast<double>(value))) {
    if (text.empty()) return absl::DataLossError("no value; give one in `missing`");
    return absl::DataLossError(absl::StrCat(QuotedField(text), " is not ", what));
  }
  std::memcpy(cell, &value, sizeof value);
  return absl::OkStatus();
}

// The names of columns in "education * occupation".
std::vector<std::string> PartsOfCross(const std::string& expression) {
  std::vector<std::string> parts;
  for (absl::string_view part : absl::StrSplit(expression, '*')) parts.emplace_back(absl::StripAsciiWhitespace(part));
  return parts;
}

// Options of the source.
struct Table {
  Table(std::string class_name, const Fields& fields)
      : dataset(std::move(class_name)),
        files(fields.Strings("dataset_files")),
        types(fields.Texts("columns")),
        label(fields.String("label")),
        other_type(fields.String("column_type")),
        missing(fields.Texts("missing")),
        crosses(fields.Texts("crosses")),
        categories_from(fields.Strings("categories_from")),
        pack(fields.Bool("pack")) {}

  // The columns that the options name, and the option of each.
  std::vector<std::pair<std::string, const char*>> Named() const {
    std::vector<std::pair<std::string, const char*>> named;
    for (const auto& [name, type] : types) {
      if (crosses.count(name) == 0) named.emplace_back(name, "columns");
    }
    for (const auto& [name, expression] : crosses) {
      for (std::string& part : PartsOfCross(expression)) named.emplace_back(std::move(part), "crosses");
    }
    for (const auto& [name, value] : missing) named.emplace_back(name, "missing");
    if (!label.empty()) named.emplace_back(label, "label");
    return named;
  }

  std::string dataset;
  std::vector<std::string> files;
  std::map<std::string, std::string> types;
  std::string label, other_type;
  std::map<std::string, std::string> missing, crosses;
  std::vector<std::string> categories_from;
  bool pack;
};

class TableReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Table& table, const OpenTableFile& open) {
    if (table.files.empty())
      return absl::InvalidArgumentError(absl::StrCat(table.dataset, ": dataset_files: expected at least one file"));
    auto reader = std::unique_ptr<TableReader>(new TableReader);
    for (const std::string& file : table.categories_from) RETURN_IF_ERROR(reader->ReadFile(table, open, file, kLearn));
    const Mode mode = table.categories_from.empty() ? kLearnAndKeep : kKeep;
    if (mode == kKeep) reader->SortCategories();
    for (const std::string& file : table.files) RETURN_IF_ERROR(reader->ReadFile(table, open, file, mode));
    if (mode == kLearnAndKeep) reader->SortCategories();
    reader->size_ = static_cast<int64_t>(reader->lines_.size());
    if (reader->size_ == 0) return absl::DataLossError(absl::StrCat(table.dataset, ": no record in ", table.files[0]));
    return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
  }

  Status Read(int64_t i, ReadBuffers*, absl::Span<RawColumn> row) const override {
    const uint32_t* cells = cells_.data() + i * width_;
    for (size_t k = 0; k < columns_.size(); ++k) {
      row[k] = RawColumn{cells, columns_[k].type};
      cells += columns_[k].type.elements();
    }
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override {
    size_t k = 0;
    while (k + 1 < files_.size() && files_[k + 1].second <= i) ++k;
    return absl::StrCat(files_[k].first, ":", lines_[static_cast<size_t>(i)]);
  }

  bool in_memory() const override { return true; }

 private:
  enum Mode { kLearn, kLearnAndKeep, kKeep };  // the categories, the rows

  Status ReadFile(const Table& table, const OpenTableFile& open, const std::string& path, Mode mode) {
    if (!IsFile(path)) return absl::NotFoundError(absl::StrCat(table.dataset, ": no file '", path, "'"));
    std::vector<std::string> known;
    // A label without a type or a value for an empty field is a column of the first record.
    for (const auto& [name, option] : table.Named()) {
      if (absl::string_view(option) != "label") known.push_back(name);
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<TableFile> file, open(path, known));
    known.clear();
    for (size_t k = 0; k < file_columns_; ++k) known.push_back(described_[k].name);
    ASSIGN_OR_RETURN(const std::vector<std::string> names, file->Names(known));
    RETURN_IF_ERROR(described_.empty() ? Describe(table, names, path) : CheckHeader(names, path));
    if (mode != kLearn) files_.emplace_back(path, static_cast<int64_t>(lines_.size()));
    std::vector<absl::string_view> fields;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, file->Next(&fields));
      if (!more) return absl::OkStatus();
      RETURN_IF_ERROR(AddRecord(path, *file, fields, mode));
    }
  }

  // Makes the columns of the files and of the dataset.
  Status Describe(const Table& table, const std::vector<std::string>& names, const std::string& path) {
    for (const std::string& name : names) {
      if (std::count(names.begin(), names.end(), name) > 1)
        return absl::InvalidArgumentError(
            absl::StrCat(table.dataset, ": ", path, ": two columns are called '", name, "'"));
    }
    RETURN_IF_ERROR(CheckNames(table, names));
    for (const std::string& name : names) {
      TableColumn column;
      column.name = name;
      const auto type = table.types.find(name);
      ASSIGN_OR_RETURN(column.type,
                       ParseType(table.dataset, name, type == table.types.end() ? table.other_type : type->second));
      if (const auto it = table.missing.find(name); it != table.missing.end()) column.missing = it->second;
      fields_.push_back(described_.size());
      described_.push_back(std::move(column));
    }
    file_columns_ = described_.size();
    texts_.resize(file_columns_);
    RETURN_IF_ERROR(DescribeCrosses(table, names));
    return PlaceColumns(table);
  }

  // Adds the crosses behind the columns of the files.
  Status DescribeCrosses(const Table& table, const std::vector<std::string>& names) {
    for (const auto& [name, expression] : table.crosses) {
      const auto fail = [&, cross = absl::StrCat(table.dataset, ": crosses: ", name, ": ")](absl::string_view what) {
        return absl::InvalidArgumentError(absl::StrCat(cross, what));
      };
      TableColumn column;
      column.name = name;
      for (const std::string& part : PartsOfCross(expression)) {  // CheckNames has found them
        const auto k = static_cast<size_t>(std::find(names.begin(), names.end(), part) - names.begin());
        if (std::count(column.parts.begin(), column.parts.end(), k) != 0)
          return fail(absl::StrCat("column '", part, "' is named twice"));
        column.parts.push_back(k);
        described_[k].crossed = true;
      }
      if (column.parts.size() < 2)
        return fail(absl::StrCat("expected two or more columns, \"a * b\", got \"", expression, "\""));
      if (std::find(names.begin(), names.end(), name) != names.end())
        return fail("the files have a column of this name");
      const auto type = table.types.find(name);
      if (type == table.types.end()) return fail("no type; give one in `columns`: \"hash(N)\" or \"category\"");
      ASSIGN_OR_RETURN(column.type, ParseType(table.dataset, name, type->second));
      if (column.type.kind != Kind::kHash && column.type.kind != Kind::kCategory) {
        return fail(absl::StrCat("expected the type \"hash(N)\", \"category\" or \"category(N)\" in `columns`, got \"",
                                 type->second, "\""));
      }
      described_.push_back(std::move(column));
    }
    return absl::OkStatus();
  }

  // Gives each column its place in a row and makes the columns of the dataset.
  Status PlaceColumns(const Table& table) {
    std::vector<TableColumn*> order;  // of a row
    const auto add = [&](bool label, bool numbers, bool categories) {
      for (TableColumn& c : described_) {
        const bool number = c.type.kind == Kind::kFloat || c.type.kind == Kind::kInt;
        if (c.type.kind == Kind::kSkip || (c.name == table.label) != label || !(number ? numbers : categories))
          continue;
        c.place = static_cast<int>(order.size());
        order.push_back(&c);
        if (label || !table.pack)
          columns_.push_back({c.name, {c.type.kind == Kind::kFloat ? DType::kF32 : DType::kI32, {}}});
        else
          c.as_float = number;
      }
      return static_cast<int64_t>(order.size());
    };
    if (table.pack) {
      const int64_t numbers = add(false, true, false), all = add(false, false, true);
      if (numbers > 0) columns_.push_back({"numbers", {DType::kF32, {numbers}}});
      if (all > numbers) columns_.push_back({"categories", {DType::kI32, {all - numbers}}});
    } else {
      add(false, true, true);
    }
    const int64_t inputs = static_cast<int64_t>(order.size());
    width_ = add(true, true, true);
    const auto fail = [&](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat(table.dataset, ": columns: ", what...));
    };
    if (width_ == 0) return fail("every column is skipped");
    if (!table.label.empty() && width_ == inputs)
      return fail("the label '", table.label, "' is skipped; give it another type");
    return absl::OkStatus();
  }

  // What to give where the fields of a file are separated by another character than field_delim.
  static std::string OtherDelimiter(const std::vector<std::string>& names) {
    if (names.size() != 1) return "";
    const size_t at = names[0].find_first_of(";\t|");
    if (at == std::string::npos) return "";
    const std::string delimiter = names[0][at] == '\t' ? "\\t" : names[0].substr(at, 1);
    return absl::StrCat(": give field_delim = \"", delimiter, "\"");
  }

  // The columns that the options name are there.
  static Status CheckNames(const Table& table, const std::vector<std::string>& names) {
    for (const auto& [name, option] : table.Named()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        const std::string delimiter = OtherDelimiter(names);
        return absl::InvalidArgumentError(absl::StrCat(table.dataset, ": ", option, ": no column '", name, "'",
                                                       delimiter.empty() ? DidYouMean(name, names) : "", "; there are ",
                                                       absl::StrJoin(names, ", "), delimiter));
      }
    }
    return absl::OkStatus();
  }

  static bool MayBeAbsent(const TableColumn& column) { return column.type.kind == Kind::kSkip && !column.crossed; }

  // Another file has the same columns in the same order, but for some that are skipped.
  Status CheckHeader(const std::vector<std::string>& names, const std::string& path) {
    fields_.clear();
    for (size_t k = 0; k < file_columns_; ++k) {
      const bool here = fields_.size() < names.size() && names[fields_.size()] == described_[k].name;
      if (here) fields_.push_back(k);
      if (!here && !MayBeAbsent(described_[k])) break;
    }
    if (fields_.size() == names.size() && NoneIsLeft(fields_.empty() ? 0 : fields_.back() + 1)) return absl::OkStatus();
    std::vector<std::string> wanted, spare;
    for (size_t k = 0; k < file_columns_; ++k) {
      wanted.push_back(described_[k].name);
      if (MayBeAbsent(described_[k])) spare.push_back(described_[k].name);
    }
    return absl::DataLossError(absl::StrCat(
        path, ": its header is not that of the other files of the data: ", absl::StrJoin(names, ",").substr(0, 200),
        "; expected, in this order, ", absl::StrJoin(wanted, ",").substr(0, 200),
        spare.empty() ? "" : absl::StrCat("; may be absent: ", absl::StrJoin(spare, ",").substr(0, 200))));
  }

  // From the column k on, all are skipped.
  bool NoneIsLeft(size_t k) const {
    return std::all_of(described_.begin() + static_cast<std::ptrdiff_t>(k),
                       described_.begin() + static_cast<std::ptrdiff_t>(file_columns_), MayBeAbsent);
  }

  Status AddRecord(const std::string& path, const TableFile& file, const std::vector<absl::string_view>& fields,
                   Mode mode) {
    const size_t row = cells_.size();
    if (mode != kLearn) {
      cells_.resize(row + static_cast<size_t>(width_));
      lines_.push_back(static_cast<uint32_t>(file.line()));
    }
    for (size_t k = 0; k < fields.size(); ++k) {
      TableColumn& column = described_[fields_[k]];
      absl::string_view text = fields[k];
      if (column.missing.has_value() && IsEmpty(column, text)) text = *column.missing;
      if (column.crossed) texts_[fields_[k]] = text;
      if (column.place >= 0) RETURN_IF_ERROR(AddCell(path, file, text, mode, row, &column));
    }
    std::string joined;
    for (size_t k = file_columns_; k < described_.size(); ++k) {
      JoinParts(described_[k], &joined);
      RETURN_IF_ERROR(AddCell(path, file, joined, mode, row, &described_[k]));
    }
    return absl::OkStatus();
  }

  Status AddCell(const std::string& path, const TableFile& file, absl::string_view text, Mode mode, size_t row,
                 TableColumn* column) {
    uint32_t cell = 0;
    const Status status = ReadCell(column, text, mode, &cell);
    if (!status.ok())
      return absl::DataLossError(
          absl::StrCat(path, ":", file.line(), ": column '", column->name, "': ", status.message()));
    if (mode != kLearn) cells_[row + static_cast<size_t>(column->place)] = cell;
    return absl::OkStatus();
  }

  // The texts of the cross's parts with "*" between them; a "*" or "\\" in a text follows a "\\", so that no two lists
  // of texts give the same.
  void JoinParts(const TableColumn& cross, std::string* joined) const {
    joined->clear();
    for (size_t part : cross.parts) {
      if (part != cross.parts.front()) joined->push_back('*');
      for (char c : texts_[part]) {
        if (c == '*' || c == '\\') joined->push_back('\\');
        joined->push_back(c);
      }
    }
  }

  static Status ReadCell(TableColumn* column, absl::string_view text, Mode mode, uint32_t* cell) {
    switch (column->type.kind) {
      case Kind::kFloat:
        return mode == kLearn ? absl::OkStatus() : ParseNumber<float>(text, "a finite number", cell);
      case Kind::kInt:
        if (mode == kLearn) return absl::OkStatus();
        RETURN_IF_ERROR(ParseNumber<int32_t>(text, "an integer of 32 bits", cell));
        if (column->as_float) {
          int32_t number = 0;
          std::memcpy(&number, cell, sizeof number);
          const float value = static_cast<float>(number);
          if (static_cast<double>(value) != number) {
            return absl::DataLossError(absl::StrCat(
                number,
                " is no float32, which `numbers` holds; give the column the type \"float\" to round it, or "
                "\"category\" or \"hash(N)\""));
          }
          std::memcpy(cell, &value, sizeof value);
        }
        return absl::OkStatus();
      case Kind::kHash:
        *cell = static_cast<uint32_t>(Bucket(text, column->type.count));
        return absl::OkStatus();
      default:
        return ReadCategory(column, text, mode, cell);
    }
  }

  static Status ReadCategory(TableColumn* column, absl::string_view text, Mode mode, uint32_t* cell) {
    auto it = column->values.find(text);
    if (it == column->values.end()) {
      if (mode == kKeep) {
        return absl::DataLossError(
            absl::StrCat(QuotedField(text), " is not among the values of categories_from; hash(N) takes any value"));
      }
      const int64_t count = static_cast<int64_t>(column->values.size());
      if (column->type.count > 0 && count >= column->type.count) {
        return absl::DataLossError(absl::StrCat(QuotedField(text), " is value ", count + 1, ", expected at most ",
                                                column->type.count, " (category(", column->type.count, "))"));
      }
      it = column->values.emplace(std::string(text), static_cast<int32_t>(count)).first;
    }
    *cell = static_cast<uint32_t>(it->second);
    return absl::OkStatus();
  }

  // Numbers the values of each category in the order of their bytes, in the rows too.
  void SortCategories() {
    for (TableColumn& column : described_) {
      if (column.type.kind != Kind::kCategory) continue;
      std::vector<std::pair<absl::string_view, int32_t>> sorted(column.values.begin(), column.values.end());
      std::sort(sorted.begin(), sorted.end());
      std::vector<uint32_t> renumbered(sorted.size());
      for (size_t k = 0; k < sorted.size(); ++k) renumbered[sorted[k].second] = static_cast<uint32_t>(k);
      for (auto& [text, number] : column.values) number = static_cast<int32_t>(renumbered[number]);
      for (size_t at = column.place; at < cells_.size(); at += width_) cells_[at] = renumbered[cells_[at]];
    }
  }

  std::vector<TableColumn> described_;                  // of the files, then the crosses
  size_t file_columns_ = 0;                             // of described_ without the crosses
  std::vector<absl::string_view> texts_;                // of the record that is read: those that crosses join
  std::vector<size_t> fields_;                          // of the file that is read: the column of each field
  std::vector<std::pair<std::string, int64_t>> files_;  // path, number of its first sample
  int64_t width_ = 0;                                   // cells of a row
  std::vector<uint32_t> cells_;                         // [size, width]: f32 or i32
  std::vector<uint32_t> lines_;                         // in which each sample begins
};

}  // namespace

std::string QuotedField(absl::string_view text) {
  constexpr size_t kShown = 40;
  return absl::StrCat("'", text.substr(0, kShown), text.size() > kShown ? "..." : "", "'");
}

std::vector<FieldDef> TableFields(std::string files_doc) {
  FieldDef other{"column_type", FieldType::kString, "type of the columns that `columns` does not name", "float"};
  other.choices = {"float", "int", "category", "skip"};
  return {
      PathField("dataset_files", std::move(files_doc), FieldType::kPaths),
      {"columns", FieldType::kTexts,
       "type of each column by name: \"float\", \"int\", \"category\", \"category(N)\" for at most N values, "
       "\"hash(N)\" for a bucket below N, or \"skip\""},
      {"label", FieldType::kString, "name of the column that comes last"},
      other,
      {"missing", FieldType::kTexts, "value of an empty field, by the name of its column"},
      {"crosses", FieldType::kTexts,
       "more columns by name, which join the texts of others: `crosses = { place = \"city * country\" }`; `columns` "
       "gives their types"},
      {"categories_from", FieldType::kPaths, "the files whose values number the categories (default: dataset_files)"},
      {"pack", FieldType::kBool,
       "joins floats and ints in one column `numbers` float32 [n], categories and buckets in `categories` int32 [m]",
       false}};
}

StatusOr<std::unique_ptr<Reader>> OpenTable(const std::string& class_name, const Fields& fields,
                                            const OpenTableFile& open) {
  return TableReader::Open(Table(class_name, fields), open);
}

}  // namespace mslua::data
