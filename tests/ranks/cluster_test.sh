#!/bin/sh
# The start scripts of recipes/cluster, each with 2 ranks of a small training; all give the same losses.
. "$(dirname "$0")/common.sh"
cluster=$here/recipes/cluster
recipe=$here/tests/ranks/tiny.lua
export MSLUA=$mslua
new_port
export MS_SCHED_PORT=$port

# same NAME LOG: LOG has the losses of `mslua train -n 2`.
same() {
  [ "$(cat "$2" 2>/dev/null)" = "$losses" ] || fail "$1: losses of $2: $(cat "$2" 2>&1); expected $losses"
}

run "$cluster/local.sh" "$recipe" 2 --out local
expect local.sh 0 "epoch: 2 step: 2, loss is "
losses=$(cat local/rank_0.log)

run "$cluster/mpirun.sh" "$recipe" 2 --out mpirun
expect mpirun.sh 0 "rank 0 of 2 (Open MPI), mpi"
same mpirun.sh mpirun/rank_0.log

run "$cluster/mpirun_hosts.sh" "$recipe" 2 "$cluster/hostfile" --out hosts
expect mpirun_hosts.sh 0 "rank 0 of 2 (Open MPI), mpi"
same mpirun_hosts.sh hosts/rank_0.log
grep -q "NCCL_SOCKET_IFNAME=lo" hosts/rank_1.env || fail "mpirun_hosts.sh: rank.sh's variable: $(cat hosts/rank_1.env)"

run "$cluster/cluster.sh" "$recipe" 2 --out cluster
expect cluster.sh 0 "scheduler start success!"
same cluster.sh cluster/rank_0.log
grep -q "constructed successfully" scheduler.txt || fail "cluster.sh: $(cat scheduler.txt)"
grep -q "loss is" worker_1.txt || fail "cluster.sh: a worker by hand prints its losses: $(cat worker_1.txt)"

run "$cluster/rank_table.sh" "$recipe" "$cluster/rank_table_2pcs.json" 2 --out table
expect rank_table.sh 0 "rank 0 of 2 (RANK_TABLE_FILE), native"
same rank_table.sh device0/table/rank_0.log
grep -q "loss is" device1/train.log || fail "rank_table.sh: $(cat device1/train.log)"
run "$cluster/rank_table.sh" "$recipe" "$cluster/rank_table_8pcs.json" 2 --out table
expect "rank_table.sh, ranks that the table does not have" 4 "RANK_SIZE: expected 8, the number of ranks in the table"

# sbatch: as Slurm would run the file, with a stand-in for srun that starts the tasks of one node.
mkdir -p bin
cat > bin/srun <<'SH'
#!/bin/sh
shift # --kill-on-bad-exit=1
pids=
for i in 0 1; do
  SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_STEP_ID=0 SLURM_NTASKS=2 "$@" &
  pids="$pids $!"
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit $status
SH
chmod +x bin/srun
run env PATH="$PWD/bin:$PATH" SLURM_NNODES=1 SLURM_JOB_ID=$$ bash "$cluster/slurm.sbatch" "$recipe" --out slurm
expect slurm.sbatch 0 "rank 0 of 2 (SLURM), native"
same slurm.sbatch slurm/rank_0.log
no_leftovers cluster

# Two hosts: two network namespaces that a cable joins.
if [ "$(id -u)" = 0 ] && ip netns add "mslua-a-$$" 2>/dev/null; then
  trap 'ip netns del "mslua-a-$$"; ip netns del "mslua-b-$$"; rm -rf "$TMPDIR"' EXIT
  ip netns add "mslua-b-$$"
  ip link add "va$$" netns "mslua-a-$$" type veth peer name "vb$$" netns "mslua-b-$$"
  ip -n "mslua-a-$$" addr add 10.77.0.1/24 dev "va$$"
  ip -n "mslua-b-$$" addr add 10.77.0.2/24 dev "vb$$"
  for end in a b; do
    ip -n "mslua-$end-$$" link set lo up
    ip -n "mslua-$end-$$" link set "v$end$$" up
  done
  export MSLUA_JOB_SECRET_FILE=$PWD/secret # the scheduler makes it
  mkdir -p host_b
  (cd host_b && exec ip netns exec "mslua-b-$$" "$cluster/cluster_host_2.sh" 10.77.0.1 "$recipe" 2 --out two_hosts) &
  second=$!
  run ip netns exec "mslua-a-$$" "$cluster/cluster_host_1.sh" 10.77.0.1 "$recipe" 2 --out two_hosts
  expect cluster_host_1.sh 0 ""
  wait "$second" || fail "cluster_host_2.sh ended with $?"
  same "two hosts" two_hosts/rank_0.log
  grep -q "rank 0 of 2 (MS_ROLE), native, 2 hosts" worker_0.log || fail "two hosts: $(cat worker_0.log)"
  grep -q "not encrypted" worker_0.log || fail "two hosts: no warning: $(cat worker_0.log)"
  # Which address a rank announces.
  run ip netns exec "mslua-a-$$" env MS_SCHED_HOST=10.77.0.1 MS_WORKER_NUM=2 MSLUA_PLAINTEXT=1 MS_ROLE=MS_WORKER \
    "$mslua" train "$recipe" --iface 10.88.0.0/16
  expect "--iface" 4 "no network interface matches '10.88.0.0/16'; this host has lo (127.0.0.1), va$$ (10.77.0.1)"
  no_leftovers "two hosts"
else
  echo "no right to make network namespaces: two hosts are not tested"
fi
finish
