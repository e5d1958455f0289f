#include "core/op/registry.h"

#include <utility>

#include "core/kernels/select/float16_kernels.h"
#include "core/ops/define.h"

namespace mslua {

std::vector<std::vector<OpDef>> AllOperators();  // generated: of each file

const OpRegistry& Operators() {
  static const auto* const registry = [] {
    std::vector<OpDef> all;
    for (std::vector<OpDef>& of_file : AllOperators()) {
      for (OpDef& op : of_file) {
        AddFloat16Kernels(&op);
        all.push_back(std::move(op));
      }
    }
    return new OpRegistry(std::move(all));
  }();
  return *registry;
}

}  // namespace mslua
