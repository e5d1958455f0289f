#!/bin/sh
# The first of two hosts: the scheduler and the workers 0 to N/2 - 1 of N.
# cluster_host_1.sh SCHED_HOST RECIPE N [key=value ...] [flags]; then cluster_host_2.sh with the same on the other host.
# SCHED_HOST is this host's address in the network of the two. Connections are not encrypted: use a network you trust.
# Both hosts need the same secret. The scheduler makes the file; copy it to the second host unless they share it.
set -eu
export MSLUA_JOB_SECRET_FILE="${MSLUA_JOB_SECRET_FILE:-$HOME/.mslua-job-secret}"
export MS_SCHED_HOST=$1
recipe=$2
export MS_WORKER_NUM=$3
shift 3
export MS_SCHED_PORT=${MS_SCHED_PORT:-8118}
export MSLUA_PLAINTEXT=1

MS_ROLE=MS_SCHED "${MSLUA:-mslua}" train "$recipe" "$@" > scheduler.log 2>&1 &
pids=$!
export MS_ROLE=MS_WORKER
i=0
while [ "$i" -lt "$((MS_WORKER_NUM / 2))" ]; do
  MS_NODE_ID=$i "${MSLUA:-mslua}" train "$recipe" "$@" > "worker_$i.log" 2>&1 &
  pids="$pids $!"
  i=$((i + 1))
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
