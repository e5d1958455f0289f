#!/bin/sh
# Ranks and schedulers that are stopped, killed or asked to end, where no launcher watches them, and a launcher whose
# output nobody reads. Limits are far above what it takes, so that a hang fails and a slow machine does not.
. "$(dirname "$0")/common.sh"
recipe=$here/tests/ranks/tiny.lua
limit=60

# until_said FILE TEXT: waits until the file has it.
until_said() {
  tries=0
  while ! grep -qs -- "$2" "$1" && [ $tries -lt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  [ $tries -lt 600 ] || fail "'$2' never came: $(cat "$1")"
}

# pair NAME: rank 0, which runs the scheduler too, and rank 1, which train for long.
pair() {
  new_port
  for r in 0 1; do
    RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL $limit \
      "$mslua" train "$recipe" --out "$1" epochs=10000000 --log-every epoch $2 > "$1_$r.txt" 2>&1 &
    eval "pid_$r=$!"
  done
  until_said "$1_0.txt" "loss is"
  rank_0=$(pgrep -P "$pid_0")
}

pair stopped ""
kill -STOP "$rank_0"
wait "$pid_1"
code=$? out=$(cat stopped_1.txt)
expect "rank 0 stopped" 6 "rank 0 (pid $rank_0, host"
expect "rank 0 stopped" 6 "has given no sign of life for 2.5s"
kill -KILL "$rank_0"
wait "$pid_0" 2> /dev/null

pair killed ""
kill -KILL "$rank_0"
wait "$pid_1"
code=$? out=$(cat killed_1.txt)
expect "rank 0 killed" 5 "mslua: stopped because rank 0 failed (5): rank 0 (pid $rank_0, host"
expect "rank 0 killed" 5 "has ended without leaving the job"
wait "$pid_0" 2> /dev/null

# As long as a debugger holds a rank, say.
pair held "--heartbeat-timeout 50"
kill -STOP "$rank_0"
sleep 4
kill -CONT "$rank_0"
kill -INT "$rank_0"
wait "$pid_1"
code=$? out=$(cat held_1.txt)
expect "--heartbeat-timeout" 75 "" # rank 0 alone was interrupted; both have saved
wait "$pid_0"
no_leftovers "pairs"

# cluster NAME SIGNAL CODE: a scheduler that gets the signal while its workers train. They save and end; it ends as they
# do.
cluster() {
  new_port
  export MS_WORKER_NUM=2 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$port
  timeout -s KILL $limit "$mslua" sched > "$1.txt" 2>&1 &
  scheduler=$!
  for r in 0 1; do
    MS_ROLE=MS_WORKER MS_NODE_ID=$r timeout -s KILL $limit "$mslua" train "$recipe" --out "$1" epochs=10000000 \
      --log-every epoch > "$1_$r.txt" 2>&1 &
    eval "pid_$r=$!"
  done
  until_said "$1_0.txt" "loss is"
  kill "-$2" "$(pgrep -P $scheduler)"
  for r in 0 1; do
    eval "wait \$pid_$r"
    code=$? out=$(cat "$1_$r.txt")
    expect "$1, rank $r" "$3" ""
  done
  wait "$scheduler"
  code=$? out=$(cat "$1.txt")
  expect "$1, scheduler" "$3" ""
  ls -d "$1"/ckpt/*.ckpt > /dev/null || fail "$1: no checkpoint"
  unset MS_WORKER_NUM MS_SCHED_HOST MS_SCHED_PORT
  no_leftovers "$1"
}
cluster sigterm TERM 75
cluster sigint INT 130
cluster sighup HUP 75

# A launcher whose output nobody reads still hears that it is to end.
cat > chatty.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
local line = ("x"):rep(1000)
while true do print(line) end
LUA
mkfifo unread
sleep $limit < unread &
reader=$!
timeout -s KILL $limit "$mslua" run chatty.lua -n 2 > unread 2> chatty.txt &
launcher=$!
until_said chatty.txt "rank 0 of 2"
sleep 2
kill -TERM "$(pgrep -P $launcher)"
wait "$launcher"
code=$? out=$(cat chatty.txt)
expect "nobody reads" 130 "stopping; once more to stop at once"
kill "$reader"
no_leftovers "nobody reads"

# Who reads late gets all lines, also those that are still in the pipe of a rank that has ended: a little more than the
# launcher keeps, and a pipe takes.
cat > lines.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
if ms.communication.get_rank() > 0 then return end
for i = 1, tonumber(arg[1]) do print(("line %06d %s"):format(i, ("x"):rep(90))) end
LUA
for lines in 11000 11150; do
  run sh -c 'timeout -s KILL "$1" "$0" run lines.lua -n 2 -- "$2" 2> /dev/null | { sleep 2; wc -l; }' \
    "$mslua" $limit $lines
  expect "$lines lines that are read late" 0 "$lines"
done

# The cause comes before mpirun ends the others, and only once.
cat > boom.lua <<'LUA'
local ms = require "mslua"
ms.communication.init()
local x = ms.ones({ 10 }, ms.float32)
for step = 1, 1e9 do
  x = ms.ops.AllReduce(ms.ops.ReduceOp.MAX)(x)
  if ms.communication.get_rank() == 2 and step == 50 then error "boom" end
end
LUA
for i in 1 2 3; do
  run timeout -s KILL $limit mpirun --allow-run-as-root --oversubscribe -n 4 "$mslua" run boom.lua
  count "cause under mpirun" 1 "boom.lua:6: boom"
  count "cause under mpirun" 1 "mslua: error[2] rank 2/4 (pid "
done

# A script that a signal ends: `run` has no --resume.
cat > stops.lua << 'LUA'
local ms = require "mslua"
local nn = ms.nn
local data = ms.dataset.NumpySlicesDataset({ ms.ones { 64, 3 }, ms.zeros { 64, 2 } }):batch(4)
local model = ms.Model(nn.Dense(3, 2), { loss_fn = nn.MSELoss(), optimizer = nn.Adam { learning_rate = 0.0001 } })
local config = ms.CheckpointConfig { save_checkpoint_steps = 100000000 }
model:train(100000000, data, {
  callbacks = { ms.ModelCheckpoint { directory = "stops", config = config }, ms.LossMonitor(1000) },
})
LUA
timeout -s KILL $limit "$mslua" run stops.lua > stops.txt 2>&1 &
script=$!
until_said stops.txt "loss is"
kill -TERM "$(pgrep -P "$script")"
wait "$script"
code=$? out=$(tail -5 stops.txt)
expect "a script is stopped" 75 'ms.load_checkpoint("stops/'
refuse "a script is stopped" "--resume"
finish
