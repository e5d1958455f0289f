#!/bin/sh
# `mslua eval -n N`: the ranks share the samples, and the numbers are those of one rank.
. "$(dirname "$0")/common.sh"
cat > recipe.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { mode = "stand_alone", samples = 17 }
local Net = nn.Cell:extend "Net"
function Net:init() self.first, self.second = nn.Dense(6, 24), nn.Dense(24, 4) end
function Net:construct(x) return self.second(ms.ops.tanh(self.first(x))) end
local function samples()
  ms.set_seed(7)
  local labels = {}
  for i = 1, p.samples do labels[i] = i % 4 end
  return ms.dataset.NumpySlicesDataset({ ms.rand { p.samples, 6 }, ms.Tensor(labels, ms.int32) }, { "x", "y" }):batch(4)
end
return ms.recipe {
  name = "shared", seed = 3, dataset = samples, eval_dataset = samples, network = function() return Net() end,
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = nn.Momentum { learning_rate = 0.05, momentum = 0.9 }, train = { epochs = 2 },
  eval = { metrics = { "top1" } }, parallel = { parallel_mode = p.mode },
  checkpoint = { save_checkpoint_steps = 4 },
}
LUA

run "$mslua" train recipe.lua --out alone
expect train 0 "eval: epoch 2, "
alone=$("$mslua" eval recipe.lua --ckpt alone/ckpt --json 2> /dev/null)
case $alone in
  *'"top1": '*) ;;
  *) fail "eval: $alone" ;;
esac
# `same A B`: the same but for the rounding of the loss, which is the first number.
same() {
  printf '%s\n' "$1" "$2" | tr -c '0-9.\n' ' ' | awk '
    { for (i = 1; i <= NF; i++) if (NR == 1) a[i] = $i
        else if (i > 1 ? $i != a[i] : (d = $i / a[i] - 1) > 2e-7 || d < -2e-7) bad = 1 }
    NR == 1 { n = NF } NR == 2 && NF != n { bad = 1 } END { exit bad || NR != 2 }'
}
for mode in stand_alone data_parallel semi_auto_parallel; do
  for ranks in 2 3; do
    shared=$("$mslua" eval recipe.lua --ckpt alone/ckpt --json -n $ranks mode=$mode samples=17 2> err.txt)
    # Where the graph itself is shared, a batch's loss is a sum of the ranks' sums.
    [ "$shared" = "$alone" ] || { [ $mode = semi_auto_parallel ] && same "$alone" "$shared"; } ||
      fail "$mode on $ranks ranks: $shared, expected $alone: $(cat err.txt)"
  done
done
# A rank that has no sample at all.
few=$("$mslua" eval recipe.lua --ckpt alone/ckpt --json samples=5 2> /dev/null)
shared=$("$mslua" eval recipe.lua --ckpt alone/ckpt --json samples=5 -n 3 2> err.txt)
[ "$shared" = "$few" ] || fail "5 samples on 3 ranks: $shared, expected $few: $(cat err.txt)"
run mpirun --allow-run-as-root --oversubscribe -n 2 "$mslua" eval recipe.lua --ckpt alone/ckpt --json
expect "mpirun" 0 "$alone"
count "rank 0 alone prints" 1 '"top1": '
run "$mslua" eval recipe.lua --ckpt nosuch -n 2
expect "no checkpoint" 9 "nosuch"
count "a mistake of all ranks" 1 "mslua: error["
no_leftovers eval
finish
