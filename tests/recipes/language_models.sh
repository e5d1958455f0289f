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
  expect "no folder of $name" 2 "nowhere: there is no such folder" "$mslua" train "$recipe" --preset smoke \
    data_path=text weights=nowhere
done
exit $failed
