#!/bin/sh
# Prints the source of a function that returns what the files of a folder define, sorted by name:
#   list_definitions.sh OptimizerDef Optimizer AllOptimizers core/optim/define.h FILE...
# The file adam.cc defines `OptimizerDef Optimizer_adam()`; the result is `std::vector<OptimizerDef> AllOptimizers()`.
set -eu
type=$1 prefix=$2 function=$3 header=$4
shift 4
names=$(for f in "$@"; do basename "$f" .cc; done | LC_ALL=C sort)
echo "// Generated from the files beside $header by tools/list_definitions.sh."
echo "#include <vector>"
echo "#include \"$header\""
echo "namespace mslua {"
for n in $names; do echo "$type ${prefix}_$n();"; done
echo "std::vector<$type> $function();"
echo "std::vector<$type> $function() {"
echo "  return {"
for n in $names; do echo "      ${prefix}_$n(),"; done
echo "  };"
echo "}"
echo "}  // namespace mslua"
