#!/bin/bash
# What becomes of a run when it goes back, when two start in one folder, when the disk is full, when the terminal or
# memory is gone: lifecycle.sh MSLUA RECIPES
set -u
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
# Short: paths of sockets have 107 bytes at most.
XDG_RUNTIME_DIR=$(mktemp -d /tmp/lifecycle-XXXXXX) || exit 1
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
failed=0
fail() {
  echo "$*"
  failed=1
}
# expect NAME CODE TEXT: the last command ended with CODE, and its output (in `out`) contains TEXT.
expect() {
  [ "$code" = "$2" ] || fail "$1: exit code $code, expected $2: $out"
  case $out in
    *"$3"*) ;;
    *) fail "$1: expected '$3' in: $out" ;;
  esac
}
run() {
  out=$("$@" 2>&1)
  code=$?
}
# wait_for NAME COMMAND...: until it succeeds, 60 s at most.
wait_for() {
  local name=$1 tries=0
  shift
  until "$@" > /dev/null 2>&1; do
    sleep 0.05
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || { fail "$name: waited in vain for: $*"; return; }
  done
}
has_steps() { [ "$(wc -l < "$1/rank_0.log")" -gt 20 ]; }

cat > mlp.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { hidden = 8, epochs = 2, lr = 0.01, every = 4, keep = 20, rows = 32, frozen = false }
return ms.recipe {
  name = "mlp", loss = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 },
  network = function()
    local net = nn.SequentialCell { nn.Dense(4, p.hidden), nn.ReLU(), nn.Dense(p.hidden, 2) }
    for _, w in ipairs(p.frozen and net[1]:get_parameters() or {}) do w.requires_grad = false end
    return net
  end,
  dataset = ms.dataset.NumpySlicesDataset({ ms.ones { p.rows, 4 }, ms.ones { p.rows, 2 } }, { "x", "y" }):batch(2),
  train = { epochs = p.epochs },
  checkpoint = { save_checkpoint_steps = p.every, keep_checkpoint_max = p.keep },
}
LUA
train() { "$mslua" train mlp.lua "$@"; }
# In the background the process is the training, not a shell around it.
start() { exec "$mslua" train mlp.lua "$@"; }

# ---- Going back: the run resumes from what was saved last, not with what is furthest.
run train --out back
expect "first run" 0 ""
run train --out back epochs=9 --resume=back/ckpt/mlp-1_8.ckpt --max-steps 20
expect "going back" 0 "resuming from back/ckpt/mlp-1_8.ckpt at step 8"
run train --out back epochs=9 --resume --max-steps 24
expect "resume of the new lineage" 0 "resuming from back/ckpt/mlp-2_20.ckpt at step 20"
expect "the abandoned lineage" 0 "ignored back/ckpt/mlp-2_32.ckpt (step 32)"
run train --out back epochs=9 --resume --max-steps 40 keep=3
expect "further than the abandoned lineage" 0 "resuming from back/ckpt/mlp-2_24.ckpt at step 24"
left=$(ls back/ckpt | tr '\n' ' ')
[ "$left" = "mlp-2_32.ckpt mlp-3_36.ckpt mlp-3_40.ckpt " ] || fail "keep_checkpoint_max = 3 leaves: $left"
# Two series in one folder, whose times a copy has not kept. The records of one are not mixed with the other's.
cat back/rank_0.log > earlier.log
run train --out back
expect "a second run in one folder" 0 "the logs and metrics of an earlier training: they are in back/earlier-1"
cmp back/earlier-1/rank_0.log earlier.log || fail "a second run in one folder: the earlier log has changed"
[ "$(grep -c ^epoch back/rank_0.log)" = 32 ] || fail "a second run in one folder: $(cat back/rank_0.log)"
# Fewer ranks than before: no record of the others stays beside the new ones.
run train -n 2 --out fewer epochs=1 parallel.parallel_mode=data_parallel --profile 2:1
expect "two ranks" 0 "profiled steps"
run train --out fewer epochs=1
expect "fewer ranks in one folder" 0 "the logs and metrics of an earlier training: they are in fewer/earlier-1"
for name in rank_1.log rank_0.env rank_1.env trace; do
  [ ! -e fewer/$name ] || fail "fewer ranks in one folder: $name of the earlier training stays: $(ls fewer)"
  [ -e fewer/earlier-1/$name ] || fail "fewer ranks in one folder: $name is not kept: $(ls fewer/earlier-1)"
done
touch -d 2040-01-01 back/ckpt/mlp-*/MANIFEST.json back/ckpt/mlp-*
touch -d 2001-01-01 back/ckpt/mlp_1-*/MANIFEST.json back/ckpt/mlp_1-*
run train --out back epochs=9 --resume --max-steps 33
expect "two series" 0 "resuming from back/ckpt/mlp_1-2_32.ckpt at step 32"
run train --out back epochs=9 --resume --max-steps 34 --seed 7
expect "another seed" 0 "was saved with seed 1, this run has seed 7"
sed 's/0.01/0.02/' mlp.lua > changed.lua
run "$mslua" train changed.lua --out back epochs=9 --resume --max-steps 35
expect "a changed recipe" 0 "the recipe's file has changed since"
run "$mslua" train back/config.lua --out back --resume --max-steps 36
expect "the configuration of a changed recipe" 0 "resuming from back"
case $out in *"has changed"*) fail "the configuration of a changed recipe: $out" ;; esac

# A function whose samples another process would not make again.
sed 's/dataset = .*/dataset = ms.dataset.GeneratorDataset(function(i) return ms.full({ 4 }, DRAW), ms.ones { 2 } end, \
    { "x", "y" }, { length = 32 }):batch(2),/' mlp.lua > generator.lua
for draw in 'math.random()' 'ms.rand { 1 }:item()' i; do
  sed "s/DRAW/$draw/" generator.lua > drawn.lua
  run "$mslua" train drawn.lua --out drawn --max-steps 3
  expect "samples of $draw" 0 "epoch: 1 step: 3"
  case $draw:$out in
    i:*"draws random numbers"*) fail "samples of $draw: $out" ;;
    i:* | *"drawn.lua:11: GeneratorDataset: the function draws random numbers: a training that resumes draws"*) ;;
    *) fail "samples of $draw: $out" ;;
  esac
done

# ---- What a checkpoint does not fit, and what to do.
run train --out fewer_rows --max-steps 12
expect "before a smaller dataset" 0 ""
run train --out fewer_rows --resume rows=10
expect "a smaller dataset" 9 "fewer_rows/ckpt/mlp-1_12.ckpt was saved after batch 12 of 16 of an epoch, and the \
dataset has 5 batches an epoch: resume with the dataset that it was trained with; --init-from=fewer_rows/ckpt/mlp-1_12"
run train --out fewer_rows --resume rows=40
expect "a larger dataset" 0 "was saved in an epoch of 16 batches, and the dataset has 20: in this epoch some samples"
run train --out ended epochs=1
run train --out ended epochs=1 lr=0.5 --resume
expect "nothing left to train" 0 "nothing is left to train"
grep -q "lr = 0.01" ended/config.lua || fail "nothing left to train: the settings: $(head -1 ended/config.lua)"
run train --out ended epochs=2 --resume rows=10
expect "a smaller dataset after an epoch's end" 0 "resuming from ended/ckpt/mlp-1_16.ckpt at step 16"
grep -q "^epoch: 2 step: 5," ended/rank_0.log ||
  fail "a smaller dataset after an epoch's end: $(cat ended/rank_0.log)"
run train --out frozen frozen=true --max-steps 8
run train --out frozen --resume
expect "a layer that is trained now" 9 "frozen/ckpt/mlp-1_8.ckpt lacks moments.0.weight, moments.0.bias, which the \
recipe has: resume with what was trained; --init-from=frozen/ckpt/mlp-1_8.ckpt"
run train --out thawed --init-from=frozen/ckpt/mlp-1_8.ckpt --max-steps 1
expect "a layer that is trained now, of its values" 0 ""

# ---- One writer in a run folder.
start --out one epochs=1000000 every=100000000 > one.txt 2>&1 &
first=$!
wait_for "first of two" has_steps one
run train --out one
expect "second of two" 9 "run folder one is in use by pid $first on "
run train --out one -n 2 parallel.parallel_mode=data_parallel
expect "a second job of two ranks" 9 "run folder one is in use by pid $first on "
kill -9 $first
wait $first 2> /dev/null
touch one/rank_3.env.tmp-999999999-0
[ "$(ls "$XDG_RUNTIME_DIR/mslua" | wc -l)" = 1 ] ||
  fail "a training has one folder of sockets: $(ls "$XDG_RUNTIME_DIR/mslua")"
run train --out one
expect "after it was killed" 0 ""
[ ! -e one/rank_3.env.tmp-999999999-0 ] || fail "a temporary file of a killed process is left in the run folder"
[ -z "$(ls "$XDG_RUNTIME_DIR/mslua")" ] || fail "left of the killed process: $(ls "$XDG_RUNTIME_DIR/mslua")"
# Ranks that train each by itself have folders of their own.
run train --out each -n 2
expect "each by itself" 0 ""
[ -s each/rank_0/metrics.jsonl ] && [ -s each/rank_1/metrics.jsonl ] || fail "each by itself: $(ls each each/*)"

# ---- Closed outputs: no file gets their numbers.
"$mslua" train mlp.lua --out closed 0<&- >&- 2>&- || fail "closed outputs: exit code $?"
grep -qv '^{"step":[0-9]*,"epoch":[0-9]*,.*}$' closed/metrics.jsonl &&
  fail "closed outputs: $(grep -v '^{"step"' closed/metrics.jsonl | head -3)"
[ "$(wc -l < closed/rank_0.log)" = 32 ] || fail "closed outputs: $(wc -l < closed/rank_0.log) lines in the log"

# ---- The terminal is gone.
for ranks in 1 2; do
  start --out hangup$ranks -n $ranks epochs=1000000 every=100000000 \
    parallel.parallel_mode=data_parallel > hangup.txt 2>&1 &
  pid=$!
  wait_for "SIGHUP" has_steps hangup$ranks
  kill -HUP $pid
  wait $pid
  code=$? out=$(tail -3 hangup.txt)
  expect "SIGHUP, $ranks ranks" 75 ""
  ls -d hangup$ranks/ckpt/*.ckpt > /dev/null || fail "SIGHUP, $ranks ranks: no checkpoint: $out"
  (trap '' HUP; exec "$mslua" train mlp.lua --out nohup$ranks -n $ranks epochs=1000000 every=100000000 \
    parallel.parallel_mode=data_parallel) > nohup.txt 2>&1 &
  pid=$!
  wait_for "nohup" has_steps nohup$ranks
  kill -HUP $pid
  before=$(wc -l < nohup$ranks/rank_0.log)
  wait_for "nohup: continues" sh -c "[ \$(wc -l < nohup$ranks/rank_0.log) -gt $((before + 20)) ]"
  kill -TERM $pid
  wait $pid
  code=$? out=$(tail -3 nohup.txt)
  expect "nohup, $ranks ranks" 75 ""
done

# ---- A disk that is full for metrics, events and logs: no file may pass 4 KiB.
run bash -c "ulimit -f 4; exec '$mslua' train mlp.lua --out full epochs=2000 every=100000000 keep=0 \
  checkpoint.keep_checkpoint_per_n_minutes=1 --log-every 100000"
expect "full disk" 9 "File too large: training continues"
expect "full disk" 9 "were lost: "
grep -qv '^{.*}$' full/metrics.jsonl && fail "full disk: a record was cut off: $(tail -n 1 full/metrics.jsonl)"
[ "$(printf '%s\n' "$out" | grep -c '^mslua: note: cannot write')" = 1 ] || fail "full disk: said more than once: $out"

# ---- Records are thinned: 100 of every step, 100 of every second one, and so on.
run train --out thin epochs=1000 every=100000000 keep=0 checkpoint.keep_checkpoint_per_n_minutes=1 \
  train.metrics_limit=100 --log-every 100000
expect "thinned records" 0 ""
steps=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' thin/metrics.jsonl | awk '
  NR > 1 { gap[$1 - last]++ } { last = $1 } END { for (g = 1; g <= 16; g *= 2) printf "%d ", gap[g] }')
[ "$steps" = "99 100 101 100 100 " ] || fail "thinned records: gaps of 1, 2, 4, 8, 16 steps: $steps"
[ "$(wc -l < thin/metrics.jsonl)" -lt 1000 ] ||
  fail "thinned records: $(wc -l < thin/metrics.jsonl) lines of 16000 steps"
before=$(wc -l < thin/metrics.jsonl)
printf '{"step":160' >> thin/metrics.jsonl  # a truncated record
run train --out thin epochs=1100 every=100000000 keep=0 checkpoint.keep_checkpoint_per_n_minutes=1 \
  train.metrics_limit=100 --log-every 100000 --resume
expect "thinned records of a resumed run" 0 ""
[ $(($(wc -l < thin/metrics.jsonl) - before)) -lt 30 ] || fail "the resumed run records more often than the first"
grep -qv '^{.*}$' thin/metrics.jsonl && fail "a record that was cut off is left"
run "$mslua" plot thin
expect "plot of thinned records" 0 "loss  thin"

# ---- A start that fails leaves no run folder.
mkdir empty && cd empty || exit 1
sed 's/nn.Dense(p.hidden, 2)/nn.Dense(p.hidden, 3)/' ../mlp.lua > shapes.lua
run "$mslua" train shapes.lua
expect "bad shapes" 2 ""
run "$mslua" train ../mlp.lua --resume=../back/ckpt/mlp-1_999.ckpt
expect "no such checkpoint" 9 ""
run "$mslua" train ../mlp.lua hidden=9 --resume=../back/ckpt
expect "another network" 9 ""
[ -z "$(ls runs 2> /dev/null)" ] || fail "failed starts leave $(ls runs)"
cd ..

# ---- No memory, no threads: one line with the cause.
limited() { # NAME LIMITS ARGUMENTS...: ends by itself with 0, 4 (no start) or 9 (no checkpoint); an error says why
  local name=$1 limits=$2
  shift 2
  run bash -c "ulimit $limits; exec '$mslua' train mlp.lua --no-attach --out limits \"\$@\"" - "$@"
  [ "$code" = 0 ] && return
  [ "$code" = 4 ] || [ "$code" = 9 ] || fail "$name ($limits): exit code $code: $out"
  case $out in
    *"terminate called"* | *"C++ exception"*) fail "$name ($limits): $out" ;;
    *"mslua: error"*) ;;
    *) fail "$name ($limits): no error is named: $out" ;;
  esac
}
# AddressSanitizer takes terabytes of addresses. Loading the program takes 69 MiB.
for kib in $([ -n "${ASAN_OPTIONS:-}" ] || echo 72000 80000 90000 100000 140000 200000); do
  limited "memory" "-v $kib" epochs=1
  limited "memory" "-v $kib" epochs=1 -n 2
done
run bash -c "ulimit -n 8; exec '$mslua' train mlp.lua --out limits"
expect "too few open files" 4 "a process may have 8 open files (ulimit -n)"
run bash -c "ulimit -n 8; exec '$mslua' sched --workers 2"
expect "a scheduler with too few open files" 4 "a process may have 8 open files (ulimit -n)"
# Another user than root is held to a number of threads.
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
  mkdir -m 777 others
  for tasks in 1 2 3 4 6 8; do
    limited_user() { (cd others && setpriv --reuid=64999 --regid=64999 --clear-groups bash -c \
      "ulimit -u $tasks; exec '$mslua' train ../mlp.lua --no-attach --out limits$tasks epochs=1 $1"); }
    for ranks in "" "-n 2"; do
      run env -u XDG_RUNTIME_DIR OMP_NUM_THREADS=2 \
        bash -c "$(declare -f limited_user); mslua='$mslua' tasks=$tasks; limited_user '$ranks'"
      case $code:$out in
        0:* | *"Permission denied"*) ;;
        *"terminate called"* | *"C++ exception"*) fail "ulimit -u $tasks $ranks: $code: $out" ;;
        *"mslua: error"* | *"libgomp: "* | *": retry: "* | *"fork"*) ;;
        *) fail "ulimit -u $tasks $ranks: exit code $code: $out" ;;
      esac
    done
  done
fi
run train hidden=20000000000 --out huge
expect "a huge tensor" 4 "out of memory"
[ ! -e huge ] || fail "a huge tensor: the run folder is left"

[ "$failed" = 0 ] && echo ok
exit "$failed"
