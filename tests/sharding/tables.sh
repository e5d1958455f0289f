#!/bin/sh
# The recipe dlrm, whose ranks share the rows of every table, gives the losses of one process in float64, also where the
# number of ranks does not divide the tables' heights: tables.sh MSLUA RECIPES
set -u
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
recipes=$PWD/$2
here=$(cd "$(dirname "$0")" && pwd)
cd "$TEST_TMPDIR" || exit 1
failed=0
steps=6
"$mslua" data make criteo data --samples 300 2>/dev/null || exit 1

# losses NAME RANKS [key=value ...]: those of rank 0, in the file NAME.0.
losses() {
  name=$1 processes=$2
  shift 2
  MODES_STAGES=0 MODES_DTYPE=float64 MODES_RECIPE=$recipes/dlrm.lua MODES_LOSSES=$PWD/$name \
    "$mslua" train "$here/modes.lua" -n "$processes" --preset smoke --fast-dev-run=$steps data_path=data rows=1001 \
    batch_size=12 "$@" >"$name.log" 2>&1 || { echo "$name failed:"; tail -5 "$name.log"; failed=1; }
}

# same NAME WANT: the losses agree.
same() {
  paste "$2.0" "$1.0" | awk -v steps=$steps '
    { d = $2 / $1 - 1; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
    END { printf "%d losses, worst difference %.2g\n", n, worst; exit !(n == steps && worst <= 1e-9) }' ||
    { echo "$1: expected $steps losses within 1e-9 of those of $2"; failed=1; }
}

losses one 1 parallel.parallel_mode=stand_alone
for ranks in 2 3; do
  losses "n$ranks" "$ranks"
  same "n$ranks" one
done
losses micro 2 train.accumulate_steps=2 train.clip_norm=1
losses micro_one 1 train.accumulate_steps=2 train.clip_norm=1 parallel.parallel_mode=stand_alone
same micro micro_one

# A rank makes nothing of its part's height but the tables themselves, which it updates in place.
"$mslua" graph "$recipes/dlrm.lua" -n 2 --rank 1 --preset smoke data_path=data rows=1001 batch_size=12 >graph.txt
tables=$(grep -c "= update_rows(" graph.txt)
wide=$(grep -v "= input(\|= update_rows(\|= fused(.*top\|^  return" graph.txt | grep -c "\[504,")
echo "$tables updates by rows, $wide values of a table's height"
[ "$tables" = 78 ] && [ "$wide" = 0 ] || failed=1
# The losses fall: the tables are trained.
awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first) }' one.0 || { echo "no falling loss"; failed=1; }

# A row of padding, which the ranks' shards of the table hold, begins at 0 and stays there.
cat >padding.lua <<'LUA'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p, ranks = ms.params { batch_size = 12 }, ms.communication.get_group_size()
local ids = (ms.rand({ 36, 5 }, "float32", "ids") * 6.99):astype "int32"
local y = ms.randn({ 36, 5, 4 }, "float32", "y"):astype "float64"
local Net = nn.Cell:extend "Net"
function Net:init()
  self.table = nn.Embedding(7, 4, { padding_idx = 5, multiple_of = 6 })
  if ranks > 1 then self.table:shard { { ranks, 1 }, { 1, 1 } } end
end
function Net:construct(x) return self.table(ops.cast(x, "int32")) end
return ms.recipe {
  name = "padding", network = function() return Net() end, loss = nn.MSELoss(),
  optimizer = nn.Adam { learning_rate = 0.1 },
  dataset = ms.dataset.NumpySlicesDataset({ ids, y }):batch(p.batch_size),
  train = { epochs = 2 }, parallel = { parallel_mode = "semi_auto_parallel" },
}
LUA
padded() {
  MODES_STAGES=0 MODES_DTYPE=float64 MODES_RECIPE=$PWD/padding.lua MODES_LOSSES=$PWD/$1 \
    "$mslua" train "$here/modes.lua" -n "$2" --fast-dev-run="$steps" batch_size="$((12 / $2))" \
    >"$1.log" 2>&1 ||
    { echo "$1 failed:"; tail -5 "$1.log"; failed=1; }
}
padded padded 1
for ranks in 2 3; do
  padded "padded$ranks" "$ranks"
  same "padded$ranks" padded
done

# An index that only the added rows have is an error.
cat >index.lua <<'LUA'
local ms = require "mslua"
local net = ms.nn.Embedding(1001, 2, { multiple_of = 48 })
assert(net.embedding_table.shape[1] == 1008)
net(ms.Tensor({ 1000 }, ms.int32))
net(ms.Tensor({ 1001 }, ms.int32))
LUA
if "$mslua" run index.lua >index.log 2>&1 || ! grep -q "indices\[1\] is 1001, expected 0 to 1000" index.log; then
  echo "expected an error about index 1001:"
  cat index.log
  failed=1
fi
[ "$failed" = 0 ] && echo ok
exit "$failed"
