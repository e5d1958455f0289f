#!/bin/sh
# Trains a recipe's smoke preset on data of the true format and checks its expect: smoke.sh MSLUA RECIPE
# [mnist|cifar10|text|criteo [mnist]]; the second data are those of digits_path
set -eu
export OMP_WAIT_POLICY=passive  # tests share their cores
here=$(pwd)
mslua=$here/$1
recipe=$here/$2
cd "$TEST_TMPDIR"
if [ -n "${3:-}" ]; then
  "$mslua" data make "$3" "$TEST_TMPDIR/data" --samples 2000
  set -- "$recipe" "${4:-}"
  [ -z "$2" ] || "$mslua" data make "$2" "$TEST_TMPDIR/more" --samples 2000
  exec "$mslua" verify "$1" --preset smoke "data_path=$TEST_TMPDIR/data" ${2:+"digits_path=$TEST_TMPDIR/more"}
fi
exec "$mslua" verify "$recipe" --preset smoke
