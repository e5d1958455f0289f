#!/bin/bash
# A disk that is full, under every command that writes files: exit code 9, one line that names the file, and nothing is
# left that looks like a model. The disk is a limit on the size of files: full_disk.sh MSLUA RECIPES
set -u
export OMP_WAIT_POLICY=passive  # tests share their cores
trap '' XFSZ                    # what is written beyond the limit is an error, as on a full disk
mslua=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
failed=0

cat >gpt.lua <<'END'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local GPT = require "mslua.models.gpt"
local p = ms.params { lora = false }
local ids = ops.cast(ms.rand({ 16, 5 }, ms.float32, "ids") * 11, ms.int32)
local function data()
  return ms.dataset.NumpySlicesDataset({ ids[{ {}, { 1, 4 } }], ids[{ {}, { 2, 5 } }] }, { "x", "y" }):batch(8)
end
local function network()
  local net = GPT { vocab = 11, block = 4, layers = 1, heads = 2, dim = 16, activation = "gelu_new" }
  return p.lora and nn.LoRA.apply(net, { rank = 8, targets = "in_proj|up" }) or net
end
return ms.recipe {
  name = "gpt", seed = 1, dataset = data, network = network, loss = nn.CrossEntropyLoss(),
  optimizer = nn.AdamW { learning_rate = 0.01 }, train = { epochs = 1 }, checkpoint = { save_checkpoint_steps = 2 },
  samples = { images = function() return ms.rand({ 2, 1, 4, 4 }, ms.float32, "images") end, every_epochs = 100 },
}
END
for lora in false true; do
  "$mslua" train gpt.lua --out "run_$lora" lora=$lora >/dev/null 2>&1 || { echo "train: exit code $?"; exit 1; }
done
mkdir base adapter
"$mslua" ckpt convert run_false base && "$mslua" ckpt convert run_true adapter --to peft || exit 1
mkdir hf peft merged old
cp base/* old
before=$(cat old/* | cksum)
echo 'a text that a tokenizer is trained on, a text' >text.txt

# full BLOCKS COMMAND...: with files of at most so many KiB the command ends with 9 and one line of error.
full() {
  local blocks=$1 out code errors
  shift
  out=$(ulimit -f "$blocks"; "$mslua" "$@" 2>&1)
  code=$?
  errors=$(printf '%s\n' "$out" | grep -c '^mslua: error: .*File too large')
  [ "$code" = 9 ] && [ "$errors" = 1 ] || { echo "$*: exit code $code, expected 9 and one error: $out"; failed=1; }
}

# With 2 KiB configurations fit, and tensors do not.
for blocks in 0 2; do
  full $blocks ckpt convert run_false hf
  full $blocks ckpt convert base hf
  full $blocks ckpt convert run_true peft --to peft
  full $blocks ckpt merge-lora base adapter merged
  full $blocks ckpt convert base old
  full $blocks ckpt convert run_false one.safetensors --to safetensors
  full $blocks ckpt convert run_false one.npz --to npz
  full $blocks ckpt merge run_false one.safetensors
  full $blocks ckpt reshard run_false resharded 2
  full $blocks export gpt.lua gpt.onnx --ckpt run_false
  full $blocks report run_false -o report.html
  full $blocks data make mnist digits --samples 100
done
full 0 plot run_false --svg plot.svg
full 0 sample gpt.lua pictures.png --ckpt run_false
full 0 recipes copy quickstart copied.lua
full 0 init started
full 0 editor edited
full 0 data tokenizer text.txt --vocab 300 -o tokenizer
full 0 cert make certificates
# The password fits in 100 bytes, the CA's certificate does not.
out=$(prlimit --fsize=100 "$mslua" cert make certificates 2>&1)
code=$?
[ "$code" = 9 ] || { echo "cert make with files of 100 bytes: exit code $code, expected 9: $out"; failed=1; }
full 0 prof gpt.lua --steps 2 --trace trace.json

left=$(find hf peft merged resharded* started edited tokenizer certificates ./*.onnx ./*.safetensors ./*.npz ./*.html \
  ./*.svg ./*.png copied.lua trace.json ! -type d 2>/dev/null)
[ "$left" = "" ] || { echo "files are left: $left"; failed=1; }
[ "$(cat old/* | cksum)" = "$before" ] || { echo "the model that was there changed: $(ls -la old)"; failed=1; }

# With space all of it works, where the disk was full before.
"$mslua" ckpt convert run_false hf && "$mslua" ckpt convert run_true peft --to peft &&
  "$mslua" ckpt merge-lora base adapter merged && "$mslua" ckpt convert base old || {
  echo "converting fails"
  failed=1
}
"$mslua" generate merged --ids 1,2 --max-new 2 >/dev/null || { echo "the merged network does not generate"; failed=1; }
[ "$(find . -name '*.tmp-*')" = "" ] || { echo "temporary files are left: $(find . -name '*.tmp-*')"; failed=1; }
exit $failed
