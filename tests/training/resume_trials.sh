#!/bin/sh
# Random trainings (1 to 4 ranks, every parallel mode) that are killed (-9) one to three times at random moments, the
# launcher or one rank, and resumed: each loss of each step and all values of the last checkpoint have the bits of the
# uninterrupted run. usage: resume_trials.sh MSLUA [--seed=1] [--trials=100] [--only=DRAW] [--own-directories]
# --own-directories: each rank saves into a directory of its own.
set -u
case $1 in /*) mslua=$1 ;; *) mslua=$PWD/$1 ;; esac
recipe=$(cd "$(dirname "$0")" && pwd)/resume_trials.lua
shift
seed=1 trials=100 only= own=false
for argument in "$@"; do
  case $argument in
    --seed=*) seed=${argument#*=} ;;
    --trials=*) trials=${argument#*=} ;;
    --only=*) only=${argument#*=} ;;
    --own-directories) own=true ;;
    *) echo "unknown argument '$argument'" >&2; exit 2 ;;
  esac
done
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
work=$(mktemp -d /tmp/mslua-trials-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
unset XDG_RUNTIME_DIR
cd "$work" || exit 1

# random DRAW K FROM TO: the K-th number of a draw, the same for the same arguments.
random() { awk -v s="$1$2" -v a="$3" -v b="$4" 'BEGIN { srand(s); rand(); print a + int(rand() * (b - a + 1)) }'; }

# Pauses for so many milliseconds.
pause() { sleep "$(awk -v ms="$1" 'BEGIN { printf "%.3f", ms / 1000 }')"; }

# start NAME EXTRA...: a training in the background, its process in $launcher.
start() {
  name=$1
  shift
  ranks=
  [ "$n" = 1 ] || ranks="-n $n"
  "$mslua" train "$recipe" draw="$draw" mode="$mode" own=$own out="$work/$name.losses" --out "$work/$name" \
    --no-attach $ranks "$@" > "$name.txt" 2>&1 &
  launcher=$!
}

# The launcher and its ranks.
family() { echo "$launcher $(pgrep -P "$launcher" | tr '\n' ' ')"; }

running() { kill -0 "$1" 2> /dev/null && ! grep -q '^State:.*Z' "/proc/$1/status" 2> /dev/null; }

# gone PIDS: waits until none of them is left.
gone() {
  for pid in $1; do
    while running "$pid"; do sleep 0.02; done
  done
}

# Steps that rank 0 of the runs that are killed has made, those made again included.
made_steps() {
  if [ -f broken.losses.0 ]; then wc -l < broken.losses.0; else echo 0; fi
}

# Where the checkpoints of rank $1 of a run are, below its folder.
place() { if $own; then echo "ckpt/rank_$1"; else echo ckpt; fi; }

# Whether each rank of the run that is killed has a checkpoint.
has_checkpoints() {
  r=0
  while [ "$r" -lt "$n" ]; do
    [ -n "$(ls -d "broken/$(place $r)"/t*.ckpt 2> /dev/null)" ] || return 1
    r=$((r + 1))
  done
}

# One draw: 0 when the resumed run has the bits of the uninterrupted one.
trial() {
  draw=$1
  rm -rf "${work:?}"/*
  set -- single,1 data,2 data,3 data,4 hybrid,2 hybrid,3 hybrid,4 slices,2 slices,3 pairs,4 semi,2 semi,3 semi,4 \
    auto,2 auto,4 level1,2 level2,3 level3,4 level3,2 pipeline2,2 pipeline2,4 pipeline4,4 pipeline3,3
  shift $(($(random "$draw" 0 1 $#) - 1))
  mode=${1%,*} n=${1#*,}

  start whole
  wait "$launcher" || { echo "draw $draw: the uninterrupted run ended with $?"; tail -5 whole.txt; return 1; }
  sed -n 's/^draw/draw/p' whole.txt | head -1

  kills=$(random "$draw" 1 1 3) resume="" killed=""
  k=0
  while [ "$k" -lt "$kills" ]; do
    k=$((k + 1))
    start broken $resume
    lines=$(made_steps)
    if [ "$(random "$draw" "5$k" 0 5)" = 0 ]; then # while it starts, or early
      pause "$(random "$draw" "2$k" 0 800)"
    else
      target=$((lines + $(random "$draw" "2$k" 1 25)))
      while [ "$(made_steps)" -lt "$target" ] && running "$launcher"; do sleep 0.02; done
      pause "$(random "$draw" "6$k" 0 30)"
    fi
    pids=$(family)
    victim=$launcher
    # Half of the kills hit a rank.
    if [ "$n" -gt 1 ] && [ "$(random "$draw" "3$k" 0 1)" = 1 ]; then
      victim=$(echo "$pids" | awk -v r="$(random "$draw" "4$k" 2 $((n + 1)))" '{ print (r <= NF) ? $r : $1 }')
    fi
    kill -KILL "$victim" 2> /dev/null && killed="$killed $victim"
    wait "$launcher" 2> /dev/null
    gone "$pids"
    # A run that was killed before its first checkpoint begins again.
    resume=
    if has_checkpoints; then resume=--resume; fi
    at="${at:-} $(ls "broken/$(place 0)" 2> /dev/null | sed -n 's/^t.*_\([0-9]*\)\.ckpt$/\1/p' | sort -n | tail -1)"
  done
  start broken $resume
  wait "$launcher" || { echo "draw $draw: the resumed run ended with $?"; tail -5 broken.txt; return 1; }

  r=0
  while [ "$r" -lt "$n" ]; do
    # Steps that were made again have the same loss again. A step whose checkpoint a kill came right after has no line:
    # losses are written after the save.
    sort -u "broken.losses.$r" | sort -s -n > mine
    sort -u "whole.losses.$r" | sort -s -n |
      awk -v at="$at" 'BEGIN { split(at, list); for (i in list) saved[list[i]] = 1 }
        FILENAME == "mine" { made[$1] = 1; next } made[$1] || !saved[$1]' mine - > want
    cmp -s mine want || { echo "draw $draw: losses of rank $r differ (killed after checkpoint$at):"
      diff want mine | head -4; return 1; }
    steps=$(sort -u "whole.losses.$r" | wc -l)
    [ "$steps" = 60 ] || { echo "draw $draw: $steps steps, expected 60"; return 1; }
    r=$((r + 1))
  done
  for run in whole broken; do
    "$mslua" ckpt merge "$work/$run/$(place 0)" "$work/$run.safetensors" > merge.txt 2>&1 ||
      { cat merge.txt; return 1; }
  done
  cmp whole.safetensors broken.safetensors || { echo "draw $draw: values of the last checkpoint differ"; return 1; }
}

equal=0 done=0
if [ -n "$only" ]; then seed=$only trials=1; fi
while [ "$done" -lt "$trials" ]; do
  at=
  if trial $((seed + done)); then equal=$((equal + 1)); else echo "  again: --only=$((seed + done))"; fi
  done=$((done + 1))
done
echo "$equal of $trials trials are equal bit for bit"
[ "$equal" = "$trials" ]
