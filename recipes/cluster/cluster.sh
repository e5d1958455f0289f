#!/bin/sh
# A scheduler and N workers on this machine, without MPI: cluster.sh RECIPE N [key=value ...] [flags]
# The files scheduler.txt and worker_<i>.txt get their output.
set -eu
recipe=$1
export MS_WORKER_NUM=$2
shift 2
export MS_SCHED_HOST=127.0.0.1
export MS_SCHED_PORT=${MS_SCHED_PORT:-8117}

# Launch 1 scheduler.
MS_ROLE=MS_SCHED "${MSLUA:-mslua}" train "$recipe" "$@" > scheduler.txt 2>&1 &
pids=$!
echo "scheduler start success!"

# Launch the workers. A node id that is a number is the rank.
export MS_ROLE=MS_WORKER
i=0
while [ "$i" -lt "$MS_WORKER_NUM" ]; do
  MS_NODE_ID=$i "${MSLUA:-mslua}" train "$recipe" "$@" > "worker_$i.txt" 2>&1 &
  pids="$pids $!"
  echo "worker $i start success with pid $!"
  i=$((i + 1))
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
