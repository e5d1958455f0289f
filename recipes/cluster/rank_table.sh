#!/bin/sh
# The ranks of a table on this machine, rank 0 in the foreground: rank_table.sh RECIPE TABLE N [key=value ...] [flags]
# Each rank runs in its own folder device<i>. rank_table_2pcs.json and rank_table_8pcs.json are tables of one server,
# rank_table_16pcs.json is one of two servers, whose server_id are to be their addresses.
set -eu
recipe=$(readlink -f -- "$1")
RANK_TABLE_FILE=$(readlink -f -- "$2")
export RANK_TABLE_FILE
export RANK_SIZE=$3
shift 3
pids=
i=1
while [ "$i" -lt "$RANK_SIZE" ]; do
  mkdir -p "device$i"
  (cd "device$i" && DEVICE_ID=$i RANK_ID=$i exec "${MSLUA:-mslua}" train "$recipe" "$@" > train.log 2>&1) &
  pids="$pids $!"
  i=$((i + 1))
done
mkdir -p device0
status=0
(cd device0 && DEVICE_ID=0 RANK_ID=0 exec "${MSLUA:-mslua}" train "$recipe" "$@" 2>&1) || status=$?
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
