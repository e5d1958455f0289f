#!/bin/sh
# A scheduler and N workers on this machine that start again: recover.sh RECIPE N [key=value ...] [flags]
# A process that dies is started again with the same line, which is what this script does; on a cluster it is the task
# of the process that has started it. The files scheduler.txt and worker_<i>.txt get their output.
set -eu
recipe=$1
export MS_WORKER_NUM=$2
shift 2
export MS_ENABLE_RECOVERY=1                                # enable recovery
export MS_RECOVERY_PATH=${MS_RECOVERY_PATH:-$PWD/recovery} # what the scheduler remembers
export MS_SCHED_HOST=127.0.0.1
export MS_SCHED_PORT=${MS_SCHED_PORT:-8117}

# Runs a process again while it is killed: exit codes over 128 are signals, 130 is Ctrl-C.
run() {
  while true; do
    status=0
    "${MSLUA:-mslua}" train "$@" || status=$?
    [ "$status" -gt 128 ] && [ "$status" -ne 130 ] && [ "$status" -ne 143 ] || return "$status"
  done
}

# Launch 1 scheduler.
(export MS_ROLE=MS_SCHED MS_NODE_ID=sched; run "$recipe" "$@") > scheduler.txt 2>&1 &
pids=$!

# Launch the workers.
i=0
while [ "$i" -lt "$MS_WORKER_NUM" ]; do
  (export MS_ROLE=MS_WORKER MS_NODE_ID="worker_$i"; run "$recipe" "$@") > "worker_$i.txt" 2>&1 &
  pids="$pids $!"
  i=$((i + 1))
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
