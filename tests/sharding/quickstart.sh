#!/bin/sh
# The quick-start tutorial on 8 processes: one product is sharded by hand, the rest follows, the losses are those of one
# process: quickstart.sh MSLUA
set -eu
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1  # tests share their cores
mslua=$PWD/$1
cd "$TEST_TMPDIR"

losses() { sed -n 's/.*epoch: \(.*\), loss is \(.*\)$/\1 \2/p' "$1"; }
"$mslua" train quickstart --out one >one.txt 2>notes.txt || { cat notes.txt; exit 1; }
"$mslua" train quickstart -n 8 --out eight context.save_graphs=2 context.save_graphs_path=graphs \
  >eight.txt 2>notes.txt ||
  { cat notes.txt; exit 1; }
losses one/rank_0.log >one.losses
for rank in 0 7; do
  losses eight/rank_$rank.log >eight.losses
  paste -d ' ' one.losses eight.losses | awk '
    { d = $4 / $8 - 1; if (d < 0) d = -d; if (d > worst) worst = d; if ($1 $3 != $5 $7) worst = 1; ++n }
    END { printf "%d steps within %.2g\n", n, worst; exit !(n == 20 && worst <= 1e-6) }' ||
    { echo "rank '$rank' differs"; paste one.losses eight.losses; exit 1; }
done

# has FILE TEXT COUNT: so many lines of a dump of each rank have the text.
has() {
  for rank in 0 1 2 3 4 5 6 7; do
    count=$(grep -c -- "$2" "graphs/rank_$rank/$1") || true
    [ "$count" = "$3" ] ||
      { echo "rank $rank: $count lines with '$2', expected $3"; cat "graphs/rank_$rank/$1"; exit 1; }
  done
}
# Before: the strategy of each operator. After: local shapes, and the partial product moved by one reduce_scatter.
has 00_strategy.ir ' = relu(.*in_strategy="((2,4))"' 1
has 00_strategy.ir 'f32\[16,16\] = matmul(.*in_strategy="((2,4),(4,1))".*Net' 2
has 01_traced.ir 'f32\[8,4\] = reduce_scatter(.*# Net' 1
echo ok
