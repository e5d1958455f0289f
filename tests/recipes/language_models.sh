#!/bin/bash
# The recipes gpt2 and llama: text from them, folders in and out:
# language_models.sh MSLUA RECIPES
set -u
export OMP_NUM_THREADS=1
mslua=$PWD/$1 recipes=$PWD/$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_RUNTIME_DIR=$work
failed=0

# expect NAME CODE TEXT COMMAND...: the command's exit code, and what its output contains.
expect() {
  local name=$1 code=$2 text=$3
  shift 3
  got=$("$@" 2>&1)
  local found=$?
  if [ "$found" != "$code" ] || [[ "$got" != *"$text"* ]]; then
    echo "$name: exit code $found, expected $code and '$text', got: $got"
    failed=1
  fi
}

first_loss() { printf '%s\n' "$got" | awk '/step: 1, loss is/ { print $NF; exit }'; }

"$mslua" data make text text --samples 2000 2>/dev/null
for name in gpt2 llama; do
  recipe=$recipes/$name.lua
  expect "$name" 0 "" "$mslua" train "$recipe" --preset smoke data_path=text --out "$name"
  fresh=$(first_loss)
  expect "text of $name" 0 "the" "$mslua" generate "$recipe" --preset smoke data_path=text --ckpt "$name" \
    --prompt the --max-new 5
  mkdir "$name-folder"
  expect "$name as a folder" 0 "" "$mslua" ckpt convert "$name" "$name-folder"
  expect "$name from a folder" 0 "" "$mslua" train "$recipe" --preset smoke data_path=text weights="$name-folder" \
    steps=6 warmup=2 --out "$name-more"
  awk -v fresh="$fresh" -v more="$(first_loss)" 'BEGIN { exit !(more + 0.3 < fresh) }' ||
    { echo "$name from a folder begins with loss $(first_loss), a fresh one with $fresh"; failed=1; }
  expect "ranks and the standard input" 2 "--prompt-file -: ranks have no standard input" "$mslua" generate "$recipe" \
    --preset smoke data_path=text --ckpt "$name" --prompt-file - -n 2
  expect "no folder of $name" 2 "nowhere: there is no such folder" "$mslua" train "$recipe" --preset smoke \
    data_path=text weights=nowhere
done

# --- several ranks share the texts: the same tokens, greedy and drawn
expect moe_gpt 0 "" "$mslua" train "$recipes/moe_gpt.lua" --preset smoke data_path=text --out moe_gpt
for name in gpt2 llama moe_gpt; do
  for how in "--temperature 0 --max-new 256" "--seed 3 --stop e --repetition-penalty 1.3 --max-new 40"; do
    for ranks in 1 2 4; do
      "$mslua" generate "$recipes/$name.lua" --preset smoke data_path=text --ckpt "$name" --prompt the --texts 3 \
        --json $how -n $ranks >"texts.$ranks" 2>texts.errors || { cat texts.errors; failed=1; }
    done
    [ "$(wc -l <texts.1)" = 3 ] && cmp texts.1 texts.2 && cmp texts.1 texts.4 ||
      { echo "generate $name $how: other tokens on 2 or 4 ranks"; failed=1; }
  done
done

# --- experts on ranks that share batches or operators: the losses of one rank with the whole batch
losses() { printf '%s\n' "$got" | awk '/loss is/ { print $NF }'; }
expect "experts on one rank" 0 "loss" "$mslua" train "$recipes/moe_gpt.lua" --preset smoke data_path=text \
  batch_size=24 --max-steps 4 --out moe1
losses >losses.1
for mode in semi_auto_parallel auto_parallel; do
  expect "experts in $mode" 0 "loss" "$mslua" train "$recipes/moe_gpt.lua" --preset smoke data_path=text -n 2 \
    parallel.parallel_mode=$mode --max-steps 4 --out moe2
  losses | paste losses.1 - | awk '{ d = $1 - $2; if (d < -1e-5 || d > 1e-5) bad = 1 } END { exit bad || NR != 4 }' ||
    { echo "experts in $mode: losses $(losses | xargs), on one rank $(xargs <losses.1)"; failed=1; }
done
exit $failed
