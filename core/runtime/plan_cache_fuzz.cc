// Files of the plan cache and the decisions in them.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/passes/decisions.h"
#include "core/runtime/plan_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto kept = mslua::UnwrapPlan(text);
  mslua::Decisions decisions;
  if (!decisions.Take(kept.ok() ? absl::string_view(*kept) : text).ok()) return 0;
  mslua::Decisions again;
  if (!again.Take(decisions.ToText()).ok() || again.ToText() != decisions.ToText()) std::abort();
  return 0;
}
