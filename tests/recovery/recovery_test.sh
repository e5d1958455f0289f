#!/bin/sh
# Jobs that start again: every start, every victim, once; what ends a job all the same.
. tests/ranks/common.sh
chaos=$here/tests/recovery/chaos
recipe=$here/tests/recovery/lenet.lua

# Its only process dies once.
cat > alone.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.d = nn.Dense(2, 1) end
function Net:construct(x) return self.d(x) end
local Once = ms.Callback:extend "Once"
function Once:on_train_step_end(run)
  local mark = io.open("killed", "r")
  if run.step ~= 9 or mark then return end
  io.open("killed", "w"):close()
  os.execute "kill -9 $PPID"
end
return ms.recipe {
  name = "alone", network = function() return Net() end, loss = nn.MSELoss(), callbacks = { Once() },
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ ms.rand { 20, 2 }, ms.rand { 20, 1 } }, { "x", "y" }):batch(1)
  end,
  optimizer = nn.SGD { learning_rate = 0.1 }, train = { epochs = 1 },
}
LUA

# Starters that take half a minute each, beside the other tests: each with its own folders for files and for sockets.
# aside NAME: mslua again -- ./NAME.sh, the output in aside/NAME/out.txt and the exit code in aside/NAME/code.txt.
aside() {
  mkdir -p "aside/$1" "$TMPDIR/$1"
  cp alone.lua "aside/$1/"
  cat > "aside/$1/$1.sh"
  chmod +x "aside/$1/$1.sh"
  (cd "aside/$1" && TMPDIR=$TMPDIR/$1 && "$mslua" again -- "./$1.sh" > out.txt 2>&1; echo $? > code.txt) &
}
# One that does not end when its ranks have died, as mpirun now and then, and leaves a process.
aside hangs <<SH
#!/bin/sh
"$mslua" train alone.lua --out hangs
[ \$? -lt 128 ] && exit 0
trap "" TERM
sleep 1000
SH
hangs=$!
# What it does when its ranks have ended in order is its own business.
aside late <<SH
#!/bin/sh
touch killed
"$mslua" train alone.lua --out late
sleep 33
exit 9
SH
late=$!

# holds MODE VICTIMS [flags]: whenever the kill comes, the job ends as uninterrupted.
holds() {
  mode=$1 victims=$2
  shift 2
  run "$chaos" "$mslua" --mode "$mode" --victims "$victims" --ranks 2 --set epochs=2 --set samples=512 "$@"
  expect "$mode $victims" 0 "recovered and equal"
}
holds native rank --trials 2
holds native all --trials 1
holds native launcher --trials 1
holds native keeper --trials 2
# Memory that --config=guarded guards is not protected as well.
[ -n "$MSLUA_GUARD_MEMORY" ] || holds native scribble --trials 2
holds cluster rank --trials 1
holds cluster scheduler --trials 1
holds cluster keeper --trials 1
command -v mpirun > /dev/null && holds mpirun rank --trials 1

# What a trial that does not hold has printed can be read.
cat > fails.sh <<SH
#!/bin/sh
[ -e started ] && { echo "no second time"; exit 3; }
touch started
exec "$mslua" "\$@"
SH
chmod +x fails.sh
holds_not="a trial that does not hold"
run "$chaos" ./fails.sh --ranks 1 --trials 1 --set epochs=1 --set samples=64
expect "$holds_not" 1 "trial 0 of seed 1: exit codes {'job': 3}"
expect "$holds_not" 1 "  | no second time"

# Each program here says what it takes.
for program in chaos disks elastic endurance networks; do
  run "$here/tests/recovery/$program" --help
  expect "$program --help" 0 "usage: $program MSLUA"
done

# The same failure three times ends the job with it.
run "$mslua" train "$recipe" -n 2 --recover --out loop dies=7
expect "a loop" 5 "3 times in the same way"
expect "a loop" 5 "was killed by signal 9"
run "$mslua" train "$recipe" -n 2 --recover --max-restarts 1 --out limit dies=7
expect "a limit" 5 "--max-restarts"
[ "$(echo "$out" | grep -c "the job has started again")" = 1 ] || { echo "a limit: said twice: $out"; failed=1; }
count "a limit" 1 "the job starts again"

# What would come back ends the job at once.
echo 'error "boom"' > bad.lua
run "$mslua" train bad.lua -n 2 --recover
expect "a recipe's error" 2 "boom"
refuse "a recipe's error" "starts again"

# One rank starts again too.
run "$mslua" train alone.lua --recover --out alone
expect "one rank" 0 "the job starts again (1)"
expect "one rank" 0 "resuming from memory at step"
run grep -c "^epoch" alone/rank_0.log
expect "one rank's log" 0 20
run cat alone/events.jsonl
expect "one rank's recovery" 0 '"epoch":2,"ranks":1,"from":"memory","again":'
expect "one rank's recovery" 0 '"cause":"rank 0/1'
count "one rank's recovery" 1 '"event":"recovery"'

# A callback has ended the training, and a rank dies before the job has ended: it trains no step more.
rm killed
cat > stops.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.d = nn.Dense(2, 1) end
function Net:construct(x) return self.d(x) end
local Stops = ms.Callback:extend "Stops"
function Stops:on_train_step_end(run)
  os.execute "sleep 0.005"
  if run.step == 9 and ms.communication.get_rank() == 1 then run.stop() end
end
function Stops:on_train_end()
  if ms.communication.get_rank() ~= 1 or io.open("killed", "r") then return end
  io.open("killed", "w"):close()
  os.execute "kill -9 $PPID"
end
return ms.recipe {
  name = "stops", network = function() return Net() end, loss = nn.MSELoss(), callbacks = { Stops() },
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ ms.rand { 40, 2 }, ms.rand { 40, 1 } }, { "x", "y" }):batch(1)
  end,
  optimizer = nn.SGD { learning_rate = 0.1 }, train = { epochs = 1 },
  parallel = { parallel_mode = "data_parallel" },
}
LUA
run "$mslua" train stops.lua -n 2 --recover --out stops
expect "a training that was to end" 0 "the job starts again (1)"
run grep -c "^epoch" stops/rank_0.log
expect "the log of a training that was to end" 0 9

# The best checkpoint is there before the evaluation counts: a process that dies then does not know it as saved.
rm killed
cat > best.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.a, self.b = nn.Dense(2048, 16384), nn.Dense(16384, 1) end
function Net:construct(x) return self.b(self.a(x)) end
local Dies = ms.Callback:extend "Dies"
function Dies:on_train_step_begin(run)
  if run.epoch ~= 2 or io.open("killed", "r") then return end
  io.open("killed", "w"):close()
  os.execute "kill -9 $PPID"
end
local function data()
  return ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2048 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
end
return ms.recipe {
  name = "best", network = function() return Net() end, loss = nn.MSELoss(), callbacks = { Dies() },
  dataset = data, eval_dataset = data, eval = { metrics = { "loss" } },
  optimizer = nn.SGD { learning_rate = 0 }, train = { epochs = 3 },
  checkpoint = { save_checkpoint_steps = 100, async_save = true },
}
LUA
run "$mslua" train best.lua --recover --out best
expect "a best checkpoint" 0 "the job starts again (1)"
expect "a best checkpoint" 0 "resuming from memory at step 2"
run ls best/ckpt/best
expect "a best checkpoint" 0 "best-1_2.ckpt"

# Of a run that has only a best checkpoint when it starts again, the next best one takes its place.
cat > better.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.d = nn.Dense(2, 1) end
function Net:construct(x) return self.d(x) end
local Dies = ms.Callback:extend "Dies"
function Dies:on_train_step_begin(run)
  if run.epoch ~= 2 or ms.communication.get_rank() ~= 0 or io.open("killed", "r") then return end
  io.open("killed", "w"):close()
  os.execute "kill -9 $PPID"
end
local function data()
  return ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(1)
end
return ms.recipe {
  name = "better", network = function() return Net() end, loss = nn.MSELoss(), callbacks = { Dies() },
  dataset = data, eval_dataset = data, eval = { metrics = { "loss" } },
  optimizer = nn.SGD { learning_rate = 0.01 }, train = { epochs = 3 },
  parallel = { parallel_mode = "data_parallel" },
  checkpoint = { save_checkpoint_steps = 100 },
}
LUA
# better FOLDER LAST FLAGS...: what is left in ckpt/best is of step LAST.
better() {
  rm -f killed
  folder=$1 last=$2
  shift 2
  run "$mslua" train better.lua --out "$folder" "$@"
  expect "only a best checkpoint, $*" 0 "the job starts again (1)"
  said=$out
  out=$(ls "$folder/ckpt/best")
  [ "$out" = "better-3_$last.ckpt" ] || fail "the best checkpoint, $*: $out"
}
better better1 12 --recover
better better2 6 --recover -n 2
better better3 12 --recover=disk
out=$said
expect "a best checkpoint from disk" 0 "resuming from better3/ckpt/best/better-1_4.ckpt at step 4"

# A checkpoint that is being written in the background when its process dies is there in the end.
rm -f killed
sed 's/save_checkpoint_steps = 100/save_checkpoint_steps = 2/; s/ eval_dataset = data.*$//' best.lua > saving.lua
run "$mslua" train saving.lua --recover --out saving
expect "a save that is interrupted" 0 "the job starts again (1)"
expect "a save that is interrupted" 0 "resuming from memory at step 2"
run ls saving/ckpt
count "checkpoints of a save that is interrupted" 3 "best-"
run "$mslua" ckpt verify saving/ckpt/best-1_2.ckpt
expect "a checkpoint whose save was interrupted" 0 ""

# A rank that crashes leaves a report, which the message names.
rm killed
sed 's/os.execute "kill.*/require("ffi").cast("int*", 0)[0] = 1/' alone.lua > crash.lua
run "$mslua" train crash.lua --recover --out crash
expect "a crash" 0 "was killed by signal 11 (Segmentation fault); backtrace in "
expect "a crash" 0 "/crash/rank_0.crash: the job starts again (1)"
run cat crash/rank_0.crash
expect "the report of a crash" 0 "crashed: signal 11 (Segmentation fault) at address 0x0, after step 9"
expect "the report of a crash" 0 "#0 0x"
run cat crash/events.jsonl
expect "the recovery of a crash" 0 "backtrace in"

# From checkpoints alone, in the run folder that the first attempt has made.
rm killed
sed 's/train = {/checkpoint = { save_checkpoint_steps = 4 }, train = {/' alone.lua > disk.lua
run "$mslua" train disk.lua --recover=disk
expect "from disk" 0 "resuming from"
refuse "from disk" "from memory"
run sh -c 'cat runs/*/rank_0.log | grep -c "^epoch"'
expect "the log of a run from disk" 0 20

# Steps in between are progress, though no checkpoint has them. At one step three times is the end.
later='5 + tonumber(os.getenv "MSLUA_RESTARTS" or 0) % 4'
sed "s/run.step ~= 9 or mark/run.step ~= $later or run.step == 8/" disk.lua > later.lua
run "$mslua" train later.lua --recover=disk --out later
expect "a rank that dies at a later step each time" 0 "the job starts again (3)"
run grep -c "^epoch" later/rank_0.log
expect "the log of a rank that dies at a later step each time" 0 20
sed 's/run.step ~= 9 or mark/run.step ~= 7/' disk.lua > same.lua
run "$mslua" train same.lua --recover=disk --out same
expect "a rank that dies at one step each time" 5 "3 times in the same way"

# From the beginning, where nothing is left: the log has each step once all the same.
rm killed
run "$mslua" train alone.lua --recover=disk --out begin
expect "from the beginning" 0 "the job starts again (1)"
refuse "from the beginning" "earlier training"
run grep -c "^epoch" begin/rank_0.log
expect "the log of a run from the beginning" 0 20

# Faults that are asked for.
run env MSLUA_FAULT=abort@rank=1,step=5 "$mslua" train "$recipe" -n 2 --recover --out aborts
expect "a rank that aborts each time" 5 "3 times in the same way"
run env MSLUA_FAULT=scribble@rank=0,step=5 "$mslua" train "$recipe"
expect "a scribble without recovery" 2 "scribble is for a job that resumes from memory"
run env MSLUA_GUARD_MEMORY=1 MSLUA_FAULT=scribble@rank=0,step=5 "$mslua" train "$recipe" --recover --out guarded
expect "a scribble over guarded memory" 2 "scribble is for the memory that a job resumes from"
run env MSLUA_FAULT=melt@rank=0,step=5 "$mslua" train "$recipe"
expect "an unknown fault" 2 "MSLUA_FAULT: expected abort@rank=R,step=S"
run env MSLUA_FAULT=abort@rank=1,step=5 "$mslua" train "$recipe"
expect "a fault of no rank" 2 "there is no rank 1 of 1"

run env MS_ENABLE_RECOVERY=1 "$mslua" train "$recipe"
expect "MindSpore's variable" 4 "use mslua train --recover"
# Rank 0 has left, and has taken its running statistics out of memory, when rank 1 dies: the last checkpoint has them.
if command -v mpirun > /dev/null; then
  rm -f killed
  cat > leaves.lua <<'LUA'
local ms = require "mslua"
local nn = ms.nn
local Net = nn.Cell:extend "Net"
function Net:init() self.norm, self.d = nn.BatchNorm1d(2), nn.Dense(2, 1) end
function Net:construct(x) return self.d(self.norm(x)) end
local Dies = ms.Callback:extend "Dies"
function Dies:on_train_end()
  if ms.communication.get_rank() ~= 1 or io.open("killed", "r") then return end
  io.open("killed", "w"):close()
  os.execute "kill -9 $PPID"
end
return ms.recipe {
  name = "leaves", network = function() return Net() end, loss = nn.MSELoss(), callbacks = { Dies() },
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ ms.rand { 20, 2 }, ms.rand { 20, 1 } }, { "x", "y" }):batch(2)
  end,
  optimizer = nn.SGD { learning_rate = 0.1 }, train = { epochs = 1 }, checkpoint = { save_checkpoint_steps = 1 },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
}
LUA
  cat > drop.py <<'PY'
import glob, os, socket
path, = glob.glob(os.environ["TMPDIR"] + "/mslua-*/meet-images-*/socket")
keeper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
keeper.connect(path)
for name in b"training0.rank0.generation1", b"newest.rank0":
    keeper.send(b"drop " + name)
    assert keeper.recv(100) == b"done"
PY
  cat > leaves.sh <<SH
#!/bin/sh
mpirun --oversubscribe --allow-run-as-root -n 2 "$mslua" train leaves.lua --out leaves
code=\$?
[ \$code = 0 ] || python3 drop.py || exit 3
exit \$code
SH
  chmod +x leaves.sh
  run "$mslua" again -- ./leaves.sh
  expect "statistics that have left" 0 "resuming from leaves/ckpt/leaves-1_5.ckpt at step 5"
  refuse "statistics that have left" "running statistics"
fi

# The two starters that begin before the rest.
wait $hangs
out=$(cat aside/hangs/out.txt) code=$(cat aside/hangs/code.txt)
expect "a starter that hangs" 0 "./hangs.sh continued for 30s after its ranks had died, and was ended"
expect "a starter that hangs" 0 "the job starts again (1)"
expect "a starter that hangs" 0 "resuming from memory at step"
run grep -c "^epoch" aside/hangs/hangs/rank_0.log
expect "the log of a starter that hangs" 0 20
wait $late
out=$(cat aside/late/out.txt) code=$(cat aside/late/code.txt)
expect "a starter that does more" 9 ""
refuse "a starter that does more" "was ended"

# Under nohup a terminal that is closed is no request to stop.
cat > hangup.sh <<'SH'
#!/bin/sh
echo start >> hangup.txt
[ "$(grep -c start hangup.txt)" = 2 ] && exit 0
kill -HUP $PPID
exit 137
SH
chmod +x hangup.sh
run sh -c 'trap "" HUP; exec "$0" again -- ./hangup.sh' "$mslua"
expect "a closed terminal under nohup" 0 "the job has started again 1 time"

run "$mslua" again -- no-such-program
expect "no program" 4 "cannot start no-such-program"
run "$mslua" again -- sh -c 'exit 3'
expect "a code that would come back" 3 ""

no_leftovers "at the end"
for one in hangs late; do (TMPDIR=$TMPDIR/$one && no_leftovers "$one" && exit "$failed") || failed=1; done

# Two jobs of one command would take the memory of each other.
set -- train "$recipe" -n 2 --recover epochs=200 nap=0.05
"$mslua" "$@" > first.txt 2>&1 &
first=$!
until grep -q "run folder" first.txt 2> /dev/null || ! kill -0 $first; do sleep 0.1; done
run "$mslua" "$@"
expect "a command that runs already" 2 "this command runs in this folder already"
kill -TERM $first
wait $first

finish
