#!/bin/sh
# By hand: what 500 connections that say nothing, garbage, half a message or a byte at a time cost a job that starts, at
# the scheduler's socket, its port and the ranks' ports; and 100 workers at once. Prints seconds.
. "$(dirname "$0")/common.sh"
intruder=$here/tests/ranks/intruder.py
ulimit -n "$(ulimit -H -n)"
echo 'require("mslua").communication.init()' > meet.lua
export MS_WORKER_NUM=2 MS_CLUSTER_TIMEOUT=120

# job NAME: two workers meet; says how long it took. $enter comes before each command.
job() {
  begin=$(date +%s.%N)
  for i in 0 1; do
    $enter env MS_ROLE=MS_WORKER MS_NODE_ID=$i "$mslua" run meet.lua > "worker_$i.txt" 2>&1 &
    eval "worker_$i=$!"
  done
  wait "$worker_0" || fail "$1: $(cat worker_0.txt)"
  wait "$worker_1" || fail "$1: $(cat worker_1.txt)"
  wait "$scheduler" || fail "$1: $(cat sched.txt)"
  echo "$1: $(echo "$(date +%s.%N) - $begin" | bc) s, $(grep -c refused sched.txt) lines about refusals"
}
start() {
  rm -f sched.txt crowd.txt
  $enter "$mslua" sched > sched.txt 2>&1 &
  scheduler=$!
  until grep -qs "scheduler of" sched.txt; do sleep 0.05; done
}
# crowds WHAT COMMAND...: jobs with each kind of crowd, which COMMAND KIND starts; each beside one without.
crowds() {
  what=$1
  shift
  for kind in none idle garbage half slow; do
    start
    crowd=
    if [ "$kind" != none ]; then
      "$@" "$kind" > crowd.txt 2>&1 &
      crowd=$!
      until grep -qs ready crowd.txt; do sleep 0.05; done
      sleep 1
    fi
    job "$what, $kind"
    [ -z "$crowd" ] || { kill "$crowd"; wait "$crowd" 2>/dev/null; }
  done
}

enter=
new_port
export MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$port
at_socket() { python3 "$intruder" crowd "$(find "$TMPDIR"/mslua-* -name socket)" 500 "$1" 60; }
crowds "unix socket of the scheduler" at_socket

if [ "$(id -u)" = 0 ] && ip netns add "mslua-c-$$"; then
  trap 'ip netns del "mslua-c-$$"; rm -rf "$TMPDIR"' EXIT
  ip -n "mslua-c-$$" link set lo up
  ip -n "mslua-c-$$" addr add 10.79.0.1/32 dev lo
  enter="ip netns exec mslua-c-$$"
  export MS_SCHED_HOST=10.79.0.1 MSLUA_PLAINTEXT=1
  at_ports() { $enter python3 "$intruder" hunt 500 "$1" 60; }
  crowds "all TCP ports" at_ports
fi

enter=
export MS_SCHED_HOST=127.0.0.1 MS_WORKER_NUM=100
start
python3 "$intruder" workers "$(find "$TMPDIR"/mslua-* -name socket)" 100
wait "$scheduler" || fail "100 workers: $(cat sched.txt)"
start
begin=$(date +%s.%N)
workers=
for i in $(seq 0 99); do
  MS_ROLE=MS_WORKER MS_NODE_ID=$i OMP_NUM_THREADS=1 "$mslua" run meet.lua > "many_$i.txt" 2>&1 &
  workers="$workers $!"
done
for pid in $workers; do wait "$pid" || fail "100 workers: one ended with $?"; done
wait "$scheduler" || fail "100 workers: $(cat sched.txt)"
echo "100 processes: $(echo "$(date +%s.%N) - $begin" | bc) s"
[ "$failed" = 0 ] || cat many_*.txt | sort | uniq -c | sort -rn | head
no_leftovers crowds
finish
