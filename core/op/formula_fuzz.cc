// Formulas of operators, and the programs of fused nodes, which print and parse again to the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/op/formula.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto formula = mslua::ParseFormula({std::string(text)}, {{"x", "y", "dy"}, {{"alpha", 0.5}}});
  const auto program = formula.ok() ? formula : mslua::ParseScalarProgram(text);
  if (!program.ok()) return 0;
  const auto again = mslua::ParseScalarProgram(ToString(*program));
  if (!again.ok() || ToString(*again) != ToString(*program)) std::abort();
  return 0;
}
