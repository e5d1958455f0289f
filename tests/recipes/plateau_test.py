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
local p = ms.params { monitor = "eval_loss" }
local function rows()
  ms.set_seed(3)
  return ms.dataset.NumpySlicesDataset({ ms.rand { 64, 4 }, ms.rand { 64, 1 } }, nil, { shuffle = false,
    num_shards = ms.communication.get_group_size(), shard_id = ms.communication.get_rank() })
    :batch(16 / ms.communication.get_group_size())
end
return ms.recipe {
  name = "plateau", seed = 5, network = function() return nn.Dense(4, 1) end, dataset = rows, eval_dataset = rows,
  loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.5 },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  train = { epochs = 12, reduce_lr_on_plateau = { monitor = p.monitor, factor = 0.5, patience = 2, min_delta = 0.01 } },
  checkpoint = { save_checkpoint_steps = 4 },
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
print("passed")
