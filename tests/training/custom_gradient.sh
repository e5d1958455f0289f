#!/bin/sh
# A training whose cells have a bprop that returns the usual gradients has the losses of one without bprop, in every
# parallel mode; and those of one rank.
# custom_gradient.sh MSLUA
set -u
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
here=$(cd "$(dirname "$0")" && pwd)
cd "$TEST_TMPDIR" || exit 1
failed=0

# run NAME RANKS [key=value ...]: the mean over ranks of each step's loss, in the file NAME.
run() {
  name=$1 ranks=$2
  shift 2
  rm -f "$name".*
  "$mslua" train "$here/custom_gradient.lua" -n "$ranks" losses="$PWD/$name" batch_size=$((32 / rows)) "$@" \
    >"$name.log" 2>&1 || { echo "$name failed:"; tail -5 "$name.log"; failed=1; }
  paste "$name".[0-9]* | awk '{ s = 0; for (i = 1; i <= NF; ++i) s += $i; printf "%.17g\n", s / NF }' >"$name"
}

# same NAME WANT TOLERANCE: all 16 losses agree.
same() {
  difference=$(paste "$1" "$2" | awk -v n=0 '
    { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
    END { printf "%d %.2g", n, worst }')
  echo "$1: $difference"
  echo "$difference" | awk -v limit="$3" '{ exit !($1 == 16 && $2 <= limit) }' ||
    { echo "$1 against $2: steps and the largest difference: $difference, expected 16 within $3"; failed=1; }
}

# both NAME TOLERANCE WANT RANKS [key=value ...]: with bprop and without it, and against WANT in float64.
both() {
  case_name=$1 tolerance=$2 want=$3
  shift 3
  run "$case_name" "$@"
  run "$case_name.usual" "$@" own=false extras=false
  same "$case_name" "$case_name.usual" "$tolerance"
  [ "$want" = none ] || same "$case_name" "$want" 1e-12
}

rows=1
both alone 1e-12 none 1
both alone.recompute 1e-12 alone 1 recompute=true
both alone.accumulate 1e-12 alone 1 accumulate=4
both alone.loss_scale 1e-12 alone 1 loss_scale=1024
both alone.f32 1e-5 none 1 dtype=float32
both alone.amp 0.05 none 1 dtype=float32 amp=true
both tied 1e-12 none 1 tied=true
both extras 1e-12 alone 1 extras=true
for ranks in 2 4; do
  rows=$ranks
  both data_parallel.n$ranks 1e-12 alone $ranks mode=data_parallel
  both semi_auto_parallel.n$ranks 1e-12 alone $ranks mode=semi_auto_parallel
  both auto_parallel.n$ranks 1e-12 alone $ranks mode=auto_parallel
done
both semi_auto_parallel.strategies 1e-12 alone 4 mode=semi_auto_parallel strategies=true
rows=2
both semi_auto_parallel.accumulate 1e-12 alone 2 mode=semi_auto_parallel accumulate=2
both semi_auto_parallel.extras 1e-12 alone 2 mode=semi_auto_parallel extras=true
both auto_parallel.extras 1e-12 alone 2 mode=auto_parallel extras=true
rows=1
both pipeline.n2 1e-12 alone 2 mode=semi_auto_parallel stages=2
both pipeline.recompute 1e-12 alone 2 mode=semi_auto_parallel stages=2 recompute=true
both pipeline.tied 1e-12 tied 2 mode=semi_auto_parallel stages=2 tied=true
both pipeline.extras 1e-12 alone 2 mode=semi_auto_parallel stages=2 extras=true
rows=2
both pipeline.n4 1e-12 alone 4 mode=semi_auto_parallel stages=2

# A gradient that is no usual one: its norm over the whole batch, which ranks share.
rows=1
run clipped 1 clip=0.01
cmp -s clipped alone && { echo "clip=0.01 changes no loss"; failed=1; }
for ranks in 2 4; do
  rows=$ranks
  run clipped.n$ranks $ranks mode=semi_auto_parallel clip=0.01
  same clipped.n$ranks clipped 1e-12
done
exit $failed
