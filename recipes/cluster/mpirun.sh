#!/bin/sh
# N ranks by Open MPI on this machine: mpirun.sh RECIPE N [key=value ...] [flags]
# -x hands a variable to the ranks, -mca chooses how Open MPI moves bytes; root is asked for by name.
set -eu
recipe=$1
ranks=$2
shift 2
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
exec mpirun $root --oversubscribe -n "$ranks" -x PATH -x DATA_PATH="${DATA_PATH:-}" -mca btl self,vader \
  -mca btl_vader_single_copy_mechanism none "${MSLUA:-mslua}" train "$recipe" "$@"
