#!/bin/sh
# Strategies that cannot be, each an error of one line before any operator starts: what and where, exit code 2.
# bad_strategies.sh MSLUA
set -u
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
failed=0
slowest=0

# A recipe of some operators, of which INIT says the strategies; line 12 multiplies, line 13 adds, ...
recipe() {
  cat >bad.lua <<LUA
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local Net = nn.Cell:extend "Net"
function Net:init()
  self.w, self.b = self:parameter("w", {16, 24}, "normal"), self:parameter("b", {24}, "zeros") \
self.w2 = self:parameter("w2", {24, 8}, "normal")
  self.c, self.p = self:parameter("c", {4, 1, 3, 3}, "normal"), self:parameter("p", {24, 24}, "normal")
  self.matmul, self.add, self.softmax, self.matmul2 = ops.MatMul(), ops.Add(), ops.Softmax(-1), ops.MatMul()
  self.conv, self.reshape, self.relu = ops.Conv2D {pad_mode = "same"}, ops.Reshape(), ops.ReLU()
  self.mul1, self.mul2, self.norm, self.transpose = ops.Mul(), ops.Mul(), nn.LayerNorm(24), ops.Transpose() $1
end
function Net:construct(x)
  local y = self.matmul(x, self.w)
  y = self.add(y, self.b)
  y = self.norm(self.softmax(y))
  y = self.mul1(y, self.p)
  y = self.mul2(y, self.p)
  local image = self.conv(self.reshape(y, {24, 1, 4, 6}), self.c)
  y = self.transpose(self.relu(y) + image:sum({2}):reshape({24, 24}), {1, 2})
  return self.matmul2(y, self.w2)
end
return ms.recipe {
  name = "bad", network = function() return Net() end, loss = nn.MSELoss(),
  dataset = ms.dataset.NumpySlicesDataset({ms.ones {48, 16}, ms.ones {48, 8}}, {"x", "y"}):batch(24),
  optimizer = nn.Momentum {learning_rate = 0.1, momentum = 0.9}, train = {epochs = 1},
  parallel = {parallel_mode = "semi_auto_parallel", full_batch = true $2},
}
LUA
}

# refused RANKS TEXT: the recipe is refused by a line that has TEXT, with exit code 2.
refused() {
  begin=$(date +%s%N)
  out=$("$mslua" train bad.lua -n "$1" --fast-dev-run=1 2>&1)
  code=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  [ "$took" -gt "$slowest" ] && slowest=$took
  [ "$code" = 2 ] || { echo "$2: exit code $code, expected 2: $out"; failed=1; }
  case $out in
    *"error"*"$2"*) ;;
    *) echo "expected '$2' in: $out"; failed=1 ;;
  esac
  case $out in
    *"loss is"*) echo "$2: a step was made: $out"; failed=1 ;;
  esac
}
# A strategy of line LINE.
bad() {
  recipe "$1" ""
  refused "$2" "$3"
}
option() {
  recipe "" ", $1"
  refused "$2" "$3"
}

bad "self.matmul:shard {{2, 4}}" 8 "bad.lua:12: MatMul: strategy ((2,4)) has 1 entries, the operator has 2 inputs"
bad "self.matmul:shard {{2}, {4, 1}}" 8 \
  "bad.lua:12: MatMul: strategy ((2),(4,1)): entry 1 has 1 numbers, but x is f32[24,16]"
bad "self.matmul:shard {{0, 4}, {4, 1}}" 2 \
  "bad.lua:9: MatMul:shard: inputs, tensor 1: expected numbers of shards of at least 1, got 0"
bad "self.matmul:shard {{-2, 4}, {4, 1}}" 2 "expected numbers of shards of at least 1, got -2"
bad "self.matmul:shard {{1.5, 4}, {4, 1}}" 2 "MatMul:shard"
bad "self.matmul:shard {}" 2 "expected a list with the numbers of shards of each tensor"
bad "self.matmul:shard '2,4'" 2 "MatMul:shard"
bad "self.matmul:shard {{5, 1}, {1, 1}}" 5 \
  "bad.lua:12: MatMul: strategy ((5,1),(1,1)): dimension 1 of x (f32[24,16], factor 'i') is sharded 5 ways, which "\
"does not divide 24"
bad "self.matmul:shard {{3, 1}, {1, 1}}" 4 \
  "dimension 1 of x (f32[24,16], factor 'i') is sharded 3 ways, which does not divide 4 devices"
bad "self.matmul:shard {{2, 2}, {2, 2}}" 4 \
  "bad.lua:12: MatMul: strategy ((2,2),(2,2)): has 8 shards, which does not divide 4 devices"
bad "self.matmul:shard {{2, 2}, {1, 1}}" 4 \
  "factor 'k') is sharded 1 ways: the two are one factor and need the same number"
bad "self.add:shard {{1, 4}, {2}}" 4 "bad.lua:13: Add: strategy ((1,4),(-,2)): dimension 2 of a"
bad "self.softmax:shard {{1, 2}}" 2 \
  "bad.lua:14: Softmax: strategy ((1,2)): dimension 2 of x (f32[24,24], factor 'd1') is sharded 2 ways, but the "\
"operator needs it whole"
bad "self.conv:shard {{2, 1, 2, 1}, {1, 1, 1, 1}}" 4 \
  "bad.lua:17: Conv2D: strategy ((2,1,2,1),(1,1,1,1)): dimension 3 of x"
bad "self.conv:shard {{1, 1, 1, 1}, {1, 1, 3, 1}}" 3 "but the operator needs it whole on a device (use 1)"
bad "self.reshape:shard {{1, 8}}" 8 "bad.lua:17: Reshape: strategy ((1,8)): dimension 2 of x"
bad "self.transpose:shard {{1, 1, 1}}" 2 "bad.lua:18: Transpose: strategy ((1,1,1)): entry 1 has 3 numbers"
bad "self.relu:shard {{2, 1}, {2, 1}}" 2 \
  "bad.lua:18: ReLU: strategy ((2,1),(2,1)) has 2 entries, the operator has 1 input"
bad "self.relu:shard({{2, 1}}, {{5, 1}})" 2 \
  "bad.lua:18: ReLU: out_strategy ((5,1)): dimension 1 of output 1 (f32[24,24]) is sharded 5 ways"
bad "self.mul1:shard {{4, 1}, {4, 1}} self.mul2:shard {{1, 4}, {1, 4}}" 4 \
  "is sharded (4,1) by Mul (Net/mul1 @ bad.lua:15) and (1,4) by Mul (Net/mul2 @ bad"
option "strategy = {['Net/fc9/*'] = {{2, 2}, {2, 1}}}" 4 "no operator is named 'Net/fc9/*'"
option "strategy = {['Net/MatMul'] = {{2, 2}, {2, 0}}}" 4 "expected numbers of shards of at least 1, got 0"
option "dataset_strategy = {{2, 2}, {2, 1}}" 4 "only one dimension may be sharded"
option "dataset_strategy = {{2}, {4, 1}}" 4 "dataset_strategy"
option "dataset_strategy = {{4, 1}, {2, 1}, {1}}" 4 \
  "bad.lua:25: parallel: dataset_strategy: expected one list of shards for each of the dataset's columns, 2, got 3"
option "dataset_strategy = {{5, 1}, {5, 1}}" 5 \
  "dataset_strategy: dimension 1 of column 'x' (f32[24,16]) is sharded 5 ways, which does not divide 24"
option "search_mode = 'exhaustive'" 2 "search_mode"
option "strategy_ckpt_load_file = '.'" 2 "this is a folder"
: >empty.json
option "strategy_ckpt_load_file = 'empty.json'" 2 \
  "bad.lua:25: parallel: strategy_ckpt_load_file: strategy file 'empty.json' is not readable: "
echo '{"format": "mslua strategy", "devices": 4, "nodes": []}' >four.json
option "strategy_ckpt_load_file = 'four.json'" 2 \
  "bad.lua:25: parallel: strategy_ckpt_load_file: strategy file 'four.json' is for 4 devices, here are 2: start that"
option "strategy_ckpt_save_file = 's.json', pipeline_stages = 2" 2 \
  "strategy_ckpt_save_file is not built yet with pipeline_stages: leave it out"
option "device_memory = 'lots'" 2 "device_memory: expected a size such as"
option "parallel_mode = 'auto_parallel', device_memory = '1KB'" 2 "on each of 2 devices, which have 1024"

option "}, samples = {images = function() return ms.ones {1, 1, 2, 2} end" 2 \
  "bad.lua:25: SampleImages: each rank has a part of the network here, and draws nothing alone: leave it out of this "\
"training, samples = p.draws and"

# An operator that is made of others says its own name.
recipe "self.einsum, self.e = ops.Einsum '...td,de->...te', self:parameter('e', {4, 6}, 'normal') \
self.einsum:shard {{2, 2, 1}, {1, 1}}" ""
sed -i 's/self.matmul(x, self.w)/self.einsum(x:reshape({24, 4, 4}), self.e):reshape({24, 24})/' bad.lua
refused 4 "bad.lua:12: Einsum: strategy ((2,2,1),(1,1)): Einsum is computed by other operators, and one of them cannot \
be sharded so: Reshape: strategy ((2,2,1)): dimension 2 of x (f32[24,4,4], factor 'f1') is sharded 2 ways"

# One rank shards nothing, and says so.
recipe "" ", strategy_ckpt_save_file = 's.json', strategy_ckpt_load_file = 'four.json'"
out=$("$mslua" train bad.lua --fast-dev-run=1 2>&1) || { echo "one rank: $out"; failed=1; }
for key in load save; do
  case $out in
    *"strategy_ckpt_${key}_file has no effect on one rank: nothing is sharded"*) ;;
    *) echo "no notice of strategy_ckpt_${key}_file: $out"; failed=1 ;;
  esac
done

# What belongs to another parallel mode has no effect, and a line says so.
says() {
  out=$("$mslua" train bad.lua -n 2 --fast-dev-run=1 2>&1) || { echo "$1: $out"; failed=1; }
  case $out in
    *"$1"*) ;;
    *) echo "expected '$1' in: $out"; failed=1 ;;
  esac
}
recipe "self.matmul:shard {{2, 1}, {1, 1}}" ", parallel_mode = 'data_parallel', full_batch = false"
says "MatMul:shard has no effect in data_parallel: semi_auto_parallel and auto_parallel shard operators"
recipe "self.sharded = ms.shard(ops.relu, {{2, 1}})" ", parallel_mode = 'data_parallel', full_batch = false"
says "ms.shard has no effect in data_parallel"
recipe "self.w.layerwise_parallel = true" ""
says "layerwise_parallel of w has no effect in semi_auto_parallel: the ranks have parts of one network"

recipe "" ", comm_fusion = {allgather = {mode = 'auto'}, reducescatter = {mode = 'auto'}}, \
parallel_optimizer_config = {parallel_optimizer_threshold = 1}"
for key in comm_fusion.allgather comm_fusion.reducescatter parallel_optimizer_config; do
  says "$key has no effect without enable_parallel_optimizer"
done
recipe "" ", parallel_mode = 'data_parallel', full_batch = false, optimizer_weight_shard_size = 2"
says "optimizer_weight_shard_size has no effect without enable_parallel_optimizer"
recipe "" ", parallel_mode = 'stand_alone', gradients_mean = true, comm_fusion = {allgather = {mode = 'auto'}}, \
enable_parallel_optimizer = true, parameter_broadcast = true, search_mode = 'recursive_programming'"
says "data_parallel lets them train together; without effect: comm_fusion, dataset_strategy, \
enable_parallel_optimizer, full_batch, gradients_mean, parameter_broadcast, search_mode"

# 2 s where nothing else runs.
echo "slowest: $slowest ms"
[ "$slowest" -lt 20000 ] || { echo "expected each within 20 s"; failed=1; }
[ "$failed" = 0 ] && echo ok
exit "$failed"
