#!/bin/sh
# The program as a whole: verbs, exit codes, the REPL on a pipe. $1 is the program.
set -u
program=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
failed=0

# expect NAME CODE TEXT: the last command ended with CODE and its output (in `out`) contains TEXT.
expect() {
  if [ "$code" != "$2" ]; then
    echo "$1: exit code $code, expected $2: $out"
    failed=1
  fi
  case $out in
    *"$3"*) ;;
    *)
      echo "$1: expected '$3' in: $out"
      failed=1
      ;;
  esac
}
run() {
  out=$("$program" "$@" 2>&1)
  code=$?
}

run version
expect version 0 "mslua "
run doctor
expect doctor 0 "a matrix product is right"
run nosuchverb
expect "unknown verb" 2 "mslua: error:"
run help ops.pad
expect "help of a name" 0 "ops.pad(x, low = {}, high = {}"
run help nn.Dens
expect "help of no name" 2 "there is no ms.nn.Dens (did you mean 'Dense'?)"
MSLUA_CUDA_LIBRARIES=/nowhere run repl --device cuda
expect "no such device" 4 "${MSLUA_TEST_NO_DEVICE:-libcuda.so.1 was not found}"
# A standard output that is full is an error; a reader that has closed its end is none.
for words in "version" "help" "recipes ls"; do
  out=$("$program" $words 2>&1 >/dev/full)
  code=$?
  expect "$words to a full device" 9 "mslua: error: standard output: No space left on device"
done
out=$("$program" nosuchverb 2>&1 >/dev/full)
code=$?
expect "an error to a full device" 2 "mslua: error: "
{ (trap '' PIPE; sleep 0.2; "$program" recipes ls 2>closed.txt; echo $? >closed.code); } | true
out=$(cat closed.txt) code=$(cat closed.code)
expect "a closed pipe" 0 ""
[ -z "$out" ] || { echo "a closed pipe: $out"; failed=1; }
run run nosuchfile.lua
expect "no file" 2 "cannot read nosuchfile.lua"
run train quickstrt
expect "a recipe's name misspelt" 2 "(did you mean 'quickstart'?)"
ln -s loop.lua loop.lua
run train loop.lua
expect "a file that cannot be read" 2 "cannot read loop.lua: Too many levels of symbolic links"
ln -s gone.lua link.lua
run train link.lua
expect "a link to nothing" 2 "cannot read link.lua: No such file or directory"
case $out in *"'link.lua'"*) echo "a file is suggested in its own place: $out"; failed=1 ;; esac
rm loop.lua link.lua
for verb in graph plan; do
  run $verb quickstart
  expect "$verb of the library's recipe" 0 ""
  run $verb quickstrt
  expect "$verb of a name misspelt" 2 "(did you mean 'quickstart'?)"
done
run init circles
expect "init" 0 "train it:  mslua train circles/recipe.lua"
run run circles/recipe_test.lua
expect "the test of init's recipe" 0 "passed: every parameter has a gradient"
run train circles/recipe.lua --preset smoke --out circles/run
expect "init's recipe" 0 "eval: epoch 1"
# A recipe is shown with its neighbours, also from the run folder and through a module of its own.
for recipe in circles/recipe.lua circles/run/config.lua; do
  run recipes show $recipe batch_size=16
  expect "recipes show $recipe" 0 "batch_size "
done
# The run folder's config.lua finds them from any folder, also where the recipe and the run folder have been moved.
mkdir elsewhere moved
for action in check show; do
  out=$(cd elsewhere && "$program" recipes $action ../circles/run/config.lua 2>&1)
  code=$?
  expect "recipes $action of a config.lua from another folder" 0 ""
done
cp -r circles moved/ && mv circles circles.before
out=$(cd elsewhere && "$program" recipes check ../moved/circles/run/config.lua 2>&1)
code=$?
expect "recipes check of a config.lua that was moved with its recipe" 0 "ok"
mv circles.before circles
out=$(cd elsewhere && "$program" train ../circles/run/config.lua --max-steps 1 --out again 2>&1)
code=$?
expect "training a config.lua from another folder" 0 ""
head -1 elsewhere/again/config.lua | grep -q 'from = "../circles/recipe.lua"' ||
  { echo "config.lua of a config.lua: $(head -1 elsewhere/again/config.lua)"; failed=1; }
run __complete train circles/recipe.lua hid
[ "$out" = "$(printf 'hidden=\t32')" ] || { echo "completion of a recipe with a neighbour: $out"; failed=1; }
mkdir deep
echo 'return require("inner.size")' > deep/outer.lua
mkdir deep/inner
echo 'return { width = 3 }' > deep/inner/size.lua
cat > deep/resnet.lua <<'LUA'
local ms = require "mslua"
local outer, model = require("outer"), require "resnet"
local p = ms.params { width = outer.width }
return ms.recipe { name = "deep", network = function() return model.resnet18 {} end, loss = ms.nn.MSELoss(),
  optimizer = function(net) return ms.nn.SGD { net:trainable_params(), learning_rate = p.width } end,
  dataset = function() error "never called" end }
LUA
run recipes show deep/resnet.lua
expect "recipes show of a file that requires others" 0 "width "
run init circles
expect "init over files" 2 "circles/data.lua is there already; give another folder"
run editor circles
expect "editor" 0 "wrote circles/.luarc.json"
run editor circles/
expect "editor again" 0 "wrote circles/.mslua/editor"
grep -q '".mslua/editor"' circles/.luarc.json || { echo "editor: $(cat circles/.luarc.json)"; failed=1; }
[ -s circles/.mslua/editor/nn.lua ] || { echo "editor: $(ls -R circles)"; failed=1; }
echo '{ "runtime.version": "LuaJIT" }' > circles/.luarc.json
run editor circles
expect "editor with settings of the user's" 0 'add ".mslua/editor" to its workspace.library'
grep -q runtime.version circles/.luarc.json || { echo "editor replaced the user's settings"; failed=1; }
touch a_file
run editor a_file
expect "editor in a file" 2 "a_file"
touch my_net.lua
run train mynet
expect "a recipe's file misspelt" 2 "(did you mean 'my_net.lua'?)"
run data ls nowhere
expect "data ls of a path" 3 "nowhere"

# What the shell's completion asks.
cat > noisy.lua <<'LUA'
local ms = require "mslua"
local p = ms.params { rate = 0.5, presets = { small = { rate = 1 }, large = { rate = 2 } } }
print "rain"
os.execute "echo ran > escaped"
LUA
run __complete train noisy.lua r
[ "$out" = "$(printf 'rate=\t0.5')" ] || { echo "completion of parameters: $out"; failed=1; }
run __complete train noisy.lua --preset s
[ "$out" = small ] || { echo "completion of presets: $out"; failed=1; }
[ ! -e escaped ] || { echo "completion ran a process"; failed=1; }
run __complete train nois
[ "$out" = noisy.lua ] || { echo "completion of files: $out"; failed=1; }
run __complete eval quick
expect "completion of the library" 0 "quickstart"

# A file that is shown may be somebody else's: it reaches no file and no process.
cat > shown.lua <<'LUA'
local ms = require "mslua"
local p = ms.params { lr = 0.1 }
print("opened " .. tostring(io.open("shown.txt", "w")) .. tostring(io.open("/etc/hostname")))
print("ran " .. tostring(os.execute "touch executed.txt"))
return ms.recipe { name = "shown", network = function() return ms.nn.Dense(2, 2) end, loss = ms.nn.MSELoss(),
  optimizer = function(net) return ms.nn.SGD { net:trainable_params(), learning_rate = p.lr } end,
  dataset = function() error "never called" end }
LUA
run recipes show shown.lua lr=0.2
expect "recipes show FILE" 0 "opened nilnil"
expect "recipes show FILE" 0 "lr "
[ ! -e executed.txt ] || { echo "recipes show ran a program"; failed=1; }
# Control characters of names and texts do not reach the terminal.
printf 'error "\27]0;title\7 first\nmslua: error[0] forged"
' > "bad$(printf '')name.lua"
run run "bad$(printf '')name.lua"
expect "control characters" 2 "?]0;title? first"
case $out in *"$(printf '')"* | *"
mslua: error[0]"*) echo "raw control characters: $out"; failed=1 ;; esac

echo 'print(require("mslua").ones({2}) * arg_of_nobody)' > bad.lua
run run bad.lua
expect "Lua error" 2 "bad.lua:1:"
echo 'print((...) .. " " .. require("mslua.core").options.args[2])' > args.lua
run run args.lua one two
expect "arguments" 0 "one two"

for n in 100000000 4294967298; do  # the second is 2 in 32 bits
  out=$(timeout 5 "$program" run args.lua -n $n 2>&1)
  code=$?
  expect "too many ranks" 4 "-n $n: each rank takes "
done
out=$(ulimit -n 40; timeout 5 "$program" run args.lua -n 9 2>&1)
code=$?
expect "too few open files" 4 "the limit is 40 (ulimit -n): start at most 8 ranks here"

cat > lines <<'LINES'
ms.ones({2}) * 3
_:sum():item();
_
local function twice(x)
  return 2 * x
end
local y = 21
twice(y)
nn.Flatten()
{1, {2}}
loop = {}
loop[1] = loop
loop
?matmul
.quit
no
LINES
out=$("$program" repl < lines 2>&1)
code=$?
expect "repl" 0 "[3., 3.]"
expect "repl" 0 "42"
expect "repl" 0 "Flatten"
expect "repl" 0 "{1, {2}}"
expect "repl" 0 "{{...}}"
expect "repl" 0 "Matrix product"
out=$(printf 'ms.zeros({2})[3]\n1 + 1\n' | "$program" repl 2>&1)
code=$?
expect "repl continues after an error" 1 "subscript 3 of f32[2]"
expect "repl continues after an error" 1 "2"
out=$(printf 'for i = 1, 2 do\n' | "$program" repl 2>&1)
code=$?
expect "repl, open statement" 1 "not complete"

out=$(printf '.timer on\n1\n.timer off\n.timer\n' | "$program" repl 2>&1)
code=$?
expect "timer of the repl" 0 "timer off
timer on"

cat > g.ir <<'IR'
graph g {
  %x: f32[2] = input() {name="x", kind="data", dtype=f32, shape=[2]}
  %1: f32[2] = tanh(%x)
  return y=%1
}
IR
run graph g.ir
expect "graph" 0 "tanh(%x)"
run graph g.ir --format json
expect "graph, json" 0 '"op": "tanh"'
run graph g.ir --format dot
expect "graph, dot" 0 "digraph"
echo "graph g {" > broken.ir
run graph broken.ir
expect "graph, broken" 2 "broken.ir: IR"

run data make mnist digits --samples 50
expect "data make" 0 ""
run data verify mnist digits
expect "data verify" 0 "50 samples"
printf 'the cat sat on the mat\nthe cat sat on the mat\nthe cat\n' > cats.txt
run data tokenizer cats.txt --vocab 264 -o cats
expect "data tokenizer" 0 "cats/tokenizer.json  264 tokens"
run data tokenizer cats.txt --vocab 264 -o cats
expect "data tokenizer into a full folder" 2 "'cats' is not empty"
run data tokenizer cats.txt -o cats2
expect "data tokenizer without a size" 2 "data tokenizer: expected --vocab N"
run data tokenize cats.txt cats.txt --tokenizer cats -o cats_bin --end-of-text '<|endoftext|>'
expect "data tokenize" 0 "to test with, uint16"
[ -f cats_bin/train.bin ] && [ -f cats_bin/val.bin ] && [ -f cats_bin/tokenizer.json ] ||
  { echo "data tokenize: a file is missing" >&2; exit 1; }
for words in "ls" "verify text"; do
  run data $words cats_bin
  expect "data $words of token files" 0 "cats_bin  text train"
done
printf 'caf\351\n' > latin1.txt
run data tokenize latin1.txt --tokenizer cats -o latin1
expect "data tokenize of another encoding" 3 "latin1.txt: not UTF-8 at byte 3 (0xe9)"
run data verify mnist nowhere
expect "data verify" 3 "nowhere"
run data ls nowhere
expect "data ls of nothing" 3 "'nowhere' is no dataset: No such file or directory"
run data make cifar10 pictures --samples 50
run train unet_shapes data_path=pictures
expect "a second path that is missing" 2 "give digits_path=... on the command line"

cat > recipe.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.dense = nn.Dense(2, 1) end
function Net:construct(x) return self.dense(x) end
return ms.recipe {
  name = "tiny", network = function() return Net() end, loss = nn.MSELoss(),
  dataset = ms.dataset.NumpySlicesDataset({ms.ones({4, 2}), ms.ones({4, 1})}, {"x", "y"}):batch(2),
  eval_dataset = ms.dataset.NumpySlicesDataset({ms.ones({3, 2}), ms.ones({3, 1})}, {"x", "y"}):batch(2),
  optimizer = nn.Momentum {learning_rate = 0.1, momentum = 0.9}, train = {epochs = 2},
  checkpoint = {save_checkpoint_steps = 2},
}
LUA
sed 's/return ms.recipe {/local values = {/; s/nn.MSELoss()/"mse"/; $a return ms.recipe(values)' recipe.lua > made.lua
run train made.lua
expect "a table made before" 2 "made.lua: recipe: loss: expected a loss cell or function"
run train recipe.lua
expect "train" 0 "epoch: 2 step: 2, loss is "
expect "train" 0 "eval: epoch 2, loss "
for n in 1 2; do
  out=$("$program" train recipe.lua -n $n --fast-dev-run 2>&1 >/dev/full)
  code=$?
  expect "training of $n ranks to a full device" 9 ": a part of what was printed is lost; free space there"
done
run train recipe.lua train.epochs=3 --resume
expect "resume" 0 "epoch: 3 step: 2, loss is "
run train recipe.lua train.epochs=4 --resume=best
expect "resume best" 0 "epoch: 4 step: 2, loss is "
run eval recipe.lua
expect "eval" 0 "eval: loss "
run eval recipe.lua --ckpt best
expect "eval best" 0 "eval: loss "
run ckpt ls
expect "ckpt ls" 0 "step 8"
folder=$(ls -d runs/* | head -1)
run ckpt show "$folder/ckpt"
expect "ckpt show" 0 "moments."
run ckpt ls "$folder"
expect "ckpt ls of a run folder" 0 "step 8"
run ckpt ls "$folder" --json
expect "ckpt ls counts epochs from 1" 0 '"epoch": 4, "step": 8'
run ckpt verify "$folder"
expect "ckpt verify of a run folder" 0 "_8.ckpt: ok"
run eval recipe.lua --ckpt "$folder"
expect "eval of a run folder" 0 "eval: loss "
run ckpt merge "$(ls -d runs/*/ckpt | head -1)" whole.safetensors
expect "ckpt merge" 0 ""
run ckpt show whole.safetensors
expect "ckpt show of the merged file" 0 "moments."
run ckpt reshard "$(ls -d runs/*/ckpt | head -1)" net-1_8.ckpt 2
expect "ckpt reshard" 0 ""
run ckpt show net-1_8.ckpt
expect "ckpt show of the resharded folder" 0 "moments."
run ckpt reshard net-1_8.ckpt other.ckpt two
expect "ckpt reshard" 2 "expected a number of ranks, got 'two'"
mkdir models && echo weights > models/w.bin
run ckpt reshard net-1_8.ckpt models 2
expect "ckpt reshard onto a folder of something else" 2 "models is a folder without MANIFEST.json, and thus no"
[ -f models/w.bin ] || { echo "ckpt reshard deleted a folder that is no checkpoint"; failed=1; }
run ckpt reshard "$folder" "$folder" 2
expect "ckpt reshard onto its source" 2 "contains what is read"
run ckpt merge net-1_8.ckpt net-1_8.ckpt/rank_0.safetensors
expect "ckpt merge into its source" 2 "lies inside what is read"
# A damaged checkpoint has one exit code, whatever reads it.
cp -r net-1_8.ckpt damaged.ckpt
echo damaged > damaged.ckpt/MANIFEST.json
echo 'require "mslua".load_checkpoint "damaged.ckpt"' > load.lua
run ckpt show damaged.ckpt
expect "ckpt show of damage" 9 "MANIFEST.json"
run eval recipe.lua --ckpt damaged.ckpt
expect "eval of damage" 9 "MANIFEST.json"
run train recipe.lua --resume=damaged.ckpt
expect "resume of damage" 9 "MANIFEST.json"
run run load.lua
expect "load_checkpoint of damage" 9 "MANIFEST.json"
run train recipe.lua --out fresh --resume
expect "resume of nothing" 9 "no checkpoint at fresh/ckpt: there is no such file or folder; without --resume"
run train recipe.lua --out fresh --resume --fast-dev-run
expect "resume of nothing, saving nothing" 9 "no checkpoint at fresh/ckpt: "
run train recipe.lua --out "$folder" --resume --fast-dev-run train.epochs=9
expect "resume, saving nothing" 0 "at step 8"
# Who reads the newest of several says which are damaged.
mkdir newest && cp -r net-1_8.ckpt newest/net-1_7.ckpt && cp -r damaged.ckpt newest/net-1_9.ckpt
for words in "show newest" "merge newest newest.safetensors" "reshard newest newest.ckpt 2"; do
  run ckpt $words
  expect "ckpt $words" 0 "mslua: note: passed over newest/net-1_9.ckpt ("
done
# After an error rank 0 saves without the other ranks' running statistics.
cat >norm.lua <<'EOF'
local ms = require "mslua"
local nn = ms.nn
local stop = ms.params { stop = 0 }.stop
local Stop = ms.Callback:extend "Stop"
function Stop:on_train_step_end(c)
  if c.global_step == stop and ms.communication.get_rank() == 0 then error "stop" end
end
local x = ms.rand({ 16, 3 }, ms.float32, "x")
return ms.recipe {
  name = "norm", dataset = ms.dataset.NumpySlicesDataset({ x, x }):batch(4), train = { epochs = 2 },
  network = function() return nn.SequentialCell { nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 3) } end,
  loss = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = 0.01, momentum = 0.9 }, callbacks = { Stop() },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 100, exception_save = true },
}
EOF
run train norm.lua -n 2 --out norm stop=3
expect "exception_save of two ranks" 2 "has the running statistics and mean losses of rank 0 alone"
run train norm.lua -n 2 --out norm --resume
expect "resume of what rank 0 saved alone" 0 "the other ranks take 1.moving_mean, 1.moving_variance from rank 0"
# What a checkpoint leaves out has its initial value in a run that resumes: training must not have changed it.
cat >unsaved.lua <<'EOF'
local ms = require "mslua"
local nn, trained = ms.nn, ms.params { trained = true }.trained
local x = ms.rand({ 16, 3 }, ms.float32, "x")
return ms.recipe {
  name = "unsaved", dataset = ms.dataset.NumpySlicesDataset({ x, x }):batch(8),
  network = function()
    local net = nn.SequentialCell { nn.Dense(3, 4), nn.Dense(4, 3) }
    for _, p in ipairs(net:get_parameters()) do
      if p.name == "1.weight" then p.saved, p.requires_grad = false, ms.params { trained = true }.trained end
    end
    return net
  end,
  loss = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = 0.01, momentum = 0.9 }, train = { epochs = 1 },
  checkpoint = { save_checkpoint_steps = 2 },
}
EOF
run train unsaved.lua --out trained
expect "training what is not saved" 0 ""
run train unsaved.lua --out trained --resume train.epochs=2
expect "resume without what training has changed" 9 "leaves out the values of 1.weight (saved = false), and was saved"
run train unsaved.lua --out frozen trained=false
expect "a frozen parameter that is not saved" 0 ""
run train unsaved.lua --out frozen --resume train.epochs=2 trained=false
expect "resume with a frozen parameter that is not saved" 0 "epoch: 2"
# Ranks that have parts of such a parameter, or none of it, compute its digest together; nobody knows that of values
# which training changes.
cat >unsaved_parts.lua <<'EOF'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local given = ms.params { trained = true, stages = 1 }
local x = ms.rand({ 16, 8 }, ms.float32, "x")
local data = ms.dataset.NumpySlicesDataset({ x, x }):batch(8)
local Net = nn.Cell:extend "Net"
function Net:init()
  self.a, self.b = nn.Dense(8, 8), nn.Dense(8, 8)
  self.matmul = ops.MatMul()
  if given.stages == 1 then self.matmul:shard { { 1, 1 }, { 1, 2 } } end
  if given.stages == 2 then self.a.pipeline_stage, self.b.pipeline_stage = 0, 1 end
end
function Net:construct(x)
  if given.stages == 2 then return self.b(self.a(x)) end
  return self.matmul(self.a(x), self.b.weight)
end
return ms.recipe {
  name = "parts", dataset = data, eval_dataset = data,
  network = function()
    local net = Net()
    for _, p in ipairs(net:get_parameters()) do
      if p.name == "b.weight" then p.saved, p.requires_grad = false, given.trained end
    end
    return given.stages == 2 and nn.PipelineCell(net, 2) or net
  end,
  parallel = { parallel_mode = "semi_auto_parallel", dataset_strategy = "full_batch", pipeline_stages = given.stages },
  loss = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = 0.01, momentum = 0.9 }, train = { epochs = 1 },
  checkpoint = {},
}
EOF
for stages in 1 2; do
  run train unsaved_parts.lua -n 2 --out parts stages=$stages
  expect "training what is not saved, of $stages stages" 0 ""
  run train unsaved_parts.lua -n 2 --out parts --resume train.epochs=2 stages=$stages
  expect "resume of $stages stages" 9 "leaves out the values of b.weight (saved = false), and was saved"
  run eval unsaved_parts.lua -n 2 --ckpt parts stages=$stages
  expect "eval of $stages stages" 9 "leaves out the values of b.weight (saved = false), and was saved"
  run train unsaved_parts.lua -n 2 --out parts trained=false stages=$stages
  expect "a frozen parameter that is not saved, of $stages stages" 0 ""
  run train unsaved_parts.lua -n 2 --out parts --resume train.epochs=2 trained=false stages=$stages
  expect "resume of $stages stages with a frozen parameter that is not saved" 0 "epoch: 2"
  run train unsaved_parts.lua -n 2 --out parts --resume --seed 9 train.epochs=3 trained=false stages=$stages
  expect "resume of $stages stages with another frozen value" 9 "leaves out the values of b.weight (saved = false), and"
  run train unsaved_parts.lua --out parts --resume train.epochs=3 trained=false stages=$stages
  expect "resume of $stages stages on one rank" 0 "epoch: 3"
  run train unsaved_parts.lua -n 2 --out parts --resume train.epochs=4 trained=false stages=$stages
  expect "resume on $stages stages of what one rank saved" 0 "epoch: 4"
  run train unsaved_parts.lua -n 2 --out parts --resume --seed 9 train.epochs=5 trained=false stages=$stages
  expect "resume of one rank's on $stages stages with another frozen value" 9 "leaves out the values of b.weight"
done
run train unsaved_parts.lua --out whole
run eval unsaved_parts.lua -n 2 --ckpt whole
expect "eval where ranks have parts of what one had changed" 9 "leaves out the values of b.weight (saved = false)"
run train unsaved_parts.lua --out whole trained=false
run eval unsaved_parts.lua -n 2 --ckpt whole trained=false
expect "eval where ranks have parts of what one had" 0 "loss "
run eval recipe.lua --ckpt nowhere
expect "eval of no checkpoint" 9 "no checkpoint at nowhere: there is no such file or folder"
# Flags that cannot have an effect are refused before the training, not after it.
run train recipe.lua --max-restarts 2
expect "restarts without --recover" 2 "--max-restarts limits how often --recover starts the ranks again: give"
run train recipe.lua -n 2 --max-restarts 2
expect "restarts of ranks without --recover" 2 "give --recover too"
run train recipe.lua -n 2 --recover --max-restarts 2 train.epochs=1
expect "restarts" 0 "epoch: 1 step: 2, loss is "
run train recipe.lua --preset smoke
expect "a preset of a recipe without parameters" 2 "recipe: unknown preset 'smoke': the recipe has none"
run predict recipe.lua nothing.csv --ckpt best
expect "predict of no file" 2 "predict: cannot read nothing.csv: No such file or directory"
run sched
expect "sched without a number of workers" 4 "sched: expected --workers N, how many workers to wait for, or MS_WORKER"
run graph recipe.lua --pass fuse
expect "graph of a recipe" 0 "fused("
run prof recipe.lua --steps 2 --trace trace.json
expect "prof" 0 "floor ms"
expect "prof" 0 "workspace where it is fullest"
run prof recipe.lua --steps 2 --steps-only --json
expect "prof --json" 0 '"step_ms": '
grep -q '"traceEvents"' trace.json || { echo "prof --trace wrote no trace"; failed=1; }

cat > products.lua <<'LUA'
local ms = require "mslua"
return ms.recipe {
  name = "products",
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ ms.rand { 2048, 256 }, ms.rand { 2048, 256 } }, { "x", "y" }):batch(256)
  end,
  network = function() return ms.nn.Dense(256, 256) end,
  loss = ms.nn.MSELoss(),
  optimizer = ms.nn.SGD { learning_rate = 0.1 },
}
LUA
# Products of f32 matrices are made by the tiles of the processors that have them, unless the recipe says otherwise.
expect_tiles() {
  case $out in
    *bf16x3*) tiles=yes ;;
    *) tiles=no ;;
  esac
  [ "$tiles" = "$2" ] || { echo "$1: products by tiles: $tiles, expected $2: $out"; failed=1; }
}
run prof products.lua --steps 2
expect "prof of products" 0 "matmul"
if grep -q amx_bf16 /proc/cpuinfo; then expect_tiles "prof of products" yes; else expect_tiles "prof of products" no; fi
run prof products.lua --steps 2 context.vector_products=true
expect "vector_products" 0 "matmul"
expect_tiles "vector_products" no
export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
run prof products.lua --steps 2
unset ONEDNN_MAX_CPU_ISA
expect "a processor without tiles" 0 "matmul"
expect_tiles "a processor without tiles" no

run prof recipe.lua --steps-only --trace both.json
expect "prof with two flags" 2 "--steps-only times whole steps alone, and --trace writes the operators of one"
run train recipe.lua --fast-dev-run=2 --max-steps 1
expect "two numbers of steps" 2 "--fast-dev-run=2 and --max-steps 1: both say how many steps to make: give one of them"
run train recipe.lua --fast-dev-run --out unused
expect "a folder for nothing" 0 "note: --out unused has no effect: --fast-dev-run saves nothing"
[ ! -e unused ] || { echo "--fast-dev-run made a folder"; failed=1; }
# `train RUN/config.lua --resume` continues that run, not the newest of the recipe.
run train recipe.lua --out first
expect "a run" 0 "epoch: 2 step: 2, loss is "
run train first/config.lua train.epochs=3 --resume
expect "resume of a run by its config.lua" 0 "resuming from first/ckpt"
out=$(cd first && "$program" train config.lua train.epochs=4 --resume=best 2>&1)
code=$?
expect "resume of a run by its config.lua, in its folder" 0 "resuming from ./ckpt/best"
# A run whose checkpoints are elsewhere leads to them, from any folder, also where both have been moved.
mkdir far
cp recipe.lua far/recipe.lua
out=$(cd far && "$program" train recipe.lua --out runs/apart checkpoint.directory=kept train.epochs=1 2>&1)
code=$?
expect "checkpoints in a directory of the recipe" 0 "epoch: 1 step: 2, loss is "
for words in "ckpt ls far/runs/apart" "ckpt show far/runs/apart" "ckpt verify far/runs/apart"; do
  run $words
  expect "$words" 0 "far/kept/tiny-1_2.ckpt"
done
for words in "recipe.lua --ckpt far/runs/apart" "far/runs/apart/config.lua" "far/runs/apart/config.lua --ckpt best"; do
  run eval $words
  expect "eval $words" 0 "weights of far/kept/"
done
mv far near
run ckpt ls near/runs/apart
expect "checkpoints that were moved with the run" 0 "near/kept/tiny-1_2.ckpt"
out=$(cd near && "$program" ckpt show last 2>&1)
code=$?
expect "the last run, with its checkpoints elsewhere" 0 "kept/tiny-1_2.ckpt"
run train recipe.lua --out near/runs/apart --resume
expect "resume of a run with its checkpoints elsewhere" 0 "resuming from near/kept/tiny-1_2.ckpt"
run ckpt ls near/runs/apart
expect "checkpoints that are in the run folder again" 0 "near/runs/apart/ckpt/tiny-2_4.ckpt"
# What is missing in a recipe is named.
sed '/eval_dataset/d; s/optimizer =/eval = { metrics = { "top1" } }, expect = { top1_above = 0.5 }, optimizer =/' \
  recipe.lua > no_eval.lua
run verify no_eval.lua
expect "expect without eval_dataset" 2 "expect: top1_above is of an evaluation, and the recipe has no eval_dataset"
sed 's/optimizer =/expect = { f1_above = 0.5 }, optimizer =/' recipe.lua > no_f1.lua
run verify no_f1.lua
expect "expect of a metric that is not measured" 2 \
  'expect: f1_above: eval.metrics has no f1: add it, eval = { metrics = { "f1" } }'
sed 's/ loss = nn.MSELoss(),//' recipe.lua > no_loss.lua
run train no_loss.lua
expect "a recipe without loss" 2 "Net: takes 1 argument (x), got 2: no loss is given"
# Files and folders of another kind.
run generate whole.safetensors --ids 1
expect "generate of a file of weights" 2 "whole.safetensors is no Lua file"
mkdir hf
echo '{}' > hf/config.json
run ckpt verify hf
expect "ckpt verify of published weights" 2 "hf is a folder as Hugging Face has it, which has no checksums to verify"
run generate hf lr=1 --ids 1
expect "a parameter for weights" 2 "lr=1 has no effect: hf is a folder with weights and not a recipe"
run generate hf --preset smoke --ids 1
expect "a preset for weights" 2 "--preset smoke has no effect: hf is a folder with weights and not a recipe"

run train recipe.lua optimzer=3
expect "unknown key" 2 "did you mean 'optimizer'?"
run recipes check recipe.lua
expect "recipes check" 0 "recipe.lua: ok"
sed 's/return self.dense(x)/if x == 3 then return x end return self.dense(x)/' recipe.lua >decided.lua
run recipes check decided.lua
expect "a line decided while tracing" 2 "decided.lua:5"
run recipes ls
expect "recipes ls" 0 "quickstart "
run recipes copy quickstart mine.lua
expect "recipes copy" 0 "wrote mine.lua"
run train mine.lua --max-steps 2
expect "a copied recipe" 0 "epoch: 1 step: 2, loss is "
run recipes copy quickstart mine.lua
expect "recipes copy keeps what is there" 2 "mine.lua is there already"
run recipes copy quickstrat other.lua
expect "recipes copy of an unknown name" 2 "did you mean 'quickstart'?"
run train quickstart --max-steps 1
expect "a recipe of the library" 0 "epoch: 1 step: 1, loss is "
out=$(printf 'net.dense.weight.shape[2]\n' | "$program" repl recipe.lua 2>&1)
code=$?
expect "repl with a recipe" 0 "2"

[ "$failed" = 0 ] && echo "ok"
exit "$failed"
