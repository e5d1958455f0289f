#!/bin/sh
# A training that is killed (-9) three times and resumed prints, from where it resumes, the lines of the uninterrupted
# one: recovery.sh MSLUA RECIPES
set -eu
export OMP_WAIT_POLICY=passive  # tests share their cores
here=$(pwd)
mslua=$here/$1
recipe=$here/$2/lenet_mnist.lua
cd "$TEST_TMPDIR"
"$mslua" data make mnist data --samples 800 2>/dev/null

train() { "$mslua" train "$recipe" data_path=data epochs=16 checkpoint.save_checkpoint_steps=10 "$@"; }

train --out whole >whole.txt 2>/dev/null
[ "$(grep -c '^epoch: ' whole.txt)" = 400 ] || { echo "expected 400 steps"; exit 1; }

resume=
for step in 30 110 200; do
  # exec: the process that is killed is the training, not a shell around it.
  (exec "$mslua" train "$recipe" data_path=data epochs=16 checkpoint.save_checkpoint_steps=10 --out broken $resume) \
    >killed.txt 2>notes.txt &
  pid=$!
  until ls broken/ckpt 2>/dev/null | sed -n 's/.*_\([0-9]*\)\.ckpt$/\1/p' | awk "\$1 >= $step {f = 1} END {exit !f}"; do
    kill -0 "$pid" 2>/dev/null || { echo "it ended before step $step:"; cat notes.txt; exit 1; }
    sleep 0.01
  done
  kill -9 "$pid" || { echo "it had ended before it was killed"; exit 1; }
  wait "$pid" || true
  resume=--resume
done

train --out broken --resume >rest.txt 2>notes.txt
grep -q '^mslua: resuming from ' notes.txt || { echo "it did not resume from a checkpoint"; cat notes.txt; exit 1; }
lines=$(wc -l <rest.txt)
tail -n "$lines" whole.txt | cmp - rest.txt || { echo "the resumed lines differ"; exit 1; }
[ "$lines" -lt "$(wc -l <whole.txt)" ] || { echo "it began from the beginning"; exit 1; }
for checkpoint in broken/ckpt/*.ckpt broken/ckpt/best/*.ckpt; do "$mslua" ckpt verify "$checkpoint"; done
