#!/bin/sh
# Training by several ranks: what they print and where, the run folder, signals.
. "$(dirname "$0")/common.sh"
recipe=$here/tests/ranks/tiny.lua

run "$mslua" train "$recipe" -n 2 --out a
expect "train" 0 "rank 0 of 2 (mslua -n)"
expect "train" 0 "epoch: 2 step: 2, loss is "
count "rank 0 alone prints its loss" 4 "loss is "
[ "$(grep -c "loss is" a/rank_0.log)" = 4 ] || fail "a/rank_0.log: $(cat a/rank_0.log)"
[ "$(grep -c "loss is" a/rank_1.log)" = 4 ] || fail "a/rank_1.log: $(cat a/rank_1.log)"
grep -qx MSLUA_RANK=1 a/rank_1.env || fail "a/rank_1.env: $(cat a/rank_1.env)"
[ -s a/metrics.jsonl ] && [ -s a/config.lua ] || fail "a: $(ls a)"
no_leftovers train

run "$mslua" train "$recipe" -n 2 --out b --log-ranks all
count "--log-ranks all" 4 "[rank 1] epoch: "
run "$mslua" train "$recipe" -n 2 --log-ranks 2
expect "--log-ranks 2" 2 "--log-ranks expects all, or ranks from 0 to 1 such as 0,2; got '2'"
count "--log-ranks 2" 1 "expects all"

run mpirun --allow-run-as-root --oversubscribe -n 2 "$mslua" train "$recipe" --out c --log-ranks all
expect "mpirun" 0 "[rank 1] epoch: 2 step: 2, loss is "
[ "$(cat a/rank_0.log)" = "$(cat c/rank_0.log)" ] || fail "losses by mpirun: $(cat a/rank_0.log c/rank_0.log)"
run mpirun --allow-run-as-root --oversubscribe -n 2 "$mslua" train "$recipe" --out d --backend native
expect "mpirun --backend native" 0 "rank 0 of 2 (Open MPI), native"
[ "$(cat a/rank_0.log)" = "$(cat d/rank_0.log)" ] || fail "losses by native: $(cat a/rank_0.log d/rank_0.log)"
run "$mslua" train "$recipe" -n 2 --backend mpi
expect "--backend mpi without mpirun" 4 "the back end mpi needs ranks that mpirun started"
count "--backend mpi without mpirun" 1 "mslua: error["
# A cause that comes before the ranks have met is printed once too.
run "$mslua" train "$recipe" -n 2 --iface nosuch0
expect "no such interface" 4 "no network interface matches 'nosuch0'"
count "no such interface" 1 "mslua: error"
run "$mslua" train "$recipe" -n 2 --tls missing.json
expect "no TLS configuration" 10 "TLS configuration missing.json: No such file"
count "no TLS configuration" 1 "mslua: error"
run env MSLUA_CUDA_LIBRARIES=/nowhere "$mslua" train "$recipe" -n 2 --device cuda
expect "no such device" 4 "mslua: error[4] rank "
count "no such device" 1 "mslua: error"

run "$mslua" train "$recipe" -n 2 sequence=1
expect "a sequence" 0 "every rank runs the iterator whole"
run "$mslua" train "$recipe" sequence=1
refuse "a sequence on one rank" "every rank runs the iterator whole"
run "$mslua" train "$recipe" -n 2 device_num=4
expect "device_num" 2 "device_num = 4, but the job has 2 rank(s)"
count "device_num" 1 "mslua: error["
run "$mslua" train "$recipe" -n 2 odd=1
expect "data sets" 0 "the data set of rank 1 (arrays, 17 samples, 2 batches of x f32[4,4] y f32[4,1]) is not that of"
run "$mslua" train "$recipe" -n 2 other=1
expect "other networks" 6 "rank 1 has a training step other than rank 0's: in line "
count "other networks" 1 "mslua: error["
run "$mslua" train "$recipe" -n 2 nosuch=4
count "a mistake of all ranks" 1 "unknown parameter 'nosuch'"

# interrupted NAME SIGNALS CODE [BEFORE [PARAMETER]]: a long training that gets the signals, after the command BEFORE.
# Its ranks stop at one step and save it.
interrupted() {
  "$mslua" train "$recipe" -n 2 --out "$1" epochs=1000000 --log-every epoch ${5:+"$5"} > "$1.txt" 2>&1 &
  launcher=$!
  tries=0
  while ! grep -qs "loss is" "$1.txt" && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  ${4:-:}
  for signal in $2; do
    kill "-$signal" "$launcher" 2> /dev/null
    sleep 0.05
  done
  wait "$launcher"
  code=$?
  out=$(tail -5 "$1.txt")
  expect "$1" "$3" ""
  no_leftovers "$1"
}
interrupted ctrl_c INT 130
ls -d ctrl_c/ckpt/*.ckpt > /dev/null || fail "ctrl_c: no checkpoint: $out"
[ "$(tail -n 1 ctrl_c/rank_0.log | cut -d, -f1)" = "$(tail -n 1 ctrl_c/rank_1.log | cut -d, -f1)" ] ||
  fail "ctrl_c: the ranks stopped at different steps: $(tail -n 1 ctrl_c/rank_0.log ctrl_c/rank_1.log)"
interrupted term TERM 75
interrupted twice "INT INT" 130

# A checkpoint that cannot be written is not said to be there. It is the only one: a folder that goes away after the
# step of an earlier one, at which the ranks then stop, would not make that one's save fail.
block() {
  rm -rf blocked/ckpt
  true > blocked/ckpt || fail "blocked: the folder comes back: $(ls blocked)"
}
interrupted blocked TERM 9 block checkpoint.save_checkpoint_steps=1000000000
expect "blocked" 9 "but its checkpoint was not saved: blocked/ckpt/"
refuse "blocked" "--resume resumes from it"

# mpirun, interrupted, asks its ranks by SIGTERM and reads no more of what they print.
mpirun --allow-run-as-root --oversubscribe --mca odls_base_sigkill_timeout 4 -n 2 "$mslua" train "$recipe" \
  --out by_mpirun epochs=1000000 checkpoint.save_checkpoint_steps=1000000000 > by_mpirun.txt 2>&1 &
launcher=$!
tries=0
while ! grep -qs "loss is" by_mpirun.txt && [ $tries -lt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -INT "$launcher"
wait "$launcher"
ls -d by_mpirun/ckpt/*.ckpt > /dev/null || fail "mpirun: no checkpoint: $(grep -v "loss is" by_mpirun.txt)"
no_leftovers by_mpirun

# Ranks that have values of their own save together when rank 0's clock says so; another number of ranks resumes.
"$mslua" train "$recipe" -n 3 --out clock own=1 epochs=1000000 checkpoint.save_checkpoint_steps=0 \
  checkpoint.save_checkpoint_seconds=1 --log-every epoch > clock.txt 2>&1 &
launcher=$!
tries=0
while [ "$(ls -d clock/ckpt/*.ckpt 2> /dev/null | wc -l)" -lt 2 ] && [ $tries -lt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
[ $tries -lt 300 ] || fail "by seconds: no second checkpoint: $(tail -5 clock.txt)"
kill -INT "$launcher"
wait "$launcher"
code=$? out=$(tail -5 clock.txt)
expect "by seconds" 130 ""
run "$mslua" train "$recipe" -n 3 --out clock own=1 epochs=1000000 --resume --max-steps 1
expect "resume on 3 ranks" 0 "resuming from clock/ckpt"
# Fewer ranks would lose values of the others' own.
run "$mslua" train "$recipe" -n 2 --out clock own=1 epochs=1000000 --resume --max-steps 1
expect "resume on 2 ranks" 9 "has values of 3 ranks of their own of dense.weight"
for ranks in 2 1 3; do
  run "$mslua" train "$recipe" -n $ranks --out ctrl_c --resume --max-steps 1
  expect "resume on $ranks ranks" 0 "resuming from ctrl_c/ckpt"
done

# An optimizer's state of which each rank has a part is neither saved nor loaded by hand: the file would be a part too.
cat > by_hand.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { mode = "data_parallel", loads = false }
ms.communication.init()
local net = nn.Dense(4, 2)
local optimizer = nn.Momentum(net:trainable_params(), 0.1, 0.9)
ms.save_checkpoint(optimizer, "whole.ckpt")
ms.set_auto_parallel_context {
  parallel_mode = p.mode, enable_parallel_optimizer = p.mode == "data_parallel",
  parallel_optimizer_config = { parallel_optimizer_threshold = 1 },
}
if p.loads then ms.load_param_into_net(optimizer, ms.load_checkpoint "whole.ckpt") end
ms.save_checkpoint(optimizer, "part.ckpt")
LUA
slices="Momentum: its state is sharded over ranks here (enable_parallel_optimizer): ms.Model"
sharded="Momentum: parameters are sharded over ranks here: ms.Model"
run "$mslua" run by_hand.lua -n 2 mode=data_parallel
expect "save state in slices" 2 "$slices's checkpoints save its state"
run "$mslua" run by_hand.lua -n 2 mode=data_parallel loads=true
expect "load state in slices" 2 "$slices resumes with its state"
run "$mslua" run by_hand.lua -n 2 mode=semi_auto_parallel
expect "save sharded state" 2 "$sharded's checkpoints save its state"
run "$mslua" run by_hand.lua -n 2 mode=semi_auto_parallel loads=true
expect "load sharded state" 2 "$sharded resumes with its state"
[ -d whole.ckpt ] && [ ! -e part.ckpt ] || fail "by hand: $(ls -d ./*.ckpt)"
finish
