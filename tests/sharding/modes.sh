#!/bin/sh
# The five parallel modes on real processes give the losses of one process:
#   modes.sh MSLUA RECIPES [--device LIBRARY] STEPS RANKS...
# --device: on emulated devices, one a rank; LIBRARY is the emulation.
set -u
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
recipes=$PWD/$2
here=$(cd "$(dirname "$0")" && pwd)
shift 2
device=
if [ "$1" = --device ]; then
  MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/cuda
  XDG_CACHE_HOME=$TEST_TMPDIR/cache
  EMULATED_NCCL_FOLDER=$(mktemp -d /tmp/mslua-nccl-XXXXXX) || exit 1
  trap 'rm -rf "$EMULATED_NCCL_FOLDER"' EXIT
  export MSLUA_CUDA_LIBRARIES XDG_CACHE_HOME EMULATED_NCCL_FOLDER
  mkdir "$MSLUA_CUDA_LIBRARIES"
  for name in libcuda.so.1 libnvrtc.so.12 libcublasLt.so.12 libcudnn.so.9 libnccl.so.2; do
    ln -s "$PWD/$2" "$MSLUA_CUDA_LIBRARIES/$name"
  done
  device="--device cuda"
  shift 2
fi
steps=$1
shift
cd "$TEST_TMPDIR" || exit 1
failed=0
stages=0  # of a pipeline
rm -rf text images
"$mslua" data make text text --samples 4000 2>/dev/null || exit 1
"$mslua" data make cifar10 images --samples 200 2>/dev/null || exit 1

# run NAME RANKS BATCH DTYPE STEPS RECIPE [key=value ...]: the mean over ranks of each step's loss, in the file NAME.
run() {
  name=$1 processes=$2 rows=$3 dtype=$4 count=$5 recipe=$6
  shift 6
  rm -f "$name".*
  MODES_STAGES=$stages MODES_DTYPE=$dtype MODES_RECIPE=$recipes/$recipe MODES_LOSSES=$PWD/$name \
    "$mslua" train "$here/modes.lua" -n "$processes" $device --fast-dev-run="$count" batch_size="$rows" "$@" \
    >"$name.log" 2>&1 ||
    { echo "$name failed:"; tail -5 "$name.log"; failed=1; }
  paste "$name".[0-9]* | awk '{ s = 0; for (i = 1; i <= NF; ++i) s += $i; printf "%.17g\n", s / NF }' >"$name"
}

# same NAME WANT TOLERANCE LINES: the first LINES losses agree.
same() {
  difference=$(paste "$1" "$2" | head -n "$4" | awk -v n=0 '
    { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
    END { printf "%d %.2g", n, worst }')
  echo "$1: $difference"
  echo "$difference" | awk -v lines="$4" -v limit="$3" '{ exit !($1 == lines && $2 <= limit) }' ||
    { echo "$1 against $2: steps and the largest difference: $difference, expected $4 within $3"; failed=1; }
}

# pipeline NETWORK BATCH RANKS [key=value ...]: two stages on those ranks are one rank with the same micro-batches.
pipeline() {
  net=$1 batch=$2 ranks=$3
  shift 3
  stages=2
  run "$net.micro" 1 "$batch" float64 "$steps" "$net.lua" "$@" parallel.parallel_mode=stand_alone
  run "$net.pipeline.n$ranks" "$ranks" $((batch * stages / ranks)) float64 "$steps" "$net.lua" "$@" \
    parallel.parallel_mode=semi_auto_parallel parallel.pipeline_stages=2
  same "$net.pipeline.n$ranks" "$net.micro" 1e-10 "$steps"
  stages=0
}

# modes NETWORK BATCH RANKS [key=value ...]
modes() {
  net=$1 batch=$2 ranks=$3
  shift 3
  alone=$net.alone
  run "$alone" 1 "$batch" float64 "$steps" "$net.lua" "$@" parallel.parallel_mode=stand_alone
  run "$alone.f32" 1 "$batch" float32 1 "$net.lua" "$@" parallel.parallel_mode=stand_alone
  for mode in data_parallel hybrid_parallel semi_auto_parallel auto_parallel; do
    run "$net.$mode.n$ranks" "$ranks" $((batch / ranks)) float64 "$steps" "$net.lua" "$@" parallel.parallel_mode=$mode
    same "$net.$mode.n$ranks" "$alone" 1e-10 "$steps"
    run "$net.$mode.n$ranks.f32" "$ranks" $((batch / ranks)) float32 1 "$net.lua" "$@" parallel.parallel_mode=$mode
    same "$net.$mode.n$ranks.f32" "$alone.f32" 1e-4 1
  done
  # Each rank trains by itself.
  run "$net.stand_alone.n$ranks" "$ranks" "$batch" float64 "$steps" "$net.lua" "$@" parallel.parallel_mode=stand_alone
  same "$net.stand_alone.n$ranks" "$alone" 1e-10 "$steps"
}

for ranks in "$@"; do
  batch=$((ranks > 4 ? 2 * ranks : 8))  # four rows for a rank of a pipeline, in four micro-batches
  modes char_gpt "$batch" "$ranks" data_path=text layers=2 dim=32 block=16 warmup=5 \
    parallel.search_mode=recursive_programming
  pipeline char_gpt "$batch" "$ranks" data_path=text layers=2 dim=32 block=16 warmup=5
  [ -z "$device" ] || continue  # convolutions in float64 take an emulated device minutes
  pipeline resnet50_cifar10 8 "$ranks" data_path=images image_size=32 width=4
  modes resnet50_cifar10 8 "$ranks" data_path=images image_size=32 width=4 \
    parallel.search_mode=recursive_programming
done

[ "$failed" = 0 ] && echo ok
exit "$failed"
