#!/bin/sh
# A rank that dies, stops, errs, ends early or diverges: all ranks stop, the first cause is named once, nothing is left.
# Limits are ten times what it takes, so that a hang fails and a slow machine does not.
. "$(dirname "$0")/common.sh"

cat > loop.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
local rank = ms.communication.get_rank()
local x = ms.ones({ 1000 }, ms.float32)
io.stderr:write("ready\n")
for step = 1, 1e9 do
  x = ms.ops.AllReduce(ms.ops.ReduceOp.MAX)(x)
  if FAULT then FAULT(rank, step, x) end
end
LUA
# fault NAME CODE TEXT LUA: the loop on 3 ranks with FAULT = LUA.
fault() {
  { echo "local FAULT = $4"; cat loop.lua; } > "fault.lua"
  start=$(date +%s)
  run timeout -s KILL 60 "$mslua" run fault.lua -n 3
  took=$(($(date +%s) - start))
  expect "$1" "$2" "$3"
  count "$1" 1 "mslua: error["
  [ "$took" -le 30 ] || fail "$1: took $took s"
  no_leftovers "$1"
}
# killed NAME SIGNAL CODE TEXT: the same, SIGNAL to rank 1.
killed() {
  { echo "local FAULT = nil"; cat loop.lua; } > "fault.lua"
  rm -f out.txt
  timeout -s KILL 60 "$mslua" run fault.lua -n 3 > out.txt 2>&1 &
  launcher=$!
  tries=0
  while [ "$(cat out.txt 2> /dev/null | grep -c ready)" -lt 3 ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill "-$2" $(ours 1)
  start=$(date +%s)
  wait "$launcher"
  code=$?
  took=$(($(date +%s) - start))
  out=$(cat out.txt)
  expect "$1" "$3" "$4"
  count "$1" 1 "mslua: error["
  [ "$took" -le 30 ] || fail "$1: took $took s"
  no_leftovers "$1"
}

fault "Lua error" 2 "fault.lua:1: boom" 'function(rank, step) if rank == 1 and step == 50 then error "boom" end end'
expect "Lua error" 2 "mslua: error[2] rank 1/3 (pid "
count "Lua error" 2 "stopped because rank 1 failed (2)"
fault "divergent collective" 6 "all_gather f32[1000] at fault.lua:1" \
  'function(rank, step, x) if rank == 1 and step == 50 then require("mslua").ops.AllGather()(x) end end'
fault "os.exit" 5 "has ended with exit code 0" \
  'function(rank, step) if rank == 1 and step == 50 then os.exit(0) end end'
killed "kill -9" KILL 5 "was killed by signal 9 (Killed)"
killed "kill -STOP" STOP 6 "was stopped by a signal"

# Some ranks call a collective that the others do not: they are at the end of the script.
cat > early.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
if ms.communication.get_rank() == 0 then
  ms.ops.AllReduce()(ms.ones({ 3 }, ms.float32))
end
LUA
run timeout -s KILL 60 "$mslua" run early.lua -n 3
expect "ends early" 6 "all_reduce sum f32[3] at early.lua:4"
expect "ends early" 6 "barrier at the end of early.lua"
count "ends early" 1 "mslua: error["
no_leftovers "ends early"

cat > differs.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
local n = ms.communication.get_rank() == 1 and 4 or 3
ms.ops.AllReduce()(ms.ones({ n }, ms.float32))
LUA
run timeout -s KILL 60 "$mslua" run differs.lua -n 2
expect "differs" 6 "all_reduce sum f32[3] at differs.lua:4"
expect "differs" 6 "f32[4]"
no_leftovers "differs"

# A rank that is busy with something else for too long.
cat > busy.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
if ms.communication.get_rank() == 1 then while true do end end
ms.ops.AllReduce()(ms.ones({ 3 }, ms.float32))
LUA
run timeout -s KILL 60 "$mslua" run busy.lua -n 2 --hang-timeout 2
expect "busy" 6 "all_reduce sum f32[3] at busy.lua:4: no answer within 2s; 1 of 2 ranks have come, missing: rank 1"
count "busy" 1 "mslua: error["
no_leftovers "busy"

# One rank never joins.
cat > alone.lua <<'LUA'
local ms = require "mslua"
if os.getenv "MSLUA_RANK" ~= "1" then ms.communication.init() end
LUA
run timeout -s KILL 60 "$mslua" run alone.lua -n 2
expect "no init" 6 "rank 1/2 (pid "
expect "no init" 6 "has finished, and others wait for it (ms.communication.init)"
no_leftovers "no init"

# A mistake that all ranks make is reported once.
echo 'error "all wrong"' > wrong.lua
run timeout -s KILL 60 "$mslua" run wrong.lua -n 3
expect "all err" 2 "wrong.lua:1: all wrong"
count "all err" 1 "all wrong"

# by_hand NAME SIGNAL CODE TEXT: the loop by a scheduler and two workers without a launcher; SIGNAL to one of them.
by_hand() {
  { echo "local FAULT = nil"; cat loop.lua; } > "fault.lua"
  rm -f first.txt second.txt
  new_port
  export MS_WORKER_NUM=2 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$port
  "$mslua" sched > sched.txt 2>&1 &
  scheduler=$!
  MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" run fault.lua > first.txt 2>&1 &
  first=$!
  MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" run fault.lua > second.txt 2>&1 &
  second=$!
  tries=0
  while [ "$(cat first.txt second.txt 2> /dev/null | grep -c ready)" -lt 2 ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill "-$2" "$second"
  wait "$first"
  code=$? out=$(cat first.txt)
  expect "$1" "$3" "mslua: stopped because rank 1 failed ($3): rank 1/2 (pid $second, host"
  expect "$1" "$3" "$4"
  wait "$scheduler"
  code=$? out=$(cat sched.txt)
  expect "$1, scheduler" "$3" "$4"
  kill -KILL "$second" 2> /dev/null
  wait "$second" 2> /dev/null
  unset MS_WORKER_NUM MS_SCHED_HOST MS_SCHED_PORT
  no_leftovers "$1"
}
by_hand "kill -9 of a worker" KILL 5 "has ended without leaving the job"
by_hand "kill -STOP of a worker" STOP 6 "has given no sign of life for 2.5s"

# The launcher dies: so do its ranks.
{ echo "local FAULT = nil"; cat loop.lua; } > "fault.lua"
rm -f out.txt
"$mslua" run fault.lua -n 2 > out.txt 2>&1 &
launcher=$!
tries=0
while [ "$(cat out.txt 2> /dev/null | grep -c ready)" -lt 2 ] && [ $tries -lt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null
tries=0
while [ -n "$(ours)" ] && [ $tries -lt 100 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
no_leftovers "launcher killed"
# The records of a training have the failure, not what it has done to other ranks.
cat > trains.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Fails = ms.Callback:extend "Fails"
function Fails:on_train_step_end(run)
  if run.global_step == 3 and ms.communication.get_rank() == 1 then error "boom" end
end
return ms.recipe {
  name = "trains", network = function() return nn.Dense(2, 1) end, loss = nn.MSELoss(), callbacks = { Fails() },
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ ms.rand { 80, 2 }, ms.rand { 80, 1 } }, { "x", "y" }):batch(1)
  end,
  optimizer = nn.SGD { learning_rate = 0.1 }, train = { epochs = 1 }, parallel = { parallel_mode = "data_parallel" },
}
LUA
run timeout -s KILL 60 "$mslua" train trains.lua -n 2 --out fails
expect "a callback that fails" 2 "boom"
run cat fails/outcome.json
expect "the cause of a failed training" 0 "boom"
run cat fails/rank_0.log
expect "the log of a rank that was stopped" 0 "mslua: stopped because rank 1 failed (2): "

finish
