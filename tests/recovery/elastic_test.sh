#!/bin/sh
# Jobs whose ranks change: one that loses a worker, continues without it and grows again, and one with a spare; with
# "long", 4 ranks in every mode.
. tests/ranks/common.sh
elastic=$here/tests/recovery/elastic

holds() {
  name=$1
  shift
  run "$elastic" "$mslua" "$@"
  expect "$name" 0 "all equal"
}
if [ "$2" = long ]; then
  for mode in data_parallel parallel_optimizer semi_auto; do
    holds "4 -> 3 -> 4, $mode" --mode "$mode" --trials 5
    holds "a spare, $mode" --mode "$mode" --spare --trials 5
  done
  run "$elastic" "$mslua" --hosts --trials 5 --set norm=false
  [ "$out" = "no right to make network namespaces: two hosts are not tested" ] || expect "a host is lost" 0 "all equal"
else
  holds "3 -> 2 -> 3" --ranks 3 --mode parallel_optimizer --told-by workers --set epochs=4 --set samples=768
  holds "a spare" --ranks 2 --spare --set epochs=2 --set samples=512
  # A number of ranks that the recipe cannot have is left out: 4 -> 2 -> 4.
  holds "4 -> 2 -> 4" --ranks 4 --least 2 --refuses 3 --told-by recipe --set epochs=12 --set samples=1024
fi

# A journal that cannot be written ends the start.
MS_ROLE=MS_SCHED MS_ENABLE_RECOVERY=1 MS_RECOVERY_PATH=/proc/none/folder MS_WORKER_NUM=1 \
  MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=0 \
  "$mslua" sched > scheduler.txt 2>&1 &
scheduler=$!
port=""
while [ -z "$port" ] && kill -0 "$scheduler" 2> /dev/null; do
  port=$(sed -n 's/.*workers at 127.0.0.1:\([0-9]*\).*/\1/p' scheduler.txt)
  sleep 0.1
done
run env MS_ROLE=MS_WORKER MS_ENABLE_RECOVERY=1 MS_RECOVERY_PATH=/proc/none/folder MS_WORKER_NUM=1 MS_NODE_ID=0 \
  MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT="$port" "$mslua" train "$here/tests/recovery/lenet.lua" --out one
expect "a journal that cannot be written" 9 "/proc/none"
wait "$scheduler"
code=$? out=$(cat scheduler.txt)
expect "its scheduler" 9 "/proc/none"

# A worker that a signal stops: those of its host stay, and a spare takes its place.
export MS_ENABLE_RECOVERY=1 MS_RECOVERY_PATH="$PWD/stopped" MS_WORKER_NUM=2 MS_SCHED_HOST=127.0.0.1
new_port
export MS_SCHED_PORT=$port
rm -f scheduler.txt
"$mslua" sched --spares 1 --replace-after 2 > scheduler.txt 2>&1 &
scheduler=$!
# worker ID TEXT: starts it, and waits until it says so. What an earlier one has said is removed here: the shell empties
# the file later, in the process that it starts.
worker() {
  rm -f "stopped_$1.txt"
  MS_ROLE=MS_WORKER MS_NODE_ID=$1 "$mslua" train "$here/tests/recovery/lenet.lua" --out stopped_run epochs=100000 \
    evaluate=false > "stopped_$1.txt" 2>&1 &
  pid=$!
  for _ in $(seq 600); do
    grep -qs "$2" "stopped_$1.txt" scheduler.txt && return
    sleep 0.1
  done
  fail "$1: no '$2': $(cat "stopped_$1.txt" scheduler.txt)"
}
worker a "new node: a" && a=$pid
worker b "loss is" && b=$pid
worker c "waits as a spare" && c=$pid
kill -STOP "$b"
for _ in $(seq 600); do
  grep -q "constructed successfully, epoch 2" scheduler.txt && break
  sleep 0.1
done
sleep 3
kill -TERM "$scheduler"
for one in $a $c; do
  wait "$one"
  code=$? out=$(cat stopped_a.txt stopped_c.txt scheduler.txt)
  expect "a worker beside one that is stopped" 75 "constructed successfully, epoch 2"
done
wait "$scheduler"
kill -KILL "$b"
wait "$b"
# The keeper of the images waits for a worker to come back.
end_keeper() {
  for one in $(ours); do kill "$one"; done
  for _ in $(seq 100); do
    [ -n "$(ours)" ] || break
    sleep 0.1
  done
}
end_keeper

# A worker that is asked to stop while it waits for another one, which is killed then: the job stops when they have met
# again.
export MS_RECOVERY_PATH="$PWD/asked"
new_port
MS_SCHED_PORT=$port
rm -f scheduler.txt
"$mslua" sched > scheduler.txt 2>&1 &
scheduler=$!
worker a "new node: a" && a=$pid
worker b "loss is" && b=$pid
kill -STOP "$b"
sleep 0.3
kill -TERM "$a"
sleep 0.3
kill -KILL "$b"
wait "$b"
worker b "constructed successfully, epoch 2" && b=$pid
for one in $a $b; do
  (sleep 60 && kill -KILL "$one") 2> /dev/null &
  late=$!
  wait "$one"
  code=$? out=$(cat stopped_a.txt stopped_b.txt scheduler.txt)
  kill "$late" 2> /dev/null
  expect "a worker that was asked to stop before the workers met again" 75 "constructed successfully, epoch 2"
done
wait "$scheduler"
end_keeper
unset MS_ENABLE_RECOVERY MS_RECOVERY_PATH MS_WORKER_NUM MS_SCHED_HOST MS_SCHED_PORT

run "$mslua" train "$here/tests/recovery/lenet.lua" -n 2 --elastic 1:2
expect "--elastic without a cluster" 2 "--elastic is for workers of a cluster"
run env MS_ROLE=MS_SCHED MS_WORKER_NUM=4 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=0 "$mslua" sched --spares 1
expect "--spares without recovery" 4 "--spares (MSLUA_SPARES) is for clusters that start again"
run env MS_ROLE=MS_SCHED MS_WORKER_NUM=4 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=0 MS_ENABLE_RECOVERY=1 \
  MS_RECOVERY_PATH="$PWD/r" "$mslua" sched --elastic 5:6
expect "--elastic beyond the workers" 4 "1 <= MIN <= 4"

no_leftovers "at the end"
finish
