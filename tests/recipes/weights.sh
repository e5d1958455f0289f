#!/bin/sh
# Which run and which weights a verb reads, and what it says where nothing would be silently wrong: weights.sh MSLUA
set -u
export OMP_WAIT_POLICY=passive  # tests share their cores
mslua=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
failed=0
fail() { echo "$*"; failed=1; }

# expect NAME CODE TEXT COMMAND...: exit code and a part of what it prints, on stdout or stderr.
expect() {
  name=$1 wanted=$2 text=$3
  shift 3
  out=$("$@" 2>&1)
  code=$?
  [ "$code" = "$wanted" ] || fail "$name: exit code $code, expected $wanted: $out"
  case $out in
    *"$text"*) ;;
    *) fail "$name: expected '$text' in: $out" ;;
  esac
}
lacks() { case $out in *"$2"*) fail "$1: did not expect '$2' in: $out" ;; esac; }

# Two rows of three in a class; `bad` divides by what padding makes 0.
cat > recipe.lua <<'LUA'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { name = "a", lr = 0.5, epochs = 2, n = 12, layers = 1, hidden = 6, bad = false, nan = false,
  save = true, detach = "", freeze = false }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.first = nn.Dense(4, p.hidden)
  self.middle = p.layers > 1 and nn.Dense(p.hidden, p.hidden) or nil
  self.last = nn.Dense(p.hidden, 3)
end
function Net:construct(x)
  if p.bad then x = x / ops.reduce_sum(x, { 2 }, { keep_dims = true }) end
  x = ops.tanh(self.first(x))
  if p.detach == "first" or p.detach == "all" then x = ops.stop_gradient(x) end
  if self.middle then x = ops.tanh(self.middle(x)) end
  x = self.last(x)
  if p.detach == "all" then x = ops.stop_gradient(x) end
  return x
end
local function samples(n)
  ms.set_seed(5)
  local rows, labels = {}, {}
  for i = 1, n do
    local c = i % 3
    rows[i] = { c == 0 and 1 or 0.1, c == 1 and 1 or 0.1, c == 2 and 1 or 0.1, 0.5 }
    labels[i] = c
  end
  if p.nan then rows[1][1] = 0 / 0 end
  return ms.dataset.NumpySlicesDataset({ ms.Tensor(rows), ms.Tensor(labels, ms.int32) }, { "x", "y" }):batch(4)
end
return ms.recipe {
  name = p.name, seed = 3, dataset = function() return samples(12) end,
  eval_dataset = function() return samples(p.n) end,
  network = function()
    local net = Net()
    if p.freeze then
      for _, q in ipairs(net.first:get_parameters()) do q.requires_grad = false end
    end
    return net
  end,
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 }, train = { epochs = p.epochs },
  eval = { metrics = { "top1", mine = function(output) return ops.reduce_mean(output, { 2 }) end } },
  checkpoint = p.save and { save_checkpoint_steps = 3 } or nil,
}
LUA
train() { "$mslua" train recipe.lua --no-attach "$@" > out.txt 2>&1 || fail "train $*: $(cat out.txt)"; }

# `last` and `best` are of this recipe's runs, and are named; a run without checkpoints does not hide one that has them.
train epochs=6
train name=b epochs=1 lr=0.01
train name=a-long epochs=1 lr=0.01
train save=false epochs=1 lr=0.01
mkdir -p runs/a-20990101-000000/ckpt
expect "eval of the first" 0 "top1 100.0%" "$mslua" eval recipe.lua
case $out in *"weights of runs/a-2"*"/ckpt/a-6_18.ckpt, step 18"*) ;; *) fail "which weights: $out" ;; esac
expect "best" 0 "weights of runs/a-2" "$mslua" eval recipe.lua --ckpt best
expect "the other recipe" 0 "weights of runs/b-2" "$mslua" eval recipe.lua name=b
expect "a recipe without runs" 2 "no run of c with a checkpoint under runs/; give one with --ckpt PATH" \
  "$mslua" eval recipe.lua name=c
expect "two ranks" 0 "weights of runs/a-2" "$mslua" eval recipe.lua -n 2
expect "ckpt of all" 0 "runs/a-long-2" "$mslua" ckpt show last
expect "ckpt ls" 0 "runs/a-long-2" "$mslua" ckpt ls
expect "verify best" 0 ": ok" "$mslua" ckpt verify best
cp -r "$(ls -td runs/a-2*/ckpt | head -1 | xargs dirname)" without
rm "$(ls -d without/ckpt/*.ckpt | head -1)/MANIFEST.json"
expect "verify without a manifest" 9 "MANIFEST.json" "$mslua" ckpt verify without
expect "merge into NumPy's" 2 "expected a file that ends in .safetensors, got x.npz (\`mslua ckpt convert --to npz\`" \
  "$mslua" ckpt merge last x.npz
expect "weights of NumPy's" 0 "" "$mslua" ckpt convert last x.npz --to npz
mkdir hf
expect "a network of one's own in Hugging Face's form" 2 "--to safetensors, with OUT.safetensors, writes any network" \
  "$mslua" ckpt convert last hf
expect "a network of one's own as safetensors" 0 "" "$mslua" ckpt convert last own.safetensors --to safetensors
expect "weights of a ZIP archive" 9 "x.npz: not a good safetensors file: it is a ZIP archive" \
  "$mslua" eval recipe.lua --ckpt x.npz
expect "plot needs no checkpoint" 0 "loss" "$mslua" plot last
newest=$(ls -td runs/a-2*/metrics.jsonl | head -1 | xargs dirname)
case $out in *"$newest"*) ;; *) fail "plot: expected $newest in: $out" ;; esac
expect "logs need no checkpoint" 0 "$newest" "$mslua" logs
expect "logs of a run that has ended" 0 "loss is" timeout 60 "$mslua" logs last -f
expect "plot of a recipe" 0 "runs/b-2" "$mslua" plot b
expect "plot of nothing" 2 "'nothing' is no run folder, no recipe with a run" "$mslua" plot nothing
expect "resume" 0 "nothing is left to train: the checkpoint is of step 18, the end of epochs = 6" \
  "$mslua" train recipe.lua epochs=6 --resume --no-attach
expect "resume by steps" 0 "the checkpoint is of step 18, after step 6, the end of max_steps = 6" \
  "$mslua" train recipe.lua --resume --no-attach --max-steps 6
train epochs=8 --resume
grep -q 'step 18$' out.txt || fail "resume to 8: $(cat out.txt)"
if grep -q "nothing is left" out.txt; then fail "resume to 8: $(cat out.txt)"; fi
rm -r runs/a-2*
train epochs=6 checkpoint.directory=kept
expect "a directory of the recipe's own" 0 "weights of kept/a-6_18.ckpt" "$mslua" eval recipe.lua \
  checkpoint.directory=kept

# A checkpoint that fits in part.
expect "a layer more" 2 "not in the checkpoint: middle.weight, middle.bias (--partial loads what fits)" \
  "$mslua" eval recipe.lua --ckpt kept layers=2
expect "a layer more, partial" 0 "initial values stay: middle.weight, middle.bias" \
  "$mslua" eval recipe.lua --ckpt kept layers=2 --partial
train name=deep layers=2 epochs=1
expect "a layer less" 2 "not in the network: middle.bias, middle.weight (--partial" \
  "$mslua" eval recipe.lua --ckpt runs/deep-*
lacks "the optimizer's state is no surplus" moments
expect "a layer less, partial" 0 "not in the network, unused: middle.bias, middle.weight" \
  "$mslua" eval recipe.lua --ckpt runs/deep-* --partial
expect "another width" 2 \
  "first.weight is float32{8, 4} in the network and float32{6, 4} in the checkpoint, first.bias is float32{8}" \
  "$mslua" eval recipe.lua --ckpt kept hidden=8
expect "another width, partial" 0 "initial values stay: first.weight is float32{8, 4}" \
  "$mslua" eval recipe.lua --ckpt kept hidden=8 --partial
# A part of the network that was asked for its parameters first does not change names.
train name=frozen freeze=true epochs=1
expect "frozen" 0 "first.weight" "$mslua" ckpt show runs/frozen-*
lacks "frozen" moments.first
expect "frozen, into the plain one" 0 "eval: " "$mslua" eval recipe.lua --ckpt runs/frozen-*

# Padding of the last short batch, and NaN.
for n in 12 11 10 9; do
  expect "padding, $n rows" 0 '"top1": 1,' "$mslua" eval recipe.lua --ckpt kept n=$n bad=true --json
  out=$("$mslua" eval recipe.lua --ckpt kept n=$n bad=true --json 2> err.txt)
  case $out in *nan* | *null* | *NaN*) fail "padding, $n rows: $out" ;; esac
  for mode in stand_alone data_parallel semi_auto_parallel; do
    out=$("$mslua" eval recipe.lua --ckpt kept n=$n bad=true -n 2 --json parallel.parallel_mode=$mode 2> err.txt)
    case $out in
      *nan* | *null* | *NaN*) fail "padding, $n rows, two ranks, $mode: $out" ;;
      *'"top1": 1,'*) ;;
      *) fail "padding, $n rows, two ranks, $mode: $out $(cat err.txt)" ;;
    esac
  done
done
expect "a NaN row" 7 "mslua: error: eval: loss, mine are NaN" "$mslua" eval recipe.lua --ckpt kept nan=true
case $out in *"eval: loss NaN, top1 "*) ;; *) fail "a NaN row: $out" ;; esac
out=$("$mslua" eval recipe.lua --ckpt kept nan=true --json 2> err.txt)
case $out in '{"loss": null, "top1": '*', "mine": null}') ;; *) fail "JSON: $out" ;; esac
expect "a NaN row, two ranks" 7 "loss, mine are NaN" "$mslua" eval recipe.lua --ckpt kept nan=true -n 2
train name=nan bad=true n=11 epochs=1
grep -q "eval: epoch 1, loss [0-9.]*, top1" out.txt || fail "eval in training: $(cat out.txt)"

# A NaN metric while training: said, null in metrics.jsonl, never the best.
cat > nan.lua <<'LUA'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local x, y = ms.rand({ 8, 4 }, ms.float32, "x"), ms.rand({ 8, 2 }, ms.float32, "y")
local p = ms.params { epochs = 3, patience = 9 }
return ms.recipe {
  name = "nan", dataset = ms.dataset.NumpySlicesDataset({ x, y }):batch(4),
  eval_dataset = ms.dataset.NumpySlicesDataset({ x, y }):batch(4),
  network = nn.Dense(4, 2), loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 },
  eval = { metrics = { odd = function(output) return ops.log(ops.reduce_sum(output * 0, { 2 }) - 1) end } },
  callbacks = ms.EarlyStopping { monitor = "eval_odd", patience = p.patience },
  train = { epochs = p.epochs }, checkpoint = { save_checkpoint_steps = 2 },
}
LUA
expect "NaN metric in training" 0 "odd NaN" "$mslua" train nan.lua --out nan --no-attach
grep -q '"eval_odd":null' nan/metrics.jsonl || fail "metrics.jsonl: $(cat nan/metrics.jsonl)"
[ -z "$(ls nan/ckpt/best 2> /dev/null)" ] || fail "best: $(ls nan/ckpt/best)"
expect "NaN stops early" 0 "early stopping: epoch 3, eval_odd is NaN and has not improved for 3 epochs" \
  "$mslua" train nan.lua --out nan2 --no-attach epochs=9 patience=3
expect "plot of NaN" 2 "eval_odd is NaN or infinite each time" "$mslua" plot nan --keys eval_odd

# Gradients that reach nothing.
expect "no gradient at all" 2 "no parameter gets a gradient" "$mslua" train recipe.lua --no-attach detach=all
case $out in *"error: recipe.lua:"[0-9]*) ;; *) fail "no line of the recipe: $out" ;; esac
expect "some without a gradient" 0 "warning: no gradient reaches first.weight, first.bias" \
  "$mslua" train recipe.lua --no-attach detach=first epochs=1
[ "$(printf '%s\n' "$out" | grep -c "no gradient")" = 1 ] || fail "reported once: $out"
expect "all of them" 0 "epoch: 1" "$mslua" train recipe.lua --no-attach epochs=1
lacks "all of them" "no gradient"

# The mean of an epoch.
"$mslua" train recipe.lua --no-attach epochs=2 > each.txt 2> /dev/null
"$mslua" train recipe.lua --no-attach epochs=2 --log-every epoch > epochs.txt 2> /dev/null
mean=$(awk '/^epoch: 2 step/ { s += $NF; n++ } END { printf "%.4f", s / n }' each.txt)
grep -q "^epoch: 2, mean loss is $mean" epochs.txt || fail "mean loss: $mean, got: $(cat epochs.txt)"
[ "$(grep -c '^epoch: .*loss' epochs.txt)" = 2 ] || fail "one line an epoch: $(cat epochs.txt)"
expect "a part of an epoch" 0 "epoch: 2, mean loss of 1 of 3 steps is " "$mslua" train recipe.lua --no-attach \
  --log-every epoch --max-steps 4

# What would be without effect.
expect "run of a recipe" 2 "the file gives a recipe, and \`mslua run\` does not train one: mslua train nan.lua" \
  "$mslua" run nan.lua
cat > script.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 8, 4 }, ms.ones { 8, 2 } }):batch(2)
local model = ms.Model(nn.Dense(4, 2), { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
if arg[1] ~= "none" then model:train { 5, ds, callbacks = ms.LossMonitor() } end
print("arguments " .. arg[0] .. " " .. (arg[1] or "") .. " " .. select("#", ...))
LUA
out=$("$mslua" run script.lua --max-steps 3 2> /dev/null)
[ "$(printf '%s\n' "$out" | grep -c 'loss is')" = 3 ] || fail "run --max-steps: $out"
expect "max-steps of nothing" 2 "--max-steps 3 has no effect" "$mslua" run script.lua none --max-steps 3
expect "a parameter of nothing" 2 "lr=0.1 has no effect" "$mslua" run script.lua none lr=0.1
expect "a preset of nothing" 2 "--preset smoke has no effect" "$mslua" run script.lua none --preset smoke
expect "arguments" 0 "arguments script.lua none 2" "$mslua" run script.lua none -- -5
expect "a folder" 2 "is a folder, expected a Lua file" "$mslua" train "$PWD"
expect "an unknown variable" 0 \
  "warning: the variable MSLUA_EPOCH of the environment sets nothing here (did you mean 'MSLUA_EPOCHS'?)" \
  env MSLUA_EPOCH=1 "$mslua" train recipe.lua --no-attach
expect "known variables" 0 "epoch: 1" env MSLUA_EPOCHS=1 MSLUA_TRAIN_CLIP_NORM=5 MSLUA_PLAINTEXT=1 \
  "$mslua" train recipe.lua --no-attach
lacks "known variables" "sets nothing"
# A worker's variables of the launch are not the recipe's.
echo 'print("epoch " .. require "mslua".params { epoch = 1 }.epoch)' > epoch.lua
expect "a parameter in a worker" 0 "epoch 7" env MS_ROLE=MS_WORKER MS_WORKER_NUM=1 MS_SCHED_HOST=127.0.0.1 \
  MS_SCHED_PORT=9 MSLUA_EPOCH=7 "$mslua" run epoch.lua
expect "an unknown variable of a script" 0 "the variable MSLUA_NOSUCH of the environment sets nothing" \
  env MSLUA_NOSUCH=3 "$mslua" run script.lua none
expect "recovery, one process" 4 "use mslua train --recover" env MS_ENABLE_RECOVERY=1 \
  "$mslua" train recipe.lua --no-attach
expect "a parameter server" 4 "there are no parameter servers here" env MS_ROLE=MS_PSERVER MS_WORKER_NUM=2 \
  MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=9 "$mslua" train recipe.lua

train name=ema train.ema=0.9 epochs=2
expect "averages to begin with" 0 "mslua: train: the averages of the parameters (train.ema)" \
  "$mslua" train recipe.lua name=started --init-from "$(ls -d runs/ema-2*)" --max-steps 1 --no-attach
exit $failed
