// Every operator of this build, sorted by name. The list is generated from the files of core/ops.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "core/op/op_def.h"

namespace mslua {

class OpRegistry {
 public:
  explicit OpRegistry(std::vector<OpDef> ops);
  // Null when there is no such operator.
  const OpDef* Find(absl::string_view name) const;
  const std::vector<OpDef>& all() const { return ops_; }

 private:
  std::vector<OpDef> ops_;
};

// Made on first use, immutable afterwards; defined in core/ops.
const OpRegistry& Operators();

}  // namespace mslua
