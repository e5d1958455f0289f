#!/bin/sh
# The GPU tutorial's all_gather in every way of starting ranks: each of four prints [[0.],[1.],[2.],[3.]].
. "$(dirname "$0")/common.sh"
script=$here/recipes/examples/all_gather.lua
four='[[0.],
 [1.],
 [2.],
 [3.]]'

# Four files worker_<i>.txt, each with the four rows.
each_has_four() {
  for i in 0 1 2 3; do
    [ "$(cat "worker_$i.txt")" = "$four" ] || fail "$1: worker $i printed: $(cat "worker_$i.txt" "worker_$i.err")"
  done
}

run "$mslua" run "$script"
expect "one rank" 0 "[[0.]]"

run "$mslua" run "$script" -n 4
expect "-n 4" 0 "$four"
expect "-n 4" 0 "[rank 3] [[0.],
[rank 3]  [1.],"
expect "-n 4" 0 "rank 0 of 4 (mslua -n), native, 1 host, 1 thread a rank"
no_leftovers "-n 4"

# A parent may have signals of ended processes ignored.
run timeout -k 10 60 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$mslua" run "$script" -n 2
expect "SIGCHLD is ignored" 0 "[1.]]"

# The launcher's variables are no parameters of a recipe.
echo 'local p = require("mslua").params { rank = 7, size = 8 } print("parameters " .. p.rank .. " " .. p.size)' > p.lua
run "$mslua" run p.lua -n 2
count "parameters" 2 "parameters 7 8"

# A script that has not joined the other ranks does not train beside them without a word.
cat > alone.lua <<'LUA'
local ms = require "mslua"
ms.set_auto_parallel_context { parallel_mode = (...), device_num = select(2, ...) and 2 }
local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
local net = ms.nn.Dense(2, 1)
ms.Model(net, { loss_fn = ms.nn.MSELoss(), optimizer = ms.nn.SGD { learning_rate = 0.1 } }):train(1, ds)
print("trained")
LUA
run "$mslua" run alone.lua -n 2 -- data_parallel
expect "not joined" 2 "train: the parallel context: 2 ranks were started and have not joined: call"
run "$mslua" run alone.lua -n 2 -- data_parallel 2
expect "not joined, device_num" 2 "2 ranks were started and have not joined: call ms.communication.init()"
run mpirun --allow-run-as-root --oversubscribe -n 2 "$mslua" run alone.lua -- data_parallel
expect "not joined, mpirun" 2 "2 ranks were started and have not joined"
run "$mslua" run alone.lua -n 2 -- stand_alone
expect "not joined, stand_alone" 0 "2 ranks were started and have not joined: each trains by itself"
count "not joined, stand_alone" 2 "trained"
run "$mslua" run alone.lua -- data_parallel
expect "one rank, data_parallel" 0 "parallel_mode = data_parallel has no effect on one rank"

run mpirun --allow-run-as-root --oversubscribe -n 4 "$mslua" run "$script"
expect "mpirun" 0 "rank 0 of 4 (Open MPI), mpi, 1 host"
count "mpirun" 4 "[[0.],"
count "mpirun" 4 " [3.]]"
# Open MPI's TCP transport would listen on all addresses, and its ranks wait for any process that connects.
run mpirun --allow-run-as-root --oversubscribe -n 2 "$mslua" run "$here/tests/ranks/listens.lua"
count "mpirun listens" 2 "listens beyond this host: no"

# Scheduler and workers by hand, as in the CPU tutorial: the same command, MS_ROLE says what it is.
new_port
export MS_WORKER_NUM=4 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$port
MS_ROLE=MS_SCHED "$mslua" run "$script" > scheduler.txt 2>&1 &
scheduler=$!
workers=
for i in 0 1 2 3; do
  MS_ROLE=MS_WORKER "$mslua" run "$script" > "worker_$i.txt" 2> "worker_$i.err" &
  workers="$workers $!"
done
for pid in $scheduler $workers; do wait "$pid" || fail "cluster: process $pid ended with $?: $(cat scheduler.txt)"; done
each_has_four cluster
out=$(cat scheduler.txt) code=0
expect "scheduler" 0 "The cluster topology has been constructed successfully."
count "scheduler" 4 "(role: MS_WORKER) is registered successfully."
refuse "scheduler" "[[0.],"
unset MS_WORKER_NUM MS_SCHED_HOST MS_SCHED_PORT
no_leftovers cluster

# A rank table of one server.
cat > table.json <<'JSON'
{"version": "1.0", "server_count": "1", "status": "completed", "server_list": [
  {"server_id": "10.155.111.140", "host_nic_ip": "reserve", "device": [
    {"device_id": "0", "device_ip": "192.1.27.6", "rank_id": "0"},
    {"device_id": "1", "device_ip": "192.2.27.6", "rank_id": "1"},
    {"device_id": "2", "device_ip": "192.3.27.6", "rank_id": "2"},
    {"device_id": "3", "device_ip": "192.4.27.6", "rank_id": "3"}]}]}
JSON
new_port
workers=
for i in 0 1 2 3; do
  RANK_TABLE_FILE=table.json RANK_ID=$i DEVICE_ID=$i RANK_SIZE=4 MS_SCHED_PORT=$port \
    "$mslua" run "$script" > "worker_$i.txt" 2> "worker_$i.err" &
  workers="$workers $!"
done
for pid in $workers; do wait "$pid" || fail "rank table: a rank ended with $?: $(cat worker_?.err)"; done
each_has_four "rank table"
no_leftovers "rank table"

# srun's variables, and torchrun's.
workers=
for i in 0 1 2 3; do
  SLURM_PROCID=$i SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_LOCALID=$i SLURM_NNODES=1 SLURM_JOB_ID=$$ \
    "$mslua" run "$script" > "worker_$i.txt" 2> "worker_$i.err" &
  workers="$workers $!"
done
for pid in $workers; do wait "$pid" || fail "SLURM: a rank ended with $?: $(cat worker_?.err)"; done
each_has_four SLURM
new_port
workers=
for i in 0 1 2 3; do
  RANK=$i WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$port \
    "$mslua" run "$script" > "worker_$i.txt" 2> "worker_$i.err" &
  workers="$workers $!"
done
for pid in $workers; do wait "$pid" || fail "torchrun: a rank ended with $?: $(cat worker_?.err)"; done
each_has_four torchrun
no_leftovers torchrun

# -n where somebody else has started the ranks; variables that contradict each other.
run env RANK=0 WORLD_SIZE=2 "$mslua" run "$script" -n 4
expect "-n in a rank" 4 "MASTER_ADDR: expected"
run env RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 "$mslua" run "$script" -n 4
expect "-n in a rank" 2 "this process is already rank 0 of 2 (RANK and WORLD_SIZE): leave out -n"
for role in "MS_WORKER is already a worker of 2" "MS_SCHED is already scheduler of 2 workers"; do
  run env MS_ROLE="${role%% *}" MS_WORKER_NUM=2 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=1 MS_CLUSTER_TIMEOUT=2 \
    "$mslua" run "$script" -n 2
  expect "-n as $role" 2 "-n 2 starts ranks, but this process ${role#* }"
  expect "-n as $role" 2 "leave out -n"
done
run env MS_WORKER_NUM=2 "$mslua" run "$script"
expect "no role" 4 "MS_ROLE is not"
run env MS_ROLE=MS_MASTER "$mslua" run "$script"
expect "bad role" 4 "MS_ROLE: expected MS_SCHED or MS_WORKER, got 'MS_MASTER'"
run env RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.255.255.1 MASTER_PORT=1 "$mslua" run "$script"
expect "beyond this host" 10 "MSLUA_PLAINTEXT=1"
export RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.255.255.1 MASTER_PORT=1 MSLUA_PLAINTEXT=1
run "$mslua" run "$script" --no-insecure-network
expect "consent that is taken back" 10 "say --insecure-network"
run "$mslua" run "$script"
expect "no secret" 10 "set MSLUA_JOB_SECRET_FILE"
echo "a secret that others can read" > secret
chmod 644 secret
run env MSLUA_JOB_SECRET_FILE="$PWD/secret" "$mslua" run "$script"
expect "an open secret" 10 "chmod 600"
run env MSLUA_JOB_SECRET_FILE="$PWD/none" MS_CLUSTER_TIMEOUT=1 "$mslua" run "$script"
expect "a secret that nobody makes" 4 "job secret $PWD/none: No such file"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT MSLUA_PLAINTEXT
finish
