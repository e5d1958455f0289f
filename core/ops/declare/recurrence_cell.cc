#include "core/ops/declare/recurrence_cell.h"

#include "absl/strings/str_cat.h"
#include "core/op/formula.h"

namespace mslua {
namespace {

void AddNames(std::vector<std::string>* names, const char* letter, int64_t count) {
  for (int64_t i = 0; i < count; ++i) names->push_back(absl::StrCat(letter, i));
}

// Formulas are part of the program: one that does not parse is a mistake of it.
ScalarProgram Parse(const std::vector<std::string>& formulas, std::vector<std::string> inputs) {
  return ParseFormula(formulas, {std::move(inputs), {}}).value();
}

}  // namespace

ScalarProgram ForwardProgram(const RecurrentCell& cell) {
  std::vector<std::string> names;
  for (const char* letter : {"x", "q", "b"}) AddNames(&names, letter, cell.gates);
  names.push_back("h");
  if (cell.memory) names.push_back("c");
  return Parse(cell.forward, std::move(names));
}

ScalarProgram BackwardProgram(const RecurrentCell& cell, bool through_saved) {
  std::vector<std::string> names;
  AddNames(&names, "s", cell.saved);
  names.insert(names.end(), {"y", "h"});
  if (cell.memory) names.push_back("c");
  names.insert(names.end(), {"dy", "carried", "through"});
  if (cell.memory) names.push_back("dc");
  if (through_saved) AddNames(&names, "d", cell.saved);
  std::vector<std::string> formulas = cell.backward;
  for (std::string& formula : formulas) {
    for (size_t at = 0; (at = formula.find("dh", at)) != std::string::npos; at += 24)
      formula.replace(at, 2, "(dy + carried + through)");
  }
  return Parse(formulas, std::move(names));
}

}  // namespace mslua
