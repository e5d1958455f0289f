// A table of text in columns, for a terminal.
#pragma once

#include <string>
#include <vector>

namespace mslua {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> titles) { Add(std::move(titles)); }
  // As many cells as there are titles; control characters are replaced.
  void Add(const std::vector<std::string>& cells);
  // One line a row, columns two spaces apart.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mslua
