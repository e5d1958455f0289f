#!/bin/sh
# The tutorials' run scripts as they are (with "mslua run" for the interpreter) and their ResNet-50, on images of 32x32
# and 2 steps.
. "$(dirname "$0")/../ranks/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
tutorials=$here/tests/tutorials
mkdir bin && ln -s "$mslua" bin/mslua
PATH=$PWD/bin:$PATH
"$mslua" data make cifar10 data --samples 32 2> made.txt || fail "data: $(cat made.txt)"
data=$PWD/data
cp "$tutorials/resnet.lua" "$here"/recipes/cluster/rank_table_*.json .
sed 's/= 224$/= 32/; s/batch_size or 32/batch_size or 2/; s/epoch_size = 10/epoch_size = 1/' \
  "$tutorials/resnet50_distributed_training.lua" > resnet50_distributed_training.lua
cp resnet50_distributed_training.lua resnet50_distributed_training_gpu.lua

# prepare SCRIPT: the script here, with addresses for its names of them.
prepare() {
  new_port
  sed "s/SCHEDULER_IP/127.0.0.1/; s/=SCHEDULER_PORT/=$port/; s/=8117/=$port/" "$tutorials/$1" > "$1"
}
# ended: waits until no process of this test is left, nor mpirun, which starts the others some time after the script has
# ended.
ended() {
  while [ -n "$(ours)" ] || pgrep -s 0 -x mpirun > /dev/null; do sleep 0.2; done
}
# trained NAME STEPS FILE...: each file has that many losses, all near ln(10).
trained() {
  name=$1 steps=$2
  shift 2
  for file; do
    losses=$(sed -n 's/.*loss is //p' "$file" | awk '$1 > 1.5 && $1 < 4' | wc -l)
    [ "$losses" = "$steps" ] || fail "$name: $losses losses in $file: $(cat "$file")"
  done
}

if [ "${2:-}" = two ]; then
  # Two ranks of a table, each in its own folder, the strategy searched: device<i>/ckpt has the rank's slices.
  cp "$tutorials/run_rank_table.bash" .
  for mode in AUTO_PARALLEL DATA_PARALLEL; do
    run env PARALLEL_MODE=$mode bash run_rank_table.bash "$data" 2
    expect "rank table, $mode" 0 "training success"
    ended
    trained "rank table, $mode" 8 device0/train.log0
    [ -e device0/ckpt/resnet-1_8.ckpt/rank_0.safetensors ] || fail "rank table, $mode: $(ls -R device0)"
  done
else
  prepare run_workers.bash
  run bash run_workers.bash "$data"
  expect "workers" 0 "worker 7 start success"
  ended
  trained workers 2 worker_0.txt
  prepare run_gpu.bash
  run bash run_gpu.bash "$data"
  ended
  trained mpirun 2 device/train.log
  prepare run_gpu_cluster.bash
  run bash run_gpu_cluster.bash "$data"
  ended
  trained cluster 2 device/worker_0.log
  # Two hosts, here two folders: the scheduler and 4 workers, 4 workers.
  mkdir one two
  new_port
  for host in 1 2; do
    sed "s/SCHEDULER_IP/127.0.0.1/; s/=SCHEDULER_PORT/=$port/" "$tutorials/run_gpu_cluster_$host.bash" > "$host.bash"
  done
  for folder in one two; do cp resnet*.lua $folder; done
  (cd one && bash ../1.bash "$data" > started.txt 2>&1)
  (cd two && bash ../2.bash "$data" > started.txt 2>&1)
  ended
  trained "two hosts" 2 one/device/worker_*.log two/device/worker_*.log
fi
no_leftovers "run scripts"
finish
