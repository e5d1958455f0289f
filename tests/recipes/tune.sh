#!/bin/sh
# context.tune: a plan's decisions are measured once, kept in the user's plan cache, and go with checkpoints:
# tune.sh MSLUA RECIPES
set -eu
export OMP_WAIT_POLICY=passive  # tests share their cores
export OMP_NUM_THREADS=1
here=$(pwd)
mslua=$here/$1
recipe=$here/$2/resnet50_cifar10.lua
cd "$TEST_TMPDIR"
export XDG_CACHE_HOME="$TEST_TMPDIR/cache"
"$mslua" data make cifar10 data --samples 200 2>/dev/null

fail() {
  {
    echo "$*"
    cat notes.txt
  } >&2
  exit 1
}
steps=2
train() {
  "$mslua" train "$recipe" --preset smoke data_path=data image_size=32 context.tune=true --max-steps "$steps" "$@" \
    2>notes.txt || fail "training failed"
}

train --out first >first.txt
grep -q '^mslua: tuned [1-9][0-9]* decisions of the plan in ' notes.txt || fail "nothing was tuned"
train --out second >second.txt
grep -q '^mslua: [1-9][0-9]* decisions of the plan from the cache$' notes.txt || fail "the cache was not used"
cmp first.txt second.txt || fail "the same decisions gave other bits"

# A damaged file is as good as none.
for file in cache/mslua/plans/*.plan; do printf 'x' | dd of="$file" bs=1 seek=40 conv=notrunc 2>/dev/null; done
train --out third >third.txt
grep -q '^mslua: tuned ' notes.txt || fail "a damaged plan was used"

# A cache that cannot be written is no obstacle.
rm -rf cache
: >cache
train --out fourth >fourth.txt
grep -q '^mslua: tuned .*; not kept: cannot make the folder .*cache/mslua: ' notes.txt || fail "expected a note"

# A resumed run takes the checkpoint's plan and does not tune again; on other threads it says so.
steps=4
train --out first --resume=first/ckpt >rest.txt
grep -q 'tuned\|from the cache' notes.txt && fail "tuned again"
grep -q '^epoch: 1 step: 4, ' rest.txt || fail "it did not resume"
OMP_NUM_THREADS=2
train --out second --resume=second/ckpt >rest.txt
grep -q "^mslua: note: the checkpoint's plan is for 1 threads on .*; here it is for 2 threads on " notes.txt ||
  fail "expected a note about threads"
