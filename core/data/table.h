// Tables: files of records whose fields have names, of numbers and categories. What sources of them share (CSV, JSON
// lines): types of columns, values of categories, packing. The values are read when the source is opened and held as 4
// bytes each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/data/source.h"

namespace mslua::data {

// The records of a file, one after another.
class TableFile {
 public:
  virtual ~TableFile() = default;
  // The names of the fields. `known`: those of the files before this one, empty for the first; a file without names of
  // its own has the same. Called once, before Next.
  virtual StatusOr<std::vector<std::string>> Names(const std::vector<std::string>& known) = 0;
  // The fields of the next record, valid until the next call; false at the end of the file.
  virtual StatusOr<bool> Next(std::vector<absl::string_view>* fields) = 0;
  // The line in which the last record begins, from 1.
  virtual int64_t line() const = 0;
};

// The file at this path. `names`: the columns that options name, which a file may know more of than its first record.
using OpenTableFile =
    std::function<StatusOr<std::unique_ptr<TableFile>>(const std::string& path, const std::vector<std::string>& names)>;

// The fields that tables have: dataset_files (`files_doc`), columns, label, column_type, missing, categories_from,
// pack.
std::vector<FieldDef> TableFields(std::string files_doc);

// Opens the source `class_name`, "CsvDataset", with those fields. Columns are those of the files, the label last; with
// `pack` one column of the numbers and one of the categories. Errors: "FILE:LINE: column 'x': ...".
StatusOr<std::unique_ptr<Reader>> OpenTable(const std::string& class_name, const Fields& fields,
                                            const OpenTableFile& open);

// The text in quotes for a message, cut off after 40 characters.
std::string QuotedField(absl::string_view text);

}  // namespace mslua::data
