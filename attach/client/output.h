// How `mslua attach` shows answers: .mode and .output.
#pragma once

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::repl {

// A JSON answer as comma-separated values (RFC 4180): the first list of objects in it, a line each under a line of
// names, or else the object itself as one line. What is nested deeper stands as JSON in its field.
StatusOr<std::string> ToCsv(absl::string_view json);

class Output {
 public:
  ~Output();

  // Whether the line is one of ".mode [table|json|csv]" and ".output [FILE]", which it then carries out.
  StatusOr<bool> Command(absl::string_view line);
  // What answers are to be asked for: JSON, or text.
  bool wants_json() const { return mode_ != Mode::kTable; }
  // An answer, on the terminal or in the file. The text is cleaned of control characters.
  Status Print(absl::string_view answer);

 private:
  enum class Mode { kTable, kJson, kCsv };
  Mode mode_ = Mode::kTable;
  std::FILE* file_ = nullptr;  // null: standard output
};

}  // namespace mslua::repl
