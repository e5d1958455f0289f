#!/usr/bin/env python3
"""train.reduce_lr_on_plateau: one rate on all ranks, and the same after resuming: plateau_test.py MSLUA"""
import json
import os
import shutil
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "plateau_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)
RECIPE = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { monitor = "eval_loss", every_steps = 0, least = 0.0, rate = 0.5, stops = false, kill = "",
  hard = 0 }
local function rows()
  ms.set_seed(3)
  local x, y = ms.rand { 64, 4 }, ms.rand { 64, 1 } * (1 + p.hard * ms.communication.get_rank())
  return ms.dataset.NumpySlicesDataset({ x, y }, nil, { shuffle = false,
    num_shards = ms.communication.get_group_size(), shard_id = ms.communication.get_rank() })
    :batch(16 / ms.communication.get_group_size())
end
local Kill = ms.Callback:extend "Kill"
function Kill:on_train_epoch_end(context)
  if p.kill == "" or context.epoch ~= 6 or ms.communication.get_rank() ~= 1 then return end
  local killed = io.open(p.kill)
  if killed then return killed:close() end
  io.open(p.kill, "w"):close()
  os.execute "kill -9 $PPID"
end
return ms.recipe {
  name = "plateau", seed = 5, network = function() return nn.Dense(4, 1) end, dataset = rows, eval_dataset = rows,
  loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = p.rate },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  train = { epochs = 12,
    reduce_lr_on_plateau = { monitor = p.monitor, factor = 0.5, patience = 2, min_delta = 0.01, min_lr = p.least },
    early_stopping = p.stops and { monitor = p.monitor, patience = 1, min_delta = 0.01 } or nil },
  checkpoint = { save_checkpoint_steps = 2, keep_checkpoint_max = 30 },
  eval = { every_steps = p.every_steps }, callbacks = { Kill() },
}
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def run(*words):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, (" ".join(words), done.returncode, done.stdout + done.stderr))
    return done.stdout + done.stderr


def rates(folder):
    """The learning rate of each step."""
    found = {}
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        for line in lines:
            record = json.loads(line)
            if "lr" in record and "loss" in record:
                found[record["step"]] = record["lr"]
    return found


shutil.rmtree(WORK, ignore_errors=True)
os.makedirs(WORK)
os.chdir(WORK)
with open("r.lua", "w") as recipe:
    recipe.write(RECIPE)

for monitor in ["eval_loss", "loss"]:
    one = monitor + "_one"
    output = run("train", "r.lua", "--out", one, "monitor=" + monitor)
    wanted = rates(one)
    check(len(wanted) == 48 and min(wanted.values()) <= 0.125, wanted)
    said = output.count(" has not improved: learning rate ")
    check(said - ("epoch 12: %s has" % monitor in output) == len(set(wanted.values())) - 1, output)
    two = monitor + "_two"
    run("train", "r.lua", "-n", "2", "--out", two, "monitor=" + monitor)
    found = rates(two)
    check(found == wanted, (found, wanted))
    parts = monitor + "_parts"
    run("train", "r.lua", "--out", parts, "--max-steps", "30", "monitor=" + monitor)
    run("train", "r.lua", "--out", parts, "--resume=" + parts + "/ckpt", "monitor=" + monitor)
    check(rates(parts) == wanted, (rates(parts), wanted))
    # In the middle of an epoch, where the losses of rank 1 are larger than those of rank 0.
    for how in [], ["stops=true"]:
        words = ["train", "r.lua", "-n", "2", "hard=3", "rate=0.1", "monitor=" + monitor, *how]
        whole = monitor + "_hard" + "".join(how)
        run(*words, "--out", whole)
        for step in "6", "30":
            run(*words, "--out", whole + step, "--max-steps", step)
            if len(rates(whole + step)) == int(step):
                run(*words, "--out", whole + step, "--resume")
            check(rates(whole + step) == rates(whole), (how, step, rates(whole + step), rates(whole)))
    # The end of an epoch, where what was measured before the checkpoint is judged after it; and others.
    for how in ["every_steps=0"], ["every_steps=2"], ["every_steps=3"], ["least=0.2"], ["stops=true"]:
        whole = "%s_%s" % (monitor, how[0])
        run("train", "r.lua", "--out", whole, "monitor=" + monitor, *how)
        wanted_here = rates(whole)
        if how == ["least=0.2"]:
            check(min(wanted_here.values()) == 0.2, wanted_here)
        if how == ["stops=true"]:
            check(len(wanted_here) < 48, wanted_here)
            run("train", "r.lua", "-n", "2", "--out", whole + "_two", "monitor=" + monitor, *how)
            check(rates(whole + "_two") == wanted_here, (rates(whole + "_two"), wanted_here))
        for step in (s for s in (8, 12, 16, 18) if s <= len(wanted_here)):
            saved = [n for n in os.listdir(whole + "/ckpt") if n.endswith("_%d.ckpt" % step)]
            check(len(saved) == 1, (step, os.listdir(whole + "/ckpt")))
            again = "%s_%d" % (whole, step)
            output = run("train", "r.lua", "--out", again, "--resume=%s/ckpt/%s" % (whole, saved[0]),
                         "monitor=" + monitor, *how)
            check("nan" not in output, output)
            found = rates(again)
            rest = {s: rate for s, rate in wanted_here.items() if s > step}
            check({s: rate for s, rate in found.items() if s > step} == rest, (how, step, found, wanted_here))
    # A rate that rounding leaves above min_lr is not reduced again.
    output = run("train", "r.lua", "--out", monitor + "_rounded", "monitor=" + monitor, "rate=0.35", "least=0.22")
    check(output.count("learning rate 0.22, was") == 1, output)
    # A rank that is started again continues as it was, too.
    words = ["every_steps=4", "least=0.2", "monitor=" + monitor]
    run("train", "r.lua", "-n", "2", "--out", monitor + "_whole", *words)
    run("train", "r.lua", "-n", "2", "--recover", "--out", monitor + "_kept", "kill=" + monitor + "_killed", *words)
    check(os.path.exists(monitor + "_killed"), "no rank was killed")
    check(rates(monitor + "_kept") == rates(monitor + "_whole"), (rates(monitor + "_kept"), rates(monitor + "_whole")))
    # The best checkpoint knows what its own evaluation has come to.
    best = monitor + "_best"
    run("train", "r.lua", "--out", best, "monitor=" + monitor, "train.epochs=8")
    run("train", "r.lua", "--out", best, "--resume=best", "monitor=" + monitor)
    check(rates(best) == wanted, (rates(best), wanted))
# What follows the last checkpoint is made again, and stands in the records once: the end of an epoch, and an evaluation
# in the middle of one where training ends.
def lines(folder, start):
    with open(os.path.join(folder, "rank_0.log")) as log, open(os.path.join(folder, "metrics.jsonl")) as metrics:
        evaluations = [json.loads(line)["step"] for line in metrics if "eval_loss" in line]
        return evaluations, [line for line in log if line.startswith(start)]


for words in ["train.epochs=4"], ["train.max_steps=14"]:
    folder = words[0].replace(".", "_").replace("=", "_")
    run("train", "r.lua", "--out", folder, "--log-every", "epoch", *words)
    wanted = lines(folder, "epoch: "), lines(folder, "eval: ")
    check(len(wanted[0][1]) == len(wanted[0][0]) == len(wanted[1][1]) == 4, wanted)
    run("train", "r.lua", "--out", folder, "--log-every", "epoch", "--resume", *words)
    found = lines(folder, "epoch: "), lines(folder, "eval: ")
    check(found == wanted, (found, wanted))
    more = folder + "_more"
    run("train", "r.lua", "--out", more, "--log-every", "epoch", *words)
    run("train", "r.lua", "--out", more, "--log-every", "epoch", "--resume")
    check(lines(more, "epoch: ")[0] == [4 * e for e in range(1, 13)], lines(more, "epoch: "))
    check(len(lines(more, "epoch: ")[1]) == len(lines(more, "eval: ")[1]) == 12, lines(more, "e"))
print("passed")
