// The kind of traced values in Lua.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"
#include "lua/object.h"

namespace mslua {

// A value of a trace: of no use once that trace has ended.
struct TracedValue {
  uint64_t trace_id = 0;
  Value value;
};
template <>
struct KindName<TracedValue> {
  static constexpr const char* value = "Value";
};

}  // namespace mslua
