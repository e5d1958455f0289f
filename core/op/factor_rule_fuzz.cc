// Factor rules, for inputs of the ranks that the first byte says.
#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "core/op/factor_rule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.empty()) return 0;
  const std::array<int64_t, 3> ranks = {data[0] & 3, (data[0] >> 2) & 3, (data[0] >> 4) & 3};
  (void)mslua::ParseFactorRule(text.substr(1), absl::MakeConstSpan(ranks.data(), data[0] >> 6));
  return 0;
}
