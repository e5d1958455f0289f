#!/bin/bash
# Folders in the form of Hugging Face as users give them to commands, and what is wrong with some:
# pretrained.sh MSLUA hf.py npz_is.py
set -u
mslua=$PWD/$1 writer=$PWD/$2 npz_is=$PWD/$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

# expect NAME CODE TEXT COMMAND...: the command's exit code, and what its output contains.
expect() {
  local name=$1 code=$2 text=$3 got
  shift 3
  got=$("$@" 2>&1)
  local found=$?
  if [ "$found" != "$code" ] || [[ "$got" != *"$text"* ]]; then
    echo "$name: exit code $found, expected $code and '$text', got: $got"
    failed=1
  fi
}

write() { python3 "$writer" write "$@"; }
write gpt2 good
write llama shards --shards

# --- what works
expect "greedy ids" 0 '"ids": [' "$mslua" generate good --ids 1,2,3 --temperature 0 --max-new 4 --json
one=$("$mslua" generate good --ids 1,2,3 --seed 4 --max-new 6)
two=$("$mslua" generate good --ids 1,2,3 --seed 4 --max-new 6 --texts 2 | head -1)
[ "${one%,*}" != "" ] && [ "${one%%,*}" = 1 ] || { echo "generate: $one"; failed=1; }
[ "${two%%,*}" = 1 ] || { echo "generate --texts: $two"; failed=1; }
expect "show" 0 "blocks.0.attn.in_proj.weight (transposed)" "$mslua" ckpt show good
mkdir out
expect "convert to hf" 0 "" "$mslua" ckpt convert good out
wanted=$("$mslua" generate good --ids 5 --temperature 0)
expect "the same tokens" 0 "$wanted" "$mslua" generate out --ids 5 --temperature 0
grep -q '"format": *"pt"' out/model.safetensors || { echo "convert: no format pt"; failed=1; }
expect "convert to safetensors" 0 "" "$mslua" ckpt convert good good.safetensors --to safetensors
expect "our names" 0 "blocks.1.ln1.gamma" "$mslua" ckpt show good.safetensors
expect "convert to npz" 0 "" "$mslua" ckpt convert good good.npz --to npz
expect "arrays of numbers" 0 "28 arrays are the tensors" python3 "$npz_is" good.npz good.safetensors
cat >types.lua <<'LUA'
local ms = require "mslua"
local values = { scalar = ms.Tensor(3.25, ms.float16), ["a/b"] = ms.zeros { 2, 0, 3 } }
for _, dtype in ipairs { "float64", "bfloat16", "int32", "int64", "uint8" } do
  values[dtype] = ms.Tensor({ 1, 2, 3 }, dtype)
end
for _, form in ipairs { "npz", "safetensors" } do ms.save_checkpoint(values, "types." .. form) end
LUA
expect "types in an npz" 0 "" "$mslua" run types.lua
expect "arrays of each type" 0 "7 arrays are the tensors" python3 "$npz_is" types.npz types.safetensors
expect "another ending" 2 "expected a name that ends in .npz" "$mslua" ckpt convert good good.np --to npz

# --- output embeddings that are the input's: a file may repeat them
mkdir tied same other
cat >tied.lua <<'LUA'
local ms = require "mslua"
local net = require "llama" { vocab = 11, block = 8, layers = 1, heads = 2, dim = 8, hidden = 12, tied = true }
ms.save_pretrained(net, "tied")
local values = ms.load_checkpoint "tied/model.safetensors"
for folder, scale in pairs { same = 1, other = 2 } do
  values["lm_head.weight"] = values["model.embed_tokens.weight"] * scale
  ms.save_checkpoint(values, folder .. "/model.safetensors")
  os.execute("cp tied/config.json " .. folder)
end
LUA
expect "tied folders" 0 "" "$mslua" run tied.lua
wanted=$("$mslua" generate tied --ids 5 --temperature 0 --max-new 5)
expect "tied, written twice" 0 "$wanted" "$mslua" generate same --ids 5 --temperature 0 --max-new 5
expect "tied, and different" 2 "lm_head.weight differs from model.embed_tokens.weight, and the network has one tensor" \
  "$mslua" generate other --ids 5

# --- a tokenizer of more tokens than the network has, and of fewer
cat >words.lua <<'LUA'
local ms = require "mslua"
for folder, vocab in pairs { small = 260, large = 400 } do
  os.execute("mkdir " .. folder)
  ms.save_pretrained(require "llama" { vocab = vocab, block = 32, layers = 1, heads = 2, dim = 8, hidden = 12 }, folder)
  ms.text.Tokenizer.train({ texts = ("the cat and the hat "):rep(50), vocab_size = 270 }):save(folder)
end
LUA
expect "folders with a tokenizer" 0 "" "$mslua" run words.lua
expect "a tokenizer of more tokens" 2 "a tokenizer of another vocabulary, 26" "$mslua" generate small --prompt the
expect "a tokenizer of fewer tokens" 0 "the" "$mslua" generate large --prompt the --max-new 20 --temperature 50

# --- a head for other classes, and what timm's config.json names
write resnet pictures
cat >classes.lua <<'LUA'
require "mslua"
local net = require("resnet").resnet18 { num_classes = 3, width = 8 }
require("mslua.pretrained").load_into(net, "pictures")
LUA
expect "a head for other classes" 0 "of other sizes, initial values stay: fc.weight is [5, 64], expected [3, 64]" \
  "$mslua" run classes.lua
expect "names of torchvision" 0 "layer2.0.down_bn.moving_variance" "$mslua" ckpt show pictures
cp -r pictures other_pictures
sed -i 's/resnet18/resnet26/' other_pictures/config.json
expect "an architecture that is not there" 2 'architecture is "resnet26", expected one of resnet101' \
  "$mslua" ckpt show other_pictures

# --- what a network and the folder of its weights must have in common, in each family
write llama rotary
write bert words
write vit patches
cat >settings.lua <<'LUA'
require "mslua"
local load_into = require("mslua.pretrained").load_into
local rotary = { base = 100, scaling = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4,
  original_length = 32 }
local networks = {
  good = { require "gpt", vocab = 37, block = 24, layers = 2, heads = 4, dim = 16, activation = "gelu_new" },
  rotary = { require "llama", vocab = 37, block = 24, layers = 2, heads = 4, kv_heads = 2, dim = 16, hidden = 24,
    rotary = rotary },
  words = { require "bert", vocab = 37, block = 24, layers = 2, heads = 4, dim = 16, hidden = 24, head = "mlm",
    pooler = false },
  patches = { require "vit", image_size = 8, patch = 4, classes = 5, layers = 2, heads = 4, dim = 16, hidden = 24 },
  pictures = { require("resnet").resnet18, num_classes = 5, width = 8 },
}
local function load(folder, changes)
  local settings = {}
  for key, v in pairs(networks[folder]) do settings[key] = v end
  for key, v in pairs(changes) do settings[key] = v end
  local make = table.remove(settings, 1)
  return pcall(load_into, make(settings), folder)
end
local function refused(folder, changes, wanted)
  local ok, problem = load(folder, changes)
  if ok or not problem:find("config.json: " .. wanted .. ": give the network the folder's values", 1, true) then
    print(("%s: expected '%s', got: %s"):format(folder, wanted, tostring(problem)))
  end
end
local function taken(folder, changes) assert(load(folder, changes)) end

refused("good", { heads = 2, activation = "gelu" }, 'activation is "gelu" in the network and "gelu_new" in the folder; '
  .. "heads is 2 in the network and 4 in the folder")
refused("rotary", { epsilon = 1e-6, rotary = {} }, "epsilon is 1e-06 in the network and 1e-05 in the folder; "
  .. "rotary.base is 10000 in the network and 100 in the folder; "
  .. "rotary.factor is 1 in the network and 8 in the folder; "
  .. "rotary.original_length is 8192 in the network and 32 in the folder; "
  .. 'rotary.scaling is "none" in the network and "llama3" in the folder')
refused("words", { heads = 2, epsilon = 1e-5 }, "epsilon is 1e-05 in the network and 1e-12 in the folder; "
  .. "heads is 2 in the network and 4 in the folder")
refused("patches", { activation = "gelu_new" }, 'activation is "gelu_new" in the network and "gelu" in the folder')
networks.pictures[1] = require("resnet").resnet34
refused("pictures", { stem = "cifar" }, 'architecture is "resnet34" in the network and "resnet18" in the folder; '
  .. 'stem is "cifar" in the network and "imagenet" in the folder')
networks.pictures[1] = require("resnet").resnet18

taken("good", { dropout = 0.3 })
taken("rotary", { block = 1024, epsilon = 1.00000001e-5 })
taken("words", { head = "classifier", classes = 4, dropout = 0 })
taken("patches", { classes = 3, drop_path = 0.1 })
taken("pictures", { num_classes = 7 })
print "all settings"
LUA
said=$("$mslua" run settings.lua 2>settings.err)
[ "$said" = "all settings" ] || { echo "settings: $said"; cat settings.err; failed=1; }

# --- a recipe that starts from a folder, its run as a folder, and text from it
mkdir text
for _ in $(seq 60); do echo 'the quick brown fox jumps over the lazy dog'; done >text/input.txt
cat >tune.lua <<'LUA'
local ms = require "mslua"
local GPT = require "gpt"
local p = ms.params { from = "good", dim = 16, data = "text", micro = 0 }
local function data(usage) return ms.dataset.TextDataset(p.data, { usage = usage, block = 16 }):batch(4) end
return ms.recipe {
  name = "tune", weights = p.from, dataset = function() return data "train" end,
  network = function()
    local net = GPT { vocab = 37, block = 24, layers = 2, heads = 4, dim = p.dim, activation = "gelu_new" }
    return p.micro > 0 and ms.nn.PipelineCell(net, p.micro) or net
  end,
  loss = ms.nn.CrossEntropyLoss(), optimizer = ms.nn.SGD { learning_rate = 0.1 },
  train = { steps = 2 }, checkpoint = { save_checkpoint_steps = 2 },
}
LUA
expect "weights of a recipe" 0 "starting from the weights of good" "$mslua" train tune.lua --out runs/a
expect "weights of another family" 2 "model_type is 'llama', the network is of the family 'gpt2'" \
  "$mslua" train tune.lua --out runs/b from=shards
expect "weights of another size" 2 "dim is 8 in the network and 16 in the folder; hidden is 32 in the network and 64" \
  "$mslua" train tune.lua --out runs/b dim=8
expect "text of a recipe" 0 "the" "$mslua" generate tune.lua --ckpt runs/a --prompt the --max-new 5
expect "a prompt's unknown character" 2 "has no character" "$mslua" generate tune.lua --ckpt runs/a --prompt '~'
expect "a prompt's unknown character of several bytes" 2 'has no character "日", byte 5 of the prompt' \
  "$mslua" generate tune.lua --ckpt runs/a --prompt 'the 日本'
mkdir tuned
expect "a run as a folder" 0 "" "$mslua" ckpt convert runs/a tuned
expect "and text from it" 0 "1,2," "$mslua" generate tuned --ids 1,2 --max-new 2
mkdir piped
expect "weights of a network in micro-batches" 0 "starting from the weights of good" \
  "$mslua" train tune.lua --out runs/piped micro=2
expect "weights that another network has" 2 "dim is 8 in the network and 16 in the folder" \
  "$mslua" train tune.lua --out runs/b dim=8 micro=2
expect "its run as a folder" 0 "" "$mslua" ckpt convert runs/piped piped
wanted=$("$mslua" generate piped --ids 1,2 --temperature 0 --max-new 5)
expect "and text from both" 0 "$wanted" "$mslua" generate runs/piped --ids 1,2 --temperature 0 --max-new 5
expect "ids that its vocabulary lacks" 2 "expected an id from 0 to 36, got 40" "$mslua" generate runs/piped --ids 40

# --- weights that are NaN
cat >undefined.lua <<'LUA'
local ms = require "mslua"
local net = ms.from_pretrained "good"
net.ln.gamma.value = net.ln.gamma.value * (0 / 0)
ms.save_pretrained(net, "undefined")
LUA
mkdir undefined
"$mslua" run undefined.lua || failed=1
expect "weights that are NaN" 7 "the logits of token 4 are NaN or infinite" "$mslua" generate undefined --ids 1,2,3

# --- bad input
bad() {  # bad NAME TEXT FOLDER
  expect "$1" 2 "$2" "$mslua" generate "$3" --ids 1
}
edit() {  # edit FOLDER FILE PYTHON: v is the file's JSON
  python3 - "$1/$2" "$3" <<'PY'
import json, sys
v = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(v, open(sys.argv[1], "w"))
PY
}
copy() { rm -rf bad; cp -r "$1" bad; }

mkdir empty
bad "no config.json" "empty: no config.json" empty
copy good; rm bad/model.safetensors
bad "no weights" "no model.safetensors and no model.safetensors.index.json" bad
touch bad/pytorch_model.bin
bad "a pickle" "is a pickle, which may run any program" bad
copy good; edit bad config.json 'v["model_type"] = "mamba"'
bad "model type" 'model_type is "mamba", expected one of bert, gpt2, llama, vit' bad
copy good; edit bad config.json 'v["activation_function"] = "swish2"'
bad "activation" 'activation_function = "swish2" is not supported, expected gelu_new' bad
copy good; edit bad config.json 'del v["n_layer"]'
bad "a key is missing" "config.json: no n_layer" bad
copy good; edit bad config.json 'v["n_layer"] = 3'
bad "missing tensors" "not in the files: blocks.2." bad
copy good; edit bad config.json 'v["n_layer"] = 1'
bad "left over" "in the files and not in the network: blocks.1." bad
copy good; edit bad config.json 'v["n_embd"] = 8'
bad "another shape" "wte.weight is [37, 16], expected [37, 8]" bad
copy good; echo '{' >bad/config.json
bad "no JSON" "config.json" bad
copy shards; edit bad config.json 'v["rope_scaling"]["rope_type"] = "yarn"'
bad "rope type" "is not supported, expected the type default, linear or llama3" bad
for key in factor low_freq_factor original_max_position_embeddings; do
  copy shards; edit bad config.json "del v['rope_scaling']['$key']"
  bad "rope_scaling without $key" "of the type llama3 with the number $key" bad
done
copy shards; rm bad/model-00002-of-00002.safetensors
bad "a missing shard" "the shard model-00002-of-00002.safetensors" bad
copy shards; edit bad model.safetensors.index.json 'v["weight_map"]["model.norm.weight"] = "../x.safetensors"'
bad "a path" "expected a file in this folder" bad
copy shards; truncate -s -8 bad/model-00001-of-00002.safetensors
expect "a truncated shard" 2 "are not within the 10232 bytes" "$mslua" generate bad --ids 1
copy shards; cp bad/model-00001-of-00002.safetensors bad/model-00002-of-00002.safetensors
bad "a tensor twice" "is in two shards" bad
copy shards; edit bad model.safetensors.index.json 'del v["weight_map"]["model.norm.weight"]'
bad "not listed" "has the tensor 'model.norm.weight', which model.safetensors.index.json does not list" bad
bad "no folder" "nowhere" nowhere
expect "top_p" 2 "--top-p: expected a number above 0" "$mslua" generate good --ids 1 --top-p 0
expect "a long prompt" 2 "the network takes at most block = 24" "$mslua" generate good --ids "$(seq -s, 0 24)"
expect "an id" 2 "expected an id from 0 to 36, got 37" "$mslua" generate good --ids 37
expect "no id" 2 "expected token ids such as 1,2,3" "$mslua" generate good --ids 1,x
expect "no prompt" 2 "give one of --prompt, --prompt-file and --ids, got none" "$mslua" generate good
expect "no tokenizer" 2 "give token ids with --ids" "$mslua" generate good --prompt hello
expect "a checkpoint for a folder" 2 "is a folder with its weights" "$mslua" generate good --ids 1 --ckpt best
expect "convert without a folder" 2 "there is no folder" "$mslua" ckpt convert good nowhere
expect "convert of a file" 2 "nothing says what network" "$mslua" ckpt convert good.safetensors out

# --- damaged indexes and configurations: one error each, never a crash
for i in $(seq 1 40); do
  copy shards
  python3 - "$i" <<'PY'
import random, sys
r = random.Random(int(sys.argv[1]))
path = "bad/" + r.choice(["config.json", "model.safetensors.index.json"])
b = bytearray(open(path, "rb").read())
for _ in range(r.randint(1, 4)):
    at = r.randrange(len(b))
    what = r.randrange(3)
    if what == 0: b[at] = r.randrange(256)
    elif what == 1: del b[at:at + r.randint(1, 20)]
    else: b[at:at] = bytes(r.randrange(256) for _ in range(3))
open(path, "wb").write(b)
PY
  got=$("$mslua" generate bad --ids 1 --max-new 1 2>&1)
  code=$?
  case $code in
    0 | 2 | 4 | 5) ;;
    *) echo "mutation $i: exit code $code: $got"; failed=1 ;;
  esac
done
exit $failed
