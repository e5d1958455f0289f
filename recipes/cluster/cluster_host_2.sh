#!/bin/sh
# The second of two hosts: the workers N/2 to N - 1 of N; see cluster_host_1.sh. The scheduler is the first host's.
set -eu
export MSLUA_JOB_SECRET_FILE="${MSLUA_JOB_SECRET_FILE:-$HOME/.mslua-job-secret}" # a copy of the first host's
export MS_SCHED_HOST=$1
recipe=$2
export MS_WORKER_NUM=$3
shift 3
export MS_SCHED_PORT=${MS_SCHED_PORT:-8118}
export MSLUA_PLAINTEXT=1
export MS_ROLE=MS_WORKER
pids=
i=$((MS_WORKER_NUM / 2))
while [ "$i" -lt "$MS_WORKER_NUM" ]; do
  MS_NODE_ID=$i "${MSLUA:-mslua}" train "$recipe" "$@" > "worker_$i.log" 2>&1 &
  pids="$pids $!"
  i=$((i + 1))
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
