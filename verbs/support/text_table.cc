#include "verbs/support/text_table.h"

#include <algorithm>

#include "core/base/printable.h"

namespace mslua {
namespace {

// Characters, not bytes, of UTF-8.
size_t WidthOf(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void TextTable::Add(const std::vector<std::string>& cells) {
  std::vector<std::string> row;
  for (const std::string& cell : cells) {
    row.push_back(Printable(cell));
    for (char& c : row.back()) c = c == '\n' || c == '\t' ? ' ' : c;
  }
  rows_.push_back(std::move(row));
}

std::string TextTable::Text() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], WidthOf(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - WidthOf(row[i]) + 2, ' ');
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace mslua
