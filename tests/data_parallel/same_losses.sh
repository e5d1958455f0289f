#!/bin/sh
# The invariant of data parallel training on every backend of processes: with gradients_mean = true and one global batch
# the mean over ranks of the loss follows the run on one rank within 1e-5 for 50 steps.
# usage: same_losses.sh MSLUA
set -eu
mslua=$PWD/$1
here=$PWD/tests/data_parallel
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
cd "$(mktemp -d)"

# same_losses NAME RANKS COMMAND... : runs it and compares its ranks' losses with those of one rank.
same_losses() {
  name=$1 ranks=$2
  shift 2
  "$@" --out "$name" > "$name.out" 2> "$name.err" || { cat "$name.out" "$name.err"; exit 1; }
  sed -n 's/.*loss is //p' "$name"/rank_*.log | awk -v steps=50 -v ranks="$ranks" '
    { sum[(NR - 1) % steps] += $1 / ranks }
    END {
      if (NR != steps * ranks) { print "expected " steps * ranks " losses, got " NR > "/dev/stderr"; exit 1 }
      for (i = 0; i < steps; ++i) printf "%.9g\n", sum[i]
    }' > "$name.losses"
  paste one.losses "$name.losses" | awk -v name="$name" '
    { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "%s: largest difference %.2g\n", name, most; exit !(NR == 50 && most < 1e-5) }'
}

touch one.losses
"$mslua" train "$here/mlp.lua" --out one > one.out 2> one.err || { cat one.err; exit 1; }
sed -n 's/.*loss is //p' one/rank_0.log > one.losses
for n in 2 3 4 8; do same_losses "native-$n" "$n" "$mslua" train "$here/mlp.lua" -n "$n"; done
same_losses sharded 3 "$mslua" train "$here/mlp.lua" parallel_optimizer=true -n 3
if command -v mpirun > /dev/null; then
  same_losses mpi 2 mpirun --allow-run-as-root --oversubscribe -n 2 "$mslua" train "$here/mlp.lua"
fi
