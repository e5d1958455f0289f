#!/bin/sh
# Two ranks that share the matrices of published weights read half of the files each: weight_slices.sh MSLUA
set -eu
export OMP_WAIT_POLICY=passive  # tests share their cores
mslua=$PWD/$1
recipe=$(cd "$(dirname "$0")" && pwd)/weight_slices.lua
cd "$TEST_TMPDIR"
mkdir -p weights shards
cat >make.lua <<'LUA'
local ms = require "mslua"
ms.set_seed(3)
local net = require "mslua.models.llama" {
  vocab = 512, block = 16, layers = 2, heads = 8, kv_heads = 4, dim = 256, hidden = 512 }
ms.save_pretrained(net, "weights")
ms.save_pretrained(net, "shards", { dtype = "bfloat16", shard_bytes = 1e6 })
LUA
"$mslua" run make.lua
size=$(cat weights/*.safetensors | wc -c)
half_size=$(cat shards/*.safetensors | wc -c)
[ "$(ls shards/*.safetensors | wc -l)" -gt 1 ] || { echo "expected shards"; exit 1; }

# run NAME FOLDER RANKS
run() {
  WEIGHTS=$PWD/$2 READ=$PWD/$1.read LOSS=$PWD/$1.loss "$mslua" train "$recipe" -n "$3" --fast-dev-run=1 \
    >"$1.log" 2>&1 || { cat "$1.log"; exit 1; }
}

# within WHAT GOT LOW HIGH
within() {
  awk -v what="$1" -v got="$2" -v low="$3" -v high="$4" 'BEGIN {
    printf "%s: %d bytes, expected %d to %d\n", what, got, low, high; exit !(got >= low && got <= high) }'
}

run one weights 1
run two weights 2
run sharded shards 2
# Headers, and what the system reads beside.
within "one rank" "$(cat one.read.0)" "$size" $((size + 200000))
for rank in 0 1; do
  within "rank $rank of two" "$(cat two.read.$rank)" $((size * 45 / 100)) $((size * 55 / 100 + 200000))
  within "rank $rank of two, shards" "$(cat sharded.read.$rank)" $((half_size * 45 / 100)) \
    $((half_size * 55 / 100 + 200000))
  awk -v a="$(cat one.loss.0)" -v b="$(cat two.loss.$rank)" 'BEGIN { d = a / b - 1; exit !(d < 1e-5 && d > -1e-5) }' ||
    { echo "the losses differ: $(cat one.loss.0) and $(cat two.loss.$rank)"; exit 1; }
done
echo ok
