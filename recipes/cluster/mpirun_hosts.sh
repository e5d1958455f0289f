#!/bin/sh
# N ranks by Open MPI on the hosts of a file, through a script that sets variables on each of them:
# mpirun_hosts.sh RECIPE N HOSTFILE [key=value ...] [flags]
# Every host has the program, the recipe and the data at the same paths. For hosts without a file: -H a:4,b:4.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
recipe=$1
ranks=$2
hosts=$3
shift 3
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
exec mpirun $root -n "$ranks" --hostfile "$hosts" -x MSLUA -x DATA_PATH --output-filename log_output \
  --merge-stderr-to-stdout "$here/rank.sh" "$recipe" "$@"
