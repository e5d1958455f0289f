#include "core/data/source.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "core/base/folder.h"
#include "core/base/text.h"
#include "core/data/file.h"

namespace mslua::data {
namespace {

// "an integer, at least 1 (tokens)"
std::string Expected(const FieldDef& field) {
  static constexpr const char* kWords[] = {"true or false",
                                           "an integer",
                                           "a number",
                                           "a string",
                                           "a number or a list of numbers",
                                           "an integer or a list of integers",
                                           "a list of strings",
                                           "a string or a list of strings",
                                           "a table of texts",
                                           "arrays",
                                           "a generator"};
  const auto quoted = [](std::string* out, const std::string& choice) { absl::StrAppend(out, "\"", choice, "\""); };
  if (!field.choices.empty()) return absl::StrCat("one of ", absl::StrJoin(field.choices, ", ", quoted));
  std::string text = kWords[static_cast<int>(field.type)];
  if (const std::string limits = LimitWords(field.limits); !limits.empty()) absl::StrAppend(&text, ", ", limits);
  if (!field.unit.empty()) absl::StrAppend(&text, " (", field.unit, ")");
  return text;
}

std::string Shown(const FieldValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return absl::StrCat(*i);
  if (const auto* d = std::get_if<double>(&value)) return absl::StrCat(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return absl::StrCat("\"", *s, "\"");
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    return absl::StrCat("{", absl::StrJoin(*list, ", "), "}");
  return "a table";
}

// The value as its field holds it; monostate when it is of another type or out of range.
FieldValue Converted(const FieldDef& field, FieldValue value) {
  if (field.type == FieldType::kNumber && std::holds_alternative<int64_t>(value))
    value = static_cast<double>(std::get<int64_t>(value));
  if (field.type == FieldType::kPaths && std::holds_alternative<std::string>(value))
    value = std::vector<std::string>{std::get<std::string>(value)};
  if (field.type == FieldType::kNumbers || field.type == FieldType::kInts) {
    if (const auto* i = std::get_if<int64_t>(&value)) value = std::vector<double>{static_cast<double>(*i)};
    if (const auto* d = std::get_if<double>(&value)) value = std::vector<double>{*d};
    if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      for (double v : *list) {
        if (!Within(field.limits, v) || (field.type == FieldType::kInts && v != std::floor(v))) return {};
      }
    }
  }
  if (field.type == FieldType::kGenerator && std::holds_alternative<std::shared_ptr<const SampleCode>>(value))
    return value;
  static constexpr size_t kIndex[] = {1, 2, 3, 4, 5, 5, 6, 6, 7, 8, 9};  // in FieldValue, by FieldType
  if (value.index() != kIndex[static_cast<int>(field.type)]) return {};
  if (const auto* i = std::get_if<int64_t>(&value); i != nullptr && !Within(field.limits, static_cast<double>(*i)))
    return {};
  if (const auto* d = std::get_if<double>(&value); d != nullptr && !Within(field.limits, *d)) return {};
  if (const auto* s = std::get_if<std::string>(&value); s != nullptr && !field.choices.empty()) {
    if (std::find(field.choices.begin(), field.choices.end(), *s) == field.choices.end()) return {};
  }
  return value;
}

}  // namespace

std::string JoinOr(const std::vector<std::string>& words) {
  std::string text;
  for (size_t k = 0; k < words.size(); ++k)
    absl::StrAppend(&text, k == 0 ? "" : k + 1 == words.size() ? " or " : ", ", words[k]);
  return text;
}

Status Generator::Get(int64_t, Row*) {
  return absl::UnimplementedError("this generator is a sequence: it has no element by index");
}
Status Generator::Rewind() {
  return absl::UnimplementedError("this generator has random access: it is not a sequence");
}
StatusOr<bool> Generator::Next(Row*) { return Rewind(); }

const FieldDef* SourceDef::Find(const std::string& name) const {
  const auto it = std::find_if(fields.begin(), fields.end(), [&](const FieldDef& f) { return f.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

const FieldDef* SourceDef::PathField() const {
  const auto it = std::find_if(fields.begin(), fields.end(), [](const FieldDef& f) { return f.path; });
  return it == fields.end() ? nullptr : &*it;
}

std::vector<SourceDef> AllSources();  // generated

const std::vector<SourceDef>& Sources() {
  static const auto* const all = new std::vector<SourceDef>(AllSources());
  return *all;
}

StatusOr<const SourceDef*> FindSource(const std::string& kind) {
  std::vector<std::string> known;
  for (const SourceDef& def : Sources()) {
    if (def.kind == kind) return &def;
    known.push_back(def.kind);
  }
  return absl::InvalidArgumentError(absl::StrCat("dataset: unknown source '", kind, "'", DidYouMean(kind, known)));
}

StatusOr<Fields> CheckFields(const std::string& name, const std::vector<FieldDef>& defs, const FieldMap& values) {
  for (const auto& [key, value] : values) {
    const auto is_key = [&k = key](const FieldDef& field) { return field.name == k; };
    if (std::any_of(defs.begin(), defs.end(), is_key)) continue;
    std::vector<std::string> known;
    for (const FieldDef& field : defs) known.push_back(field.name);
    return absl::InvalidArgumentError(absl::StrCat(name, ": unknown key '", key, "'", DidYouMean(key, known),
                                                   "; keys: ", absl::StrJoin(known, ", ")));
  }
  Fields checked;
  for (const FieldDef& field : defs) {
    const auto it = values.find(field.name);
    FieldValue value = field.fallback;
    if (it != values.end() && !std::holds_alternative<std::monostate>(it->second)) {
      value = Converted(field, it->second);
      if (std::holds_alternative<std::monostate>(value)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": ", field.name, ": expected ", Expected(field), ", got ", Shown(it->second)));
      }
    } else if (field.required) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", field.name, " is missing: expected ", Expected(field)));
    }
    if (!std::holds_alternative<std::monostate>(value)) checked.values_[field.name] = std::move(value);
  }
  return checked;
}

std::shared_ptr<Generator> Source::generator() const {
  for (const auto& [name, value] : fields_) {
    if (const auto* generator = std::get_if<std::shared_ptr<Generator>>(&value)) return *generator;
  }
  return nullptr;
}

namespace {

// A format of tables that is not read here, and what of pandas or pyarrow makes a data frame of a file and of a folder.
struct TableFormat {
  const char* name;
  absl::string_view magic;
  const char* ending;  // of files, where the magic says too little; "": any
  const char *file, *folder;
};
constexpr char kDataset[] = "import pyarrow.dataset as d; d.dataset(\"$0\", format=\"arrow\").to_table().to_pandas()";
constexpr TableFormat kTableFormats[] = {
    {"a Parquet", "PAR1", "", "import pandas; pandas.read_parquet(\"$0\")",
     "import pandas; pandas.read_parquet(\"$0\")"},
    {"an Arrow", "ARROW1", "", "import pandas; pandas.read_feather(\"$0\")", kDataset},
    {"an Arrow", "FEA1", "", "import pandas; pandas.read_feather(\"$0\")", kDataset},
    // A stream, as the library datasets saves.
    {"an Arrow", "\xff\xff\xff\xff", ".arrow", "import pyarrow; pyarrow.ipc.open_stream(\"$0\").read_all().to_pandas()",
     kDataset},
};

// Null: the file is of none of these formats.
const TableFormat* FormatOf(const std::string& path) {
  char start[6] = {};
  std::FILE* file = IsFile(path) ? std::fopen(path.c_str(), "rb") : nullptr;
  if (file == nullptr) return nullptr;
  const absl::string_view bytes(start, std::fread(start, 1, sizeof start, file));
  std::fclose(file);
  for (const TableFormat& format : kTableFormats) {
    if (absl::StartsWith(bytes, format.magic) && absl::EndsWith(path, format.ending)) return &format;
  }
  return nullptr;
}

Status Refused(const std::string& class_name, const std::string& what, const char* command, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(class_name, ": ", what, ": convert it first: python3 -c '",
                                                 absl::Substitute(command, path),
                                                 ".to_csv(\"data.csv\", index=False)', then CsvDataset(\"data.csv\")"));
}

// An error where the file holds a table of these formats, with the line that converts it.
Status CheckNotColumnar(const std::string& class_name, const std::string& path) {
  const TableFormat* const format = FormatOf(path);
  if (format == nullptr) return absl::OkStatus();
  return Refused(class_name, absl::StrCat("'", path, "' is ", format->name, " file"), format->file, path);
}

// The same of a folder in which a source has not found what it reads. `otherwise` where it holds no such table.
Status FolderProblem(const std::string& class_name, const std::string& folder, const Status& otherwise) {
  const auto names = IsFolder(folder) ? ListFolder(folder) : StatusOr<std::vector<std::string>>(otherwise);
  if (!names.ok()) return otherwise;
  for (const std::string& name : *names) {
    const TableFormat* const format = FormatOf(absl::StrCat(folder, "/", name));
    if (format != nullptr)
      return Refused(class_name, absl::StrCat("'", folder, "' holds ", format->name, " file, ", name), format->folder,
                     folder);
  }
  return otherwise;
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenSource(const Source& source) {
  if (source.open() != nullptr) return source.open()(source);
  ASSIGN_OR_RETURN(const SourceDef* def, FindSource(source.kind()));
  if (def->open == nullptr)
    return absl::InternalError(absl::StrCat(def->class_name, ": its samples come from a generator, not from a reader"));
  ASSIGN_OR_RETURN(const Fields fields, CheckFields(def->class_name, def->fields, source.fields()));
  std::vector<std::string> paths;
  if (const FieldDef* path = def->PathField(); path != nullptr && fields.Has(path->name)) {
    if (path->type == FieldType::kString)
      paths = {fields.String(path->name)};
    else
      paths = fields.Strings(path->name);
  }
  for (const std::string& path : paths) RETURN_IF_ERROR(CheckNotColumnar(def->class_name, path));
  auto reader = def->open(fields);
  for (size_t i = 0; !reader.ok() && i < paths.size(); ++i)
    reader = FolderProblem(def->class_name, paths[i], reader.status());
  return reader;
}

}  // namespace mslua::data
