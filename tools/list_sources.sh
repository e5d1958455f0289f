#!/bin/sh
# Prints the source of Sources(): one call for each file of core/data/sources, sorted by name, which is the kind.
set -eu
kinds=$(for f in "$@"; do basename "$f" .cc; done | LC_ALL=C sort)
cat <<'HEAD'
// Generated from the files of core/data/sources by tools/list_sources.sh.
#include "core/data/source.h"

namespace mslua::data {

HEAD
for k in $kinds; do echo "void DefineSource_$k(SourceDef* def);"; done
cat <<'MID'

const std::vector<SourceDef>& Sources() {
  static const auto* const sources = [] {
    auto* all = new std::vector<SourceDef>;
MID
for k in $kinds; do
  echo "    all->emplace_back().kind = \"$k\";"
  echo "    DefineSource_$k(&all->back());"
done
cat <<'TAIL'
    return all;
  }();
  return *sources;
}

}  // namespace mslua::data
TAIL
