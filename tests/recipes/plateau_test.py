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
local p = ms.params { monitor = "eval_loss", every_steps = 0, min_lr = 0.0, kill = "" }
local function rows()
  ms.set_seed(3)
  return ms.dataset.NumpySlicesDataset({ ms.rand { 64, 4 }, ms.rand { 64, 1 } }, nil, { shuffle = false,
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
  loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.5 },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  train = { epochs = 12, reduce_lr_on_plateau = { monitor = p.monitor, factor = 0.5, patience = 2, min_delta = 0.01,
    min_lr = p.min_lr } },
  callbacks = { Kill() }, eval = { every_steps = p.every_steps }, checkpoint = { save_checkpoint_steps = 4 },
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
    check(len(found) == 48 and min(found.values()) < 0.5, found)
    if monitor == "eval_loss":  # which all ranks share; a loss is that of a rank's own batches
        check(found == wanted, (found, wanted))
    parts = monitor + "_parts"
    run("train", "r.lua", "--out", parts, "--max-steps", "30", "monitor=" + monitor)
    run("train", "r.lua", "--out", parts, "--resume=" + parts + "/ckpt", "monitor=" + monitor)
    check(rates(parts) == wanted, (rates(parts), wanted))
    # The best checkpoint knows what its own evaluation has come to.
    best = monitor + "_best"
    run("train", "r.lua", "--out", best, "monitor=" + monitor, "train.epochs=8")
    run("train", "r.lua", "--out", best, "--resume=best", "monitor=" + monitor)
    check(rates(best) == wanted, (rates(best), wanted))
    # What is measured before the end of an epoch is judged there, by a training that resumes between the two.
    ends = monitor + "_ends"
    words = ["every_steps=4", "min_lr=0.2", "monitor=" + monitor]
    output = run("train", "r.lua", "--out", ends, "checkpoint.keep_checkpoint_max=99", *words)
    limited = rates(ends)
    check(len(limited) == 48 and min(limited.values()) == 0.2, limited)
    for step in range(4, 48, 4):
        resumed = "%s_%d" % (ends, step)
        again = run("train", "r.lua", "--out", resumed, "--resume=%s/ckpt/plateau-%d_%d.ckpt" % (ends, step / 4, step),
                    *words)
        rest = {s: limited[s] for s in limited if s > step}
        made = {s: rate for s, rate in rates(resumed).items() if s > step}  # the record of that step comes once more
        check(made == rest, (step, made, rest))
        check([line for line in again.splitlines() if "has not improved" in line]
              == [line for line in output.splitlines() if "has not improved" in line
                  and int(line.split("epoch ")[1].split(":")[0]) >= step / 4], (step, again))
    # So does a rank that is started again.
    run("train", "r.lua", "-n", "2", "--out", ends + "_two", *words)
    run("train", "r.lua", "-n", "2", "--recover", "--out", ends + "_kept", "kill=" + monitor + "_killed", *words)
    check(os.path.exists(monitor + "_killed"), "no rank was killed")
    check(rates(ends + "_kept") == rates(ends + "_two"), (rates(ends + "_kept"), rates(ends + "_two")))
print("passed")
