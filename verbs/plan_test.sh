#!/bin/sh
# `mslua plan`: the messages of a step for each way to gather gradients, on a network of 40 parameters.
# usage: plan_test.sh MSLUA
set -eu
mslua=$PWD/$1
cd "$(mktemp -d)"
cat > forty.lua <<'RECIPE'
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { cell_fusion = 1, width = 64 }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.layers = nn.CellList()
  for i = 1, 20 do self.layers:append(nn.Dense(p.width, p.width)) end
  self.layers[20]:set_comm_fusion(p.cell_fusion)
end
function Net:construct(x)
  for i = 1, 20 do x = ops.tanh(self.layers[i](x)) end
  return x
end
return ms.recipe {
  name = "forty",
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ ms.zeros { 8, p.width }, ms.zeros { 8, p.width } }, { "x", "y" }):batch(4)
  end,
  network = function() return Net() end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 0.1, momentum = 0.9 },
  parallel = { parallel_mode = "data_parallel" },
}
RECIPE

# The number of tensors of each message, and the summary.
messages() {
  "$mslua" plan forty.lua -n 8 "$@" > out.txt
  sed -n 's/^  all_reduce sum *8 *\([0-9]*\) .*/\1/p' out.txt | tr '\n' ' '
  sed -n 's/^messages of a step: //p' out.txt
}
expect() {
  if [ "$1" != "$2" ]; then
    echo "expected: $1"
    echo "got:      $2"
    cat out.txt
    exit 1
  fi
}

all=$((20 * (64 * 64 + 64) * 4))
expect "40 1 message, 40 tensors, 325.0 KiB a step" "$(messages)"
expect "20 15 5 3 messages, 40 tensors, 325.0 KiB a step" "$(messages 'parallel.all_reduce_fusion_config={20,35}')"
expect "20 15 5 3 messages, 40 tensors, 325.0 KiB a step" \
  "$(messages 'parallel.comm_fusion.allreduce={mode="index",config={20,35}}')"
expect "40 1 message, 40 tensors, 325.0 KiB a step" "$(messages 'parallel.comm_fusion.allreduce={mode="auto"}')"
expect "40 1 message, 40 tensors, 325.0 KiB a step" \
  "$(messages 'parallel.comm_fusion.allreduce={mode="size",config=1}')"
# Weights of 1 MiB and biases of 2 KiB in messages of 4 MB: three pairs, and the bias that still fits; of 1 MB: none
# fits beside another. Weights of 16 MiB in the 64 MB of mode auto.
expect "7 6 6 6 6 6 3 7 messages, 40 tensors, 20.0 MiB a step" \
  "$(messages width=512 'parallel.comm_fusion.allreduce={mode="size",config=4}')"
expect "$(for i in $(seq 40); do printf '1 '; done)40 messages, 40 tensors, 20.0 MiB a step" \
  "$(messages width=512 'parallel.comm_fusion.allreduce={mode="size",config=1}')"
expect "40 1 message, 40 tensors, 20.0 MiB a step" \
  "$(messages width=512 'parallel.comm_fusion.allreduce={mode="size",config=0}')"
expect "7 6 6 6 6 6 3 7 messages, 40 tensors, 320.2 MiB a step" \
  "$(messages width=2048 'parallel.comm_fusion.allreduce={mode="auto"}')"
# The last layer's two gradients come first; with a number of their own they travel apart.
expect "2 38 2 messages, 40 tensors, 325.0 KiB a step" "$(messages cell_fusion=2)"
expect "1 1 38 3 messages, 40 tensors, 325.0 KiB a step" "$(messages cell_fusion=0)"
test $all -eq 332800
# Slices of a sharded optimizer: alone, in messages of a size, all together. The 20 biases are too small to be sharded.
slices() {
  "$mslua" plan forty.lua -n 8 parallel.enable_parallel_optimizer=true \
    parallel.parallel_optimizer_config.parallel_optimizer_threshold=1 "$@" > out.txt
  for operation in "reduce_scatter sum" all_gather; do
    sed -n "s/^  $operation *8 *\([0-9]*\) .*/\1/p" out.txt | tr '\n' ' '
  done
}
alone=$(for i in $(seq 40); do printf '1 '; done)
scatter=parallel.comm_fusion.reducescatter
gather=parallel.comm_fusion.allgather
expect "$alone" "$(slices)"
expect "20 20 " "$(slices $scatter='{mode="auto"}' $gather='{mode="auto"}')"
expect "20 20 " "$(slices $scatter='{mode="size",config=1}' $gather='{mode="size",config=0}')"
expect "$alone" "$(slices $scatter='{mode="auto"}' $gather='{mode="auto"}' parallel.comm_fusion.openstate=false)"
expect "$(echo $alone) 40 messages, 40 tensors, 325.0 KiB a step" "$(messages parallel.comm_fusion.openstate=false)"
"$mslua" plan forty.lua -n 8 --json > out.json
grep -q '"operation": "all_reduce sum", "ranks": 8, "tensors": 40, "bytes": 332800' out.json
"$mslua" plan forty.lua -n 8 parallel.parallel_mode=semi_auto_parallel --json > semi.json
python3 -c 'import json
rows = [json.loads(line) for line in open("semi.json")]
times = [row["ms"] for row in rows if "ms" in row]
assert times and all(isinstance(t, (int, float)) for t in times), times'
"$mslua" plan forty.lua -n 8 parallel.parallel_mode=auto_parallel parallel.sharding_propagation=true > out.txt
grep -q "above the least" out.txt
# Without -n, device_num says for how many.
"$mslua" plan forty.lua parallel.device_num=8 --json > device_num.json
cmp out.json device_num.json
if "$mslua" plan forty.lua -n 4 parallel.device_num=8 2> err.txt; then exit 1; fi
grep -q "device_num = 8, but the job has 4 rank(s)" err.txt
# One rank sends nothing; stages need a mode that shards.
"$mslua" plan forty.lua | grep -q "messages of a step: 0 messages"
if "$mslua" plan forty.lua -n 8 parallel.pipeline_stages=2 2> err.txt; then exit 1; fi
grep -q "pipeline_stages = 2 needs parallel_mode semi_auto_parallel or auto_parallel" err.txt

# In global view: how operators and parameters are sharded, and what a step is predicted to take.
has() {
  if ! grep -q -- "$1" out.txt; then
    echo "expected: $1"
    cat out.txt
    exit 1
  fi
}
XDG_CACHE_HOME=$PWD/cache
export XDG_CACHE_HOME
"$mslua" plan quickstart -n 8 > out.txt
expect 2 "$(grep -c "Net/MatMul:[0-9]*  *((2,4),(4,1)) " out.txt)"
has "Net/ReLU:[0-9]*  *((2,4)) "
# The partial product moves by one message of half the bytes that an all_reduce of it sends.
has "reduce_scatter sum *4 *1 *512 Net {instance name: relu} @ quickstart:"
# State lies as its parameter: an update moves nothing.
expect "$(sed -n 's/^  w2* .*\(\[.*\]\) .*/\1/p' out.txt)" "$(sed -n 's/^  moments.w2* .*\(\[.*\]\) .*/\1/p' out.txt)"
has "ms a step "
has "sharding_propagation"
has "constants  *default"
"$mslua" plan quickstart -n 8 --explain Net/MatMul > out.txt
expect 2 "$(grep -c "other strategies of Net/MatMul:[0-9]*: ((2,4),(4,1)), " out.txt)"
has "((2,4),(4,1)) .* chosen"
has "strategy  *ms a step  *estimated memory  *difference"
has "((8,1),(1,1)) "
# A line of JSON says which of the operators it is of.
"$mslua" plan quickstart -n 8 --explain Net/MatMul --json > explained.json
sed -n 's/.*"section": "explain", "operator": "\(Net\/MatMul:[0-9]*\)", "strategy": .*/\1/p' explained.json > out.txt
expect "$(wc -l < explained.json)" "$(wc -l < out.txt)"
expect 2 "$(uniq out.txt | wc -l)"
"$mslua" plan quickstart -n 8 --json > out.txt
has '"section": "operators", "operator": "Net/ReLU:[0-9]*", "strategy": "((2,4))"'
has '"section": "parameters", "name": "'
# Slower links make a step slower; a cluster without the memory is refused; so are faults of the file.
milliseconds() { sed -n 's/^  *ms a step  *//p' out.txt; }
"$mslua" plan quickstart -n 8 > out.txt
default=$(milliseconds)
echo '{"axes": [{"seconds": 1, "seconds_per_byte": 1e-9}]}' > slow.json
"$mslua" plan quickstart -n 8 --cluster slow.json > out.txt
has "constants  *slow.json"
awk "BEGIN { exit !($(milliseconds) > 1000 * $default) }"
fails() {
  code=0
  "$mslua" plan quickstart -n 8 --cluster "$1" > out.txt 2>&1 || code=$?
  expect 2 $code
  has "$2"
}
echo '{"memory_bytes": 100}' > small.json
fails small.json "which have 100"
echo '{"memory": 100}' > wrong.json
fails wrong.json "wrong.json: cluster: unknown member 'memory'"
fails "" "plan: --cluster expects a text, got ''"
code=0
"$mslua" plan quickstart -n 8 --explain MatMull > out.txt 2>&1 || code=$?
expect 2 $code
has "no operator is named 'MatMull' (did you mean"
# The operators of all stages of a pipeline.
cat > stages.lua <<'RECIPE'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init()
  self.a, self.b = nn.Dense(8, 8), nn.Dense(8, 8)
  self.a.pipeline_stage, self.b.pipeline_stage = 0, 1
end
function Net:construct(x) return self.b(self.a(x)) end
return ms.recipe {
  name = "stages", network = function() return nn.PipelineCell(Net(), 2) end, loss = nn.MSELoss(),
  optimizer = nn.SGD { learning_rate = 0.1 }, parallel = { parallel_mode = "semi_auto_parallel", pipeline_stages = 2 },
  dataset = ms.dataset.NumpySlicesDataset({ ms.ones { 8, 8 }, ms.ones { 8, 8 } }):batch(8),
}
RECIPE
"$mslua" plan stages.lua -n 4 --explain MatMul > out.txt
has "^stage 0: other strategies of PipelineCell/network/a/MatMul:[0-9]*: "
has "^stage 1: other strategies of PipelineCell/network/b/MatMul:[0-9]*: "
"$mslua" plan stages.lua -n 4 --explain b/MatMul > out.txt
expect 1 "$(grep -c "other strategies of" out.txt)"
# Measured constants are kept and used.
"$mslua" doctor --calibrate > out.txt
has "Gflop/s of one thread"
"$mslua" plan quickstart -n 8 > out.txt
has "constants  *measured"

# With the types of the columns no data is needed; they are checked.
columns='{ { dtype = ms.float32, shape = { 4, p.width } }, { dtype = ms.float32, shape = { 4, p.width } } }'
sed -e "s/^  dataset = function()\$/  input = $columns,\n&/" \
  -e 's/^    return ms.dataset.*/    error "data was asked for"/' forty.lua > types.lua
cp types.lua forty.lua
expect "40 1 message, 40 tensors, 325.0 KiB a step" "$(messages)"
sed 's/shape = { 4, p.width }/shape = { 4, -1 }/' types.lua > forty.lua
if "$mslua" plan forty.lua -n 8 > out.txt 2>&1 ||
  ! grep -q 'recipe: input: 1: expected .*, got shape {4, -1}' out.txt; then
  cat out.txt
  exit 1
fi

# A device that is not here: its memory to the byte, kernels and times; the figures of another one give another time.
cp types.lua forty.lua
"$mslua" plan forty.lua -n 8 --device h200 > out.txt
has '^a step on h200: [0-9.]* ms predicted, [0-9]* kernels$'
has 'activations and workspaces'
if grep -q 'copy for checkpoints' out.txt; then echo "a copy for checkpoints that there are not"; exit 1; fi
sed 's/^  loss = nn.MSELoss/  checkpoint = { async_save = true },\n&/' forty.lua > copies.lua
"$mslua" plan copies.lua -n 8 --device h200 > out.txt
has 'copy for checkpoints *665600$'  # weights, biases, and their momentum
milliseconds_on() {
  "$mslua" plan forty.lua -n 8 width=512 --device "$1" --json |
    sed -n 's/.*"what": "ms a step", "value": "\{0,1\}\([0-9.e-]*\).*/\1/p'
}
fast=$(milliseconds_on h200) slow=$(milliseconds_on a100)
python3 -c "import sys; sys.exit(not 0 < $fast < $slow)" || { echo "h200 $fast, a100 $slow"; exit 1; }
if "$mslua" plan forty.lua --device h201 2> out.txt; then echo "h201 is planned for"; exit 1; fi
has 'h200.*h100.*a100.*b200'
XDG_CACHE_HOME=$PWD/none
if "$mslua" plan forty.lua --device cuda 2> out.txt; then echo "cuda is planned for"; exit 1; fi
has 'mslua doctor --calibrate --device cuda'
# A search has the rates of the device: with them it shards otherwise than with those of a core.
auto='parallel_mode = "auto_parallel", search_mode = "dynamic_programming"'
sed "s/parallel_mode = \"data_parallel\"/$auto/" forty.lua > auto.lua
"$mslua" plan auto.lua -n 8 --device h200 > out.txt
has 'constants *h200'
