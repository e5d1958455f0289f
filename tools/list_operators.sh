#!/bin/sh
# Prints the source of Operators(): one call for each file of core/ops, sorted by name.
set -eu
names=$(for f in "$@"; do basename "$f" .cc; done | LC_ALL=C sort)
cat <<'HEAD'
// Generated from the files of core/ops by tools/list_operators.sh.
#include "core/op/registry.h"

namespace mslua {

HEAD
for n in $names; do echo "std::vector<OpDef> Define_$n();"; done
cat <<'MID'

const OpRegistry& Operators() {
  static const OpRegistry* const registry = [] {
    std::vector<OpDef> all;
    for (auto define : {
MID
for n in $names; do echo "             Define_$n,"; done
cat <<'TAIL'
         }) {
      for (OpDef& op : define()) all.push_back(std::move(op));
    }
    return new OpRegistry(std::move(all));
  }();
  return *registry;
}

}  // namespace mslua
TAIL
