#!/bin/sh
# Pipeline stages on real processes: the losses of one process, checkpoints that one process reads, errors that say
# what.
# pipeline.sh MSLUA RECIPE
set -u
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
recipe=$PWD/$2
cd "$TEST_TMPDIR" || exit 1
failed=0

# run NAME ARGUMENTS: the losses of a training, in the file NAME.
run() {
  name=$1
  shift
  "$mslua" train "$recipe" --out "$PWD/out_$name" "$@" >"$name.log" 2>&1 ||
    { echo "$name failed:"; tail -5 "$name.log"; failed=1; }
  sed -n 's/.*loss is //p' "$name.log" >"$name"
}

# same NAME: its losses are those of one rank.
same() {
  paste "$1" alone | awk -v name="$1" '
    { d = $1 / $2 - 1; if (d < 0) d = -d; if (NF != 2 || d > 1e-4) bad = 1 }
    END { if (NR != 16 || bad) { print name ": not the losses of one rank"; exit 1 } }' || failed=1
}

run alone epochs=2
run two -n 2 epochs=2
same two
run halves -n 4 batch_size=16 epochs=2
same halves
run four -n 4 stages=4 epochs=2
same four

# However many micro-batches a step has, a stage keeps those that are under way, and one sum of gradients.
memory() {
  "$mslua" train "$recipe" -n 2 --fast-dev-run=1 width=128 batch_size=$((16 * $1)) micro_size="$1" 2>&1 |
    sed -n 's/.* kernels, \(.*\) MiB of activations.*/\1/p'
}
few=$(memory 2) many=$(memory 8)
awk -v few="$few" -v many="$many" 'BEGIN { exit !(few > 0 && many < 1.5 * few) }' ||
  { echo "2 micro-batches take '$few' MiB, 8 take '$many'"; failed=1; }

# What four stages saved one process evaluates, and two stages resume from.
"$mslua" eval "$recipe" --ckpt "$PWD/out_four/ckpt" >eval_four 2>err.txt || { cat err.txt; failed=1; }
"$mslua" eval "$recipe" --ckpt "$PWD/out_alone/ckpt" >eval_alone 2>err.txt || { cat err.txt; failed=1; }
cmp eval_four eval_alone || failed=1
"$mslua" eval "$recipe" -n 2 --ckpt "$PWD/out_alone/ckpt" >eval_two 2>err.txt || { cat err.txt; failed=1; }
cmp eval_two eval_alone || failed=1
# Ranks that have parts of parameters take their parts of a checkpoint.
sed 's/^  self.head = nn.Dense(p.width, 1)/&\
  self.blocks[8][1]:shard {{1, 2}, {1, 2}} self.blocks[1][1]:shard {{1, 2}, {1, 2}}/' "$recipe" >cut.lua
"$mslua" eval cut.lua -n 4 --ckpt "$PWD/out_alone/ckpt" >eval_cut 2>err.txt || { cat err.txt; failed=1; }
cmp eval_cut eval_alone || failed=1
"$mslua" train "$recipe" -n 2 --out "$PWD/out_on" --resume="$PWD/out_four/ckpt" epochs=3 >on.log 2>&1 ||
  { echo "resume failed:"; tail -5 on.log; failed=1; }
grep -q "step 16" on.log || { echo "does not resume at step 16:"; cat on.log; failed=1; }

# fails CODE TEXT ARGUMENTS
fails() {
  code=$1 text=$2
  shift 2
  "$mslua" train "$recipe" "$@" >err.txt 2>&1
  got=$?
  [ "$got" -eq "$code" ] || { echo "$*: exit code $got, expected $code:"; cat err.txt; failed=1; }
  grep -q -- "$text" err.txt || { echo "$*: expected '$text', got:"; cat err.txt; failed=1; }
}
fails 2 "pipeline_stages = 2 does not divide the job's 3 ranks" -n 3
fails 2 "no cell that runs has pipeline_stage = 2" -n 3 parallel.pipeline_stages=3
fails 2 "pipeline_stages = 2: stages are 0 to 1" -n 4 stages=4 parallel.pipeline_stages=2
fails 2 "micro_size = 1 is less than pipeline_stages = 2" -n 2 micro_size=1
fails 2 "micro_size = 5 does not divide the batch of column 'x', 32 rows" -n 2 micro_size=5
fails 2 "needs parallel_mode semi_auto_parallel" -n 2 parallel.parallel_mode=data_parallel

"$mslua" plan "$recipe" -n 4 >plan.txt 2>&1 || { cat plan.txt; failed=1; }
grep -q "pipeline: 2 stages of 2 ranks, 4 micro-batches, 20.0 % of a step idle (the bubble), [0-9.]* ms" plan.txt ||
  { cat plan.txt; failed=1; }
grep -q "^  1  *2-3 .* blocks.4, blocks.5, blocks.6, blocks.7, head" plan.txt || { cat plan.txt; failed=1; }
grep -q "^stage 1: parameters and state" plan.txt || { cat plan.txt; failed=1; }
"$mslua" plan "$recipe" -n 4 --explain PipelineCell/network/blocks.7/0/MatMul >plan.txt 2>&1 ||
  { cat plan.txt; failed=1; }
"$mslua" graph "$recipe" -n 4 --rank 2 >graph.txt 2>err.txt || { cat err.txt; failed=1; }
[ "$(grep -c "f32\[[0-9]*,32\] = stage_recv(.*peer=0" graph.txt)" = 4 ] || { grep stage_ graph.txt; failed=1; }
grep -q "blocks.0.0.weight" graph.txt && { echo "stage 1 has a parameter of stage 0"; failed=1; }
"$mslua" graph "$recipe" --rank 1 >err.txt 2>&1
grep -q -- "--rank 1: 1 rank(s) are 0 to 0 (-n N)" err.txt || { cat err.txt; failed=1; }
exit $failed
