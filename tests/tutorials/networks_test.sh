#!/bin/sh
# The quick-start tutorial, and several networks in one script, on 8 ranks that save into directories of their own.
. "$(dirname "$0")/../ranks/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
tutorials=$here/tests/tutorials

# slices NAME FOLDER PREFIX: each rank's directory has that rank's file alone, and a manifest.
slices() {
  for rank in 0 1 2 3 4 5 6 7; do
    for checkpoint in "$(echo "$2" | sed "s/%/$rank/")/$3"*.ckpt; do
      [ "$(ls "$checkpoint" | tr '\n' ' ')" = "MANIFEST.json rank_$rank.safetensors " ] ||
        fail "$1: $checkpoint has $(ls "$checkpoint")"
    done
  done
}

mkdir device && cd device || exit 1
for start in "mpirun -n 8 $mslua run" "$mslua run -n 8"; do
  rm -rf [0-7] ../saved_graph
  run $start "$tutorials/net.lua"
  expect "quick start" 0 "epoch: 5 step: 4, loss is 0.2"
  count "quick start" 20 "loss is "
  slices "quick start" % CKP
  "$mslua" ckpt verify 5/CKP-5_20.ckpt > verified.txt 2>&1 || fail "a checkpoint of rank 5: $(cat verified.txt)"
  # The strategies, as the tutorial's dumps have them.
  for line in 'matmul(.*((2,4),(4,1))".*# Net' 'relu(.*((2,4))".*# Net'; do
    grep -q "$line" ../saved_graph/rank_7/*_strategy.ir ||
      fail "no '$line' in $(cat ../saved_graph/rank_7/*_strategy.ir)"
  done
done
# One file of it alone is refused: it has slices.
cat > slice.lua <<'LUA'
local ms = require "mslua"
ms.load_checkpoint "3/CKP-5_20.ckpt/rank_3.safetensors"
LUA
run "$mslua" run slice.lua
expect "one slice" 2 "give the folder, 3/CKP-5_20.ckpt"
# What is listed where other ranks' parts are not there.
mkdir elsewhere && cp -r 3 elsewhere/ && mv [0-7] "$TMPDIR"
run "$mslua" ckpt ls elsewhere/3
expect "ckpt ls" 0 "parts are missing"
run "$mslua" ckpt show elsewhere/3/CKP-5_20.ckpt
expect "ckpt show" 0 "has the parts of some ranks only"
cd ..

run mpirun -n 8 "$mslua" run "$tutorials/several_networks.lua"
expect "several networks" 0 "rank 0: mul_weight "
slices "several networks" ./rank_%_ckpt semi_auto_parallel
for rank in 0 7; do
  run "$mslua" ckpt show "rank_${rank}_ckpt/data_parallel-1_1.ckpt"
  expect "the first network" 0 "fc_weight"
  run "$mslua" ckpt show "rank_${rank}_ckpt/semi_auto_parallel-1_1.ckpt"
  expect "the second network" 0 "mul_weight"
  refuse "the second network" "fc_weight"
done

# The recipe, each rank in a folder of its own, as run.sh of the Ascend tutorial starts them; and again from there.
export MSLUA="$mslua"
cluster=$here/recipes/cluster
table=$cluster/rank_table_8pcs.json
run sh "$cluster/rank_table.sh" "$here/recipes/quickstart.lua" "$table" 8 epochs=2 --out r
expect "a folder per rank" 0 "epoch: 2 step: 4, loss is "
run sh "$cluster/rank_table.sh" "$here/recipes/quickstart.lua" "$table" 8 epochs=3 --out r --resume
expect "resumed" 0 "epoch: 3 step: 4, loss is "
count "resumed" 4 "loss is "
# Data parallel, where rank 0 alone has saved.
for more in "epochs=2" "epochs=3 --resume"; do
  run sh "$cluster/rank_table.sh" "$here/recipes/quickstart.lua" "$cluster/rank_table_2pcs.json" 2 \
    --out d parallel.parallel_mode=data_parallel $more
  expect "data parallel: $more" 0 "loss is "
done
count "data parallel resumed" 4 "loss is "

run env RANK_TABLE_FILE="$cluster/rank_table_16pcs.json" RANK_SIZE=16 RANK_ID=16 DEVICE_ID=0 \
  "$mslua" train "$here/recipes/quickstart.lua"
expect "16 ranks on two hosts" 4 "from 0 to 15"

# In a recipe the ranks have joined before it runs: the tutorial's line is right there too.
sed 's/^local p = /ms.set_ps_context { enable_ssl = false }\n&/' "$here/recipes/quickstart.lua" > ps.lua
run "$mslua" train ps.lua -n 8 epochs=1
expect "set_ps_context in a recipe" 0 "loss is "
sed 's/enable_ssl = false/enable_ssl = true/' ps.lua > tls.lua
run "$mslua" train tls.lua -n 8 epochs=1
expect "enable_ssl in a recipe of one host" 0 "loss is "
sed 's/enable_ssl = true/enable_ssl = true, config_file_path = "ps.lua"/' tls.lua > file.lua
run "$mslua" train file.lua -n 8 epochs=1
expect "config_file_path in a recipe" 2 "start with --tls FILE"

# Tables on the command line.
run "$mslua" plan "$here/recipes/quickstart.lua" -n 8 "parallel.dataset_strategy={{2,1},{2,1}}"
expect "dataset_strategy" 0 "matmul"
run "$mslua" plan "$here/recipes/quickstart.lua" -n 8 parallel.parallel_mode=data_parallel \
  'parallel.comm_fusion={allreduce={mode="size",config=1}}'
expect "comm_fusion" 0 "all_reduce"
run "$mslua" train "$here/recipes/quickstart.lua" "parallel.comm_fusion={alreduce={}}" epochs=1
expect "a typo in comm_fusion" 2 "alreduce"
no_leftovers "tutorials"
finish
