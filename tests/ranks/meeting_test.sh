#!/bin/sh
# Workers that are missing, too many, or that run something else; interfaces.
. "$(dirname "$0")/common.sh"
recipe=$here/tests/ranks/tiny.lua
new_port
export MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$port

# One too few: who is missing is said, then all give up.
export MS_WORKER_NUM=3 MS_CLUSTER_TIMEOUT=5
"$mslua" sched > sched.txt 2>&1 &
scheduler=$!
for i in 0 2; do
  MS_ROLE=MS_WORKER MS_NODE_ID=$i "$mslua" train "$recipe" > "few_$i.txt" 2>&1 &
  eval "few_$i=$!"
done
wait "$scheduler"
code=$? out=$(cat sched.txt)
expect "too few, scheduler" 4 "only 2 of 3 workers came within 5s; missing: MS_NODE_ID 1"
expect "too few, scheduler" 4 "current alive node num: (2/3), missing: MS_NODE_ID 1"
wait "$few_0"
code=$? out=$(cat few_0.txt)
expect "too few, worker" 4 "current alive node num: (2/3), missing: MS_NODE_ID 1"
expect "too few, worker" 4 "only 2 of 3 workers came within 5s"
wait "$few_2" || true
no_leftovers "too few"

# One too many: that one is refused, the others train (once it is refused: a job that has ended refuses nobody).
export MS_WORKER_NUM=2 MS_CLUSTER_TIMEOUT=60
"$mslua" sched > sched.txt 2>&1 &
scheduler=$!
workers=
for i in 0 1 2; do
  MS_ROLE=MS_WORKER MS_NODE_ID=worker_$i "$mslua" train "$recipe" wait_for="$PWD/refused" --out "many_$i" \
    > "many_$i.txt" 2>&1 &
  workers="$workers $!"
done
tries=0
until grep -qs "error\[" many_?.txt || [ $tries = 900 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
: > refused
refused=0
for pid in $workers; do
  wait "$pid"
  code=$?
  [ "$code" = 0 ] || refused=$((refused + 1))
done
wait "$scheduler" || fail "one too many: the scheduler: $(cat sched.txt)"
[ "$refused" = 1 ] || fail "one too many: $refused were refused: $(cat many_?.txt)"
[ "$(cat many_?.txt | grep -c "the cluster is complete with 2 workers")" = 1 ] || fail "one too many: $(cat many_?.txt)"
[ "$(cat many_?.txt | grep -c "epoch: 2 step: 2, loss is")" = 2 ] ||
  fail "a rank by hand prints its loss: $(cat many_?.txt)"

# Another command line: refused at once, by name and both values.
"$mslua" sched > another.txt 2>&1 &
scheduler=$!
MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" train "$recipe" --out other > first.txt 2>&1 &
first=$!
until grep -q "node: 0" another.txt; do sleep 0.1; done
run env MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" epochs=9
expect "another command line" 4 "its command line is 'epochs=9', that of 0 is ''"
run env MS_ROLE=MS_WORKER MS_NODE_ID=1 MS_WORKER_NUM=3 "$mslua" train "$recipe" --out other
expect "another number of workers" 4 "its MS_WORKER_NUM is 3, the scheduler's is 2"
run env MS_ROLE=MS_WORKER MS_NODE_ID=1 MS_ENABLE_RECOVERY=1 MS_RECOVERY_PATH="$PWD/memory" "$mslua" train "$recipe"
expect "recovery of a worker alone" 4 "its MS_ENABLE_RECOVERY is 1, the scheduler's is 0"
run env MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" train "$recipe"
expect "a taken id" 4 "MS_NODE_ID=0 is taken by a worker"
run env MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" --iface nosuch0
expect "no such interface" 4 "no network interface matches 'nosuch0'; this host has lo (127.0.0.1)"
run env MS_ROLE=MS_WORKER MS_NODE_ID=1 NCCL_SOCKET_IFNAME=lo "$mslua" train "$recipe" --out other
expect "NCCL_SOCKET_IFNAME" 0 "loss is"
wait "$first" || fail "first: $(cat first.txt)"
wait "$scheduler" || fail "scheduler: $(cat another.txt)"
out=$(cat first.txt) code=0
expect "who waits hears of it" 0 "The node: 1 is refused: its command line is 'epochs=9'"

# Ranks that somebody has started all at once: one that differs ends the job.
differing() {
  env RANK="$1" WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 30 \
    "$mslua" train "$recipe" $2 > "differs_$1.txt" 2>&1
}
new_port
differing 0 &
first=$!
differing 1 &
second=$!
differing 2 epochs=9 &
third=$!
for pid in $first $second $third; do
  wait "$pid"
  [ $? = 4 ] || fail "a rank that differs: $(cat differs_?.txt)"
done
out=$(cat differs_?.txt) code=4
expect "a rank that differs" 4 "refused: its command line is "

# Two that count other ranks do not train together; which of them comes first is open.
counting() {
  env RANK="$1" WORLD_SIZE="$2" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port MS_CLUSTER_TIMEOUT=10 \
    timeout 30 "$mslua" train "$recipe" > "counts_$1.txt" 2>&1
}
new_port
counting 0 2 &
first=$!
counting 1 3
[ $? = 4 ] || fail "another WORLD_SIZE: $(cat counts_1.txt)"
wait "$first"
out=$(cat counts_?.txt) code=4
expect "another WORLD_SIZE" 4 "its WORLD_SIZE is "

# One worker is a cluster too.
MS_WORKER_NUM=1 "$mslua" sched > single.txt 2>&1 &
scheduler=$!
run env MS_WORKER_NUM=1 MS_ROLE=MS_WORKER "$mslua" train "$recipe"
expect "one worker" 0 "epoch: 2 step: 4, loss is"
wait "$scheduler" || fail "one worker: the scheduler: $(cat single.txt)"

# A held port, and nobody there.
"$mslua" sched --port "$MS_SCHED_PORT" > held.txt 2>&1 &
scheduler=$!
until [ -s held.txt ]; do sleep 0.1; done
run "$mslua" sched --port "$MS_SCHED_PORT"
expect "held port" 4 "$MS_SCHED_PORT"
kill "$scheduler"
wait "$scheduler" 2>/dev/null
run env MS_CLUSTER_TIMEOUT=1 MS_ROLE=MS_WORKER "$mslua" train "$recipe"
expect "nobody there" 4 "scheduler at 127.0.0.1:$MS_SCHED_PORT"
no_leftovers meeting
finish
