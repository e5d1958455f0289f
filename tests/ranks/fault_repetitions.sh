#!/bin/sh
# kill -9, kill -STOP and errors at random times, 200 jobs of 3 ranks in turn: fault_repetitions.sh MSLUA [JOBS]. Each
# ends within 3 s of the fault with the right code and one cause, and leaves nothing; prints the longest time it took.
. "$(dirname "$0")/common.sh"
jobs=${2:-200}
cat > loop.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
local x = ms.ones({ 1000 }, ms.float32)
io.stderr:write("ready\n")
while true do
  x = ms.ops.AllReduce(ms.ops.ReduceOp.MAX)(x)
  if ms.communication.get_rank() == 1 and io.open "err" then error "boom" end
end
LUA
longest=0
job=0
while [ "$job" -lt "$jobs" ]; do
  rm -f err out.txt
  timeout -s KILL 60 "$mslua" run loop.lua -n 3 > out.txt 2>&1 &
  launcher=$!
  if [ $((job % 4)) != 3 ]; then # the fourth is hit while it starts
    until [ "$(grep -cs ready out.txt)" = 3 ] || ! kill -0 "$launcher" 2> /dev/null; do sleep 0.02; done
  fi
  sleep "0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')"
  victim=$(ours 1)
  start=$(date +%s%N)
  case $((job % 3)) in
    0) kill -KILL $victim 2> /dev/null && wanted=5 ;;
    1) kill -STOP $victim 2> /dev/null && wanted=6 ;;
    2) touch err && wanted=2 ;;
  esac
  wait "$launcher"
  code=$?
  took=$((($(date +%s%N) - start) / 1000000))
  [ "$took" -le "$longest" ] || longest=$took
  out=$(cat out.txt)
  [ "$code" = "$wanted" ] || fail "job $job: exit code $code, expected $wanted: $out"
  [ "$(grep -c 'mslua: error\[' out.txt)" = 1 ] || fail "job $job: not one cause: $out"
  [ "$took" -le 3000 ] || fail "job $job: took $took ms: $out"
  no_leftovers "job $job"
  job=$((job + 1))
done
echo "$jobs jobs, the longest took $longest ms from the fault to the end"
finish
