#include "core/data/source.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

Source NumpySlices(std::vector<NamedArray> arrays) { return Source("numpy_slices", {{"data", std::move(arrays)}}); }

Source GeneratorSource(std::shared_ptr<Generator> generator, std::vector<std::string> column_names) {
  return Source("generator", {{"source", std::move(generator)}, {"column_names", std::move(column_names)}});
}

namespace {

// An error where the file holds columns of a kind that is not read here, with the line that converts it.
Status CheckNotColumnar(const std::string& class_name, const std::string& path) {
  char start[6] = {};
  std::FILE* file = IsFile(path) ? std::fopen(path.c_str(), "rb") : nullptr;
  if (file == nullptr) return absl::OkStatus();
  const size_t n = std::fread(start, 1, sizeof start, file);
  std::fclose(file);
  const bool parquet = n >= 4 && std::memcmp(start, "PAR1", 4) == 0;
  const bool arrow = n == 6 && std::memcmp(start, "ARROW1", 6) == 0;
  if (!parquet && !arrow) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      class_name, ": '", path, "' is ", parquet ? "a Parquet" : "an Arrow",
      " file: convert it first: ", "python3 -c 'import pandas; pandas.read_", parquet ? "parquet" : "feather", "(\"",
      path, "\").to_csv(\"data.csv\", index=False)', then CsvDataset(\"data.csv\")"));
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenSource(const Source& source) {
  if (source.open() != nullptr) return source.open()(source);
  ASSIGN_OR_RETURN(const SourceDef* def, FindSource(source.kind()));
  if (def->open == nullptr)
    return absl::InternalError(absl::StrCat(def->class_name, ": its samples come from a generator, not from a reader"));
  ASSIGN_OR_RETURN(const Fields fields, CheckFields(def->class_name, def->fields, source.fields()));
  if (const FieldDef* path = def->PathField(); path != nullptr && fields.Has(path->name)) {
    if (path->type == FieldType::kString)
      RETURN_IF_ERROR(CheckNotColumnar(def->class_name, fields.String(path->name)));
    else
      for (const std::string& name : fields.Strings(path->name))
        RETURN_IF_ERROR(CheckNotColumnar(def->class_name, name));
  }
  return def->open(fields);
}

}  // namespace mslua::data
