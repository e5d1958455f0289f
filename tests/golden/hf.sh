#!/bin/sh
# A family's folders, read and written, against PyTorch's numbers: hf.sh MSLUA hf.lua hf.py FAMILY GOLDEN.json
set -eu
mslua=$1 script=$2 writer=$3 family=$4 golden=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$writer" write "$family" "$work/one"
python3 "$writer" write "$family" "$work/two" --shards --bf16 --old
for folder in one two; do
  for mode in f64 f32; do
    rm -rf "$work/out"
    mkdir "$work/out"
    "$mslua" run "$script" -- "$golden" "$work/$folder" "$work/out" "$mode"
  done
done
