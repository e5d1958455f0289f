#!/bin/sh
# N ranks on this machine, started and watched by mslua: local.sh RECIPE N [key=value ...] [flags]
set -eu
recipe=$1
ranks=$2
shift 2
exec "${MSLUA:-mslua}" train "$recipe" -n "$ranks" "$@"
