#!/bin/sh
# A strategy that a search has found is kept in the user's plan cache and taken from there: search_cache.sh MSLUA
set -eu
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
cd "$TEST_TMPDIR"
export XDG_CACHE_HOME="$TEST_TMPDIR/cache"

cat >two.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local p = ms.params {batch_size = 2}
return ms.recipe {
  name = "two", seed = 1,
  network = function() return nn.SequentialCell {nn.Dense(16, 24), nn.ReLU(), nn.Dense(24, 8)} end,
  loss = nn.MSELoss(), optimizer = nn.Momentum {learning_rate = 0.1, momentum = 0.9},
  dataset = ms.dataset.NumpySlicesDataset({ms.ones {48, 16}, ms.ones {48, 8}}, {"x", "y"}):batch(p.batch_size),
  train = {epochs = 1}, parallel = {parallel_mode = "auto_parallel"},
}
LUA

fail() {
  {
    echo "$*"
    cat notes.txt
  } >&2
  exit 1
}
train() {
  "$mslua" train two.lua -n 2 --fast-dev-run=3 "$@" >out.txt 2>notes.txt || fail "training failed"
}
# searched yes|no
searched() {
  case $1 in
    yes) grep -q 'dynamic_programming: .*; found in ' notes.txt || fail "no search" ;;
    no) grep -q 'dynamic_programming: the strategy is from the plan cache' notes.txt || fail "the cache was not used" ;;
  esac
}

train
searched yes
cp out.txt first.txt
train
searched no
cmp first.txt out.txt || fail "the same strategy gave other numbers"
train batch_size=4
searched yes
train parallel.device_memory=64MB
searched yes
for file in cache/mslua/plans/*.plan; do printf 'x' | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null; done
train
searched yes
echo ok
