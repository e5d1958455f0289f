#!/bin/sh
# What users get wrong, each with one clear line and its exit code, nothing lost: bad_input.sh MSLUA RECIPES
set -u
export OMP_WAIT_POLICY=passive  # tests share their cores
mslua=$PWD/$1
recipes=$PWD/$2
cd "$TEST_TMPDIR" || exit 1
failed=0

# refused NAME CODE TEXT COMMAND...: it ends with CODE and exactly one line of error, which contains TEXT.
refused() {
  name=$1 wanted=$2 text=$3
  shift 3
  out=$("$@" 2>&1)
  code=$?
  [ "$code" = "$wanted" ] || { echo "$name: exit code $code, expected $wanted: $out"; failed=1; }
  case $out in
    *"$text"*) ;;
    *) echo "$name: expected '$text' in: $out"; failed=1 ;;
  esac
  errors=$(printf '%s\n' "$out" | grep -c '^mslua: error: ')
  [ "$errors" = 1 ] || { echo "$name: $errors lines of error: $out"; failed=1; }
}

lenet=$recipes/lenet_mnist.lua
resnet=$recipes/resnet18_cifar10.lua
"$mslua" data make mnist digits --samples 200 2>/dev/null
"$mslua" data make cifar10 images --samples 200 2>/dev/null

refused "unknown parameter" 2 "did you mean 'epochs'?" "$mslua" train "$lenet" epohcs=3
refused "wrong type" 2 "parameter 'epochs': expected a number" "$mslua" train "$lenet" epochs=many
refused "unknown recipe key" 2 "did you mean 'optimizer'?" "$mslua" train "$lenet" optimzer=3
refused "unknown leaf" 2 "did you mean 'train.epochs'?" "$mslua" train "$lenet" train.epoch=3
refused "unknown flag" 2 "did you mean '--max-steps'?" "$mslua" train "$lenet" --max-step 3
refused "missing data" 3 "data make" "$mslua" train "$lenet" data_path=nowhere
refused "missing data names the path" 3 "nowhere" "$mslua" train "$resnet" data_path=nowhere
refused "no data path" 2 "data_path=" env -u DATA_PATH "$mslua" train "$lenet"

cp -r images short
truncate -s -1000 short/data_batch_1.bin
refused "truncated file" 3 "short/data_batch_1.bin" "$mslua" train "$resnet" data_path=short
cp -r images labels
printf '\377' | dd of=labels/data_batch_1.bin bs=1 count=1 conv=notrunc 2>/dev/null
refused "label out of range" 3 "255" "$mslua" train "$resnet" data_path=labels width=8

refused "unwritable output" 9 "/dev/null/run" "$mslua" train "$lenet" data_path=digits --out /dev/null/run
mkdir lib
printf 'return function() return lerning end\n' >lib/near.lua
printf 'print(rawget(_G, "lerning"), utf8)\nlocal rate = 1\nprint(lerning)\n' >reads.lua
refused "a script's variable" 2 "reads.lua:3: there is no variable 'lerning'" "$mslua" run reads.lua
printf 'local near = require "near"\nlocal learning = 1\nprint(near())\n' >lib/calls.lua
refused "a variable of a file beside the script" 2 "lib/near.lua:1: there is no variable 'lerning'" \
  "$mslua" run lib/calls.lua
refused "no recipe there" 2 "cannot read nothing.lua" "$mslua" train nothing.lua

# A recipe with `construct` as given.
recipe() {
  cat >"$1" <<LUA
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local Net = nn.Cell:extend "Net"
function Net:init() self.dense, self.w = nn.Dense(4, 2), self:parameter("w", {96, 96}, "ones") end
function Net:construct(x) $2 end
return ms.recipe {
  name = "bad", network = function() return Net() end, loss = nn.MSELoss(),
  dataset = ms.dataset.NumpySlicesDataset({ms.ones {64, 4}, ms.ones {64, 2}}, {"x", "y"}):batch(2),
  optimizer = nn.Momentum {learning_rate = $3, momentum = 0.9}, train = {epochs = 50},
  checkpoint = {save_checkpoint_steps = 16, directory = "saved", async_save = false},
}
LUA
}
recipe shapes.lua "return ops.matmul(x, self.w)" 0.1
refused "shapes of a matmul" 2 "shapes.lua:5: MatMul: " "$mslua" train shapes.lua
refused "shapes of a matmul" 2 "dimension 2 of x is 4, dimension 1 of w is 96" "$mslua" train shapes.lua
cat >unowned.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.last, self.layers = nn.Dense(4, 2), {}; self.layers[1] = nn.Dense(4, 4) end
function Net:construct(x) return self.last(self.layers[1](x)) end
return ms.recipe {
  name = "unowned", network = function() return Net() end, loss = nn.MSELoss(),
  dataset = ms.dataset.NumpySlicesDataset({ms.ones {64, 4}, ms.ones {64, 2}}, {"x", "y"}):batch(2),
  optimizer = nn.Momentum {learning_rate = 0.1, momentum = 0.9}, train = {epochs = 1},
}
LUA
refused "a cell in a plain table" 2 "unowned.lua:7: get_parameters: Net.layers is a plain table, in which the" \
  "$mslua" train unowned.lua
recipe good.lua "return self.dense(x)" 0.001
sed 's/  checkpoint = /  eval = {metrics = {"mae"}}, checkpoint = /' good.lua >measured.lua
out=$("$mslua" train measured.lua --max-steps 1 2>&1)
case $out in
  *"note: eval has no effect: the recipe has no eval_dataset"*) ;;
  *) echo "eval without a dataset: nothing said so: $out"; failed=1 ;;
esac
sed 's/learning_rate = [0-9.]*/learning_rate = {0.1, 0.1}/' good.lua >rates.lua
out=$("$mslua" train rates.lua --max-steps 3 2>&1)
case $out in
  *"learning_rate has 2 numbers and the training 3 steps: those that follow have the last one"*) ;;
  *) echo "a list of rates that ends early: nothing said so: $out"; failed=1 ;;
esac
recipe two.lua "local y = self.dense(x) return y, y" 0.1
refused "two outputs and a loss" 2 "two.lua:5: Net: expected one output for the loss, construct returned 2: " \
  "$mslua" train two.lua
sed 's/epochs = 50/epochs = 50,\n  accumulate_steps = 3/' good.lua >accumulates.lua
refused "micro-batches that do not divide" 2 \
  "accumulates.lua:10: train: accumulate_steps = 3 does not divide the batch of column 'x', 2 rows" \
  "$mslua" train accumulates.lua
refused "micro-batches of the command line" 2 "good.lua:9: train: accumulate_steps = 3 does not divide" \
  "$mslua" train good.lua train.accumulate_steps=3
recipe syntax.lua "return self.dense(x" 0.1
refused "Lua syntax error" 2 "syntax.lua:5: " "$mslua" train syntax.lua
recipe raises.lua "error 'no more'" 0.1
refused "error inside construct" 2 "raises.lua:5: no more" "$mslua" train raises.lua
recipe diverges.lua "return self.dense(x)" 1e30
refused "the loss is NaN" 7 "step " "$mslua" train diverges.lua

# A disk that is full: no file may pass 16 KiB. Training continues, and the checkpoint before it is as it was; that the
# last steps are nowhere is an error in the end.
rm -rf saved
"$mslua" train good.lua --out full train.epochs=1 >/dev/null 2>&1 || { echo "training: exit code $?"; failed=1; }
before=$(cd saved && find . -type f -path '*.ckpt/*' | sort | xargs cksum)
out=$(ulimit -f 32; "$mslua" train good.lua --max-steps 40 --resume --out full --log-every 1000 2>&1)
code=$?
[ "$code" = 9 ] || { echo "full disk: exit code $code: $out"; failed=1; }
case $out in
  *"checkpoint not saved: "*"trained to step 40, but its checkpoint was not saved"*) ;;
  *) echo "full disk: nothing said so: $out"; failed=1 ;;
esac
after=$(cd saved && find . -type f -path '*.ckpt/*' | sort | xargs cksum)
[ "$before" = "$after" ] || { echo "full disk: a checkpoint changed"; failed=1; }

# A damaged checkpoint is refused by name, and an older one that is whole is gone back to.
rm -rf saved
"$mslua" train good.lua --out a --max-steps 32 >/dev/null 2>&1
newest=$(ls -d saved/*_32.ckpt)
printf 'X' | dd of="$newest/rank_0.safetensors" bs=1 seek=200 count=1 conv=notrunc 2>/dev/null
refused "damaged checkpoint" 9 "$newest" "$mslua" train good.lua --out a --max-steps 48 --resume="$newest"
refused "damaged checkpoint, verify" 9 "$newest" "$mslua" ckpt verify "$newest"
out=$("$mslua" train good.lua --out a --max-steps 48 --resume 2>&1)
case $out in
  *"resuming from saved/bad-1_16.ckpt at step 16"*) ;;
  *) echo "damaged checkpoint: expected to resume from step 16: $out"; failed=1 ;;
esac

[ "$failed" = 0 ] && echo ok
exit "$failed"
