#!/bin/sh
# What recipes can say beside the table of docs/howto/recipes.md: language.sh MSLUA. ms.print in a step, train.steps,
# datasets made by functions of Lua, which train the same when they are resumed and on any number of ranks.
set -u
export OMP_WAIT_POLICY=passive  # tests share their cores
mslua=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
failed=0
fail() { echo "$1"; failed=1; }
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }

cat >recipe.lua <<'LUA'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { print = false, width = 1 }
local Net = nn.Cell:extend "Net"
function Net:init() self.fc = nn.Dense(2, 2) end
function Net:construct(x)
  local y = self.fc(x)
  if p.print then
    ms.print(y:sum(), "sum of y")
    ms.print(y[{ 1 }])
  end
  return y
end
local x = ms.randn({ 40, 2 }, ms.float32, "x")
return ms.recipe {
  name = "language", network = function() return Net() end, loss = nn.MSELoss(),
  optimizer = nn.Adam { learning_rate = 0.01 },
  dataset = function()
    local ds = ms.dataset.NumpySlicesDataset({ x, x * 2 }, { "x", "y" })
    local train = ds:filter(function(v) return v[1] > -1 end, "x"):split { 0.8, 0.2 }
    train = train:map { function(v, w) return v * 3, w + 1 end, input_columns = { "x", "y" } }:shuffle(100)
    return train:batch(4)
  end,
  train = { steps = 9 },
  checkpoint = { save_checkpoint_steps = 5, async_save = false },
}
LUA

losses() { grep '^epoch: ' | sed 's/.*loss is //'; }
steps=$("$mslua" train recipe.lua --out a 2>err | losses | tee a.losses | wc -l)
same "train.steps" 9 "$steps" || cat err
same "train.steps on the command line" 13 "$("$mslua" train recipe.lua train.steps=13 --out b 2>&1 | losses | wc -l)"
out=$("$mslua" train recipe.lua train.epochs=1 --out c 2>&1 | losses | wc -l)
[ "$out" -gt 4 ] && [ "$out" -lt 9 ] || fail "epochs of the command line beside steps of the recipe: $out steps"

# Resumed in the middle of an epoch, and of shuffled, filtered, split and mapped samples: the same to the last bit.
"$mslua" train recipe.lua --max-steps 5 --out d >/dev/null 2>&1 || fail "five steps: exit code $?"
"$mslua" train recipe.lua --resume=d/ckpt --out e 2>err | losses >e.losses
same "resumed losses" "$(tail -4 a.losses)" "$(cat e.losses)"

# Two ranks share the samples: each prints what it has.
parallel='parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true }'
sed "s/  checkpoint/  $parallel,\n  checkpoint/; s/batch(4)/batch(2)/" recipe.lua >two.lua
"$mslua" train two.lua -n 2 --out f 2>err | losses >f.losses
same "losses of two ranks" 9 "$(wc -l <f.losses | tr -d ' ')" || cat err

out=$("$mslua" train recipe.lua print=true --max-steps 2 --out g 2>/dev/null)
same "prints of sums" 2 "$(printf '%s\n' "$out" | grep -c '^sum_of_y f32\[\]: ')"
same "prints of rows" 2 "$(printf '%s\n' "$out" | grep -c '^Net f32\[2\]:$')"
same "prints change nothing" "$(head -2 a.losses)" "$(printf '%s\n' "$out" | losses)"
out=$("$mslua" train two.lua print=true --max-steps 1 -n 2 --out h 2>/dev/null | grep -c 'sum_of_y')
same "every rank prints" 2 "$out"

cat >script.lua <<'LUA'
local ms = require "mslua"
local x = ms.Tensor { 1, 2 }
assert(ms.print(x, "x") == x)
local f = ms.value_and_grad(function(v) return ms.print(v * 2, "twice"):sum() end)
f(x)
f(x)
local function loss(y) return ms.print(y:sum(), "loss") end
local step = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(ms.nn.Dense(2, 2), loss), ms.nn.SGD { learning_rate = 0.1 })
step(ms.ones { 1, 2 }, ms.ones { 1 })
LUA
out=$("$mslua" run script.lua 2>&1)
same "prints of a script" "x f32[2]:,twice f32[2]:,twice f32[2]:,loss f32[]:" \
  "$(printf '%s\n' "$out" | grep -o '^[a-z]* f32.*:' | tr '\n' ',' | sed 's/,$//')"

[ "$failed" = 0 ] && echo ok
exit "$failed"
