#!/bin/sh
# Prints the source of a function that returns what the files of a folder define, sorted by name:
#   list_definitions.sh mslua OptimizerDef Optimizer AllOptimizers core/optim/define.h FILE...
# The file adam.cc defines `OptimizerDef Optimizer_adam()`; the result is `std::vector<OptimizerDef> AllOptimizers()`.
set -eu
namespace=$1 type=$2 prefix=$3 function=$4 header=$5
shift 5
names=$(for f in "$@"; do basename "$f" .cc; done | LC_ALL=C sort)
echo "// Generated from the files beside $header by tools/list_definitions.sh."
echo "#include <vector>"
echo "#include \"$header\""
echo "namespace $namespace {"
for n in $names; do echo "$type ${prefix}_$n();"; done
echo "std::vector<$type> $function();"
echo "std::vector<$type> $function() {"
echo "  std::vector<$type> all;"
for n in $names; do echo "  all.push_back(${prefix}_$n());"; done
echo "  return all;"
echo "}"
echo "}  // namespace $namespace"
