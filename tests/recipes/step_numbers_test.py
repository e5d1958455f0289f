#!/usr/bin/env python3
"""What metrics.jsonl says of steps besides the loss; the gradients' norm is one number however ranks share the step:
step_numbers_test.py MSLUA"""
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "step_numbers_test")
SOCKETS = tempfile.mkdtemp(prefix="msn", dir="/tmp")  # short: a socket's path ends at 107 bytes
RECIPE = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { rows = 16, mode = "stand_alone", norm = true, nap = false, acc = 1,
  clip = false, optimizer = false }
local function data() return ms.dataset.NumpySlicesDataset({ ms.rand({ 64, 4 }, ms.float32, "x"),
  ms.rand({ 64, 2 }, ms.float32, "y") }):batch(p.rows) end
local staged = p.mode == "semi_auto_parallel"
local Net = nn.Cell:extend "Net"
function Net:init()
  self.first, self.last = nn.Dense(4, 5), nn.Dense(5, 2)
  if staged then self.first.pipeline_stage, self.last.pipeline_stage = 0, 1 end
end
function Net:construct(x) return self.last(ms.ops.relu(self.first(x))) end
local Nap = ms.Callback:extend "Nap"
function Nap:on_train_step_end() if p.nap then os.execute "sleep 0.15" end end
return ms.recipe {
  name = "norm", dataset = data, loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 }, callbacks = Nap(),
  network = function() return staged and nn.PipelineCell(Net(), 2) or Net() end,
  train = { epochs = 2, accumulate_steps = p.acc, grad_norm = p.norm, clip_norm = p.clip and 0.01 or nil },
  parallel = p.mode ~= "stand_alone" and { parallel_mode = p.mode, pipeline_stages = staged and 2 or nil,
    gradients_mean = p.mode == "data_parallel" or nil, enable_parallel_optimizer = p.optimizer or nil } or nil,
}
"""

# Its evaluation writes over what is left of a step in the memory that both work in.
EVALUATED = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { rows = 16, ranks = 1 }
local x = ms.randn({ 32, 4 }, ms.float32, "x")
local function data() return ms.dataset.NumpySlicesDataset({ x, x }, { "x", "y" }):batch(p.rows) end
return ms.recipe {
  name = "evaluated", seed = 1, dataset = data, eval_dataset = data, loss = nn.MSELoss(),
  network = function()
    return nn.SequentialCell { nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4), nn.Dense(4, 512), nn.Tanh(),
      nn.Dense(512, 4) }
  end,
  optimizer = nn.SGD { learning_rate = 0.1 }, train = { epochs = 3, grad_norm = true },
  callbacks = p.ranks == 1 and ms.Histograms { every_steps = 2, gradients = true } or nil,
  eval = { every_steps = 2, metrics = { m = function(output) return ops.reduce_mean(output, 2) end } },
  parallel = p.ranks > 1 and { parallel_mode = "auto_parallel" } or nil,
}
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def train(name, *words, recipe="recipe.lua"):
    """The records of the training's steps."""
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", XDG_RUNTIME_DIR=SOCKETS, HOME=WORK, XDG_CACHE_HOME=WORK)
    done = subprocess.run([MSLUA, "train", recipe, "--out", name, *words], env=environment, capture_output=True,
                          text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)
    check(done.returncode == 0, done)
    with open(name + "/metrics.jsonl", encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if "loss" in record]


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    os.chdir(WORK)
    with open("recipe.lua", "w", encoding="utf-8") as out:
        out.write(RECIPE)
    one = [r["grad_norm"] for r in train("one")]
    check(len(one) == 8 and all(n > 0 for n in one), one)
    ways = {
        "parts": ["acc=2"],
        "data": ["rows=8", "mode=data_parallel", "-n", "2"],
        "slices": ["rows=8", "mode=data_parallel", "optimizer=true", "-n", "2"],
        "auto": ["rows=8", "mode=auto_parallel", "-n", "2"],
        "stages": ["mode=semi_auto_parallel", "-n", "2"],
    }
    for name, words in ways.items():
        norms = [r["grad_norm"] for r in train(name, *words)]
        check(len(norms) == 8 and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(norms, one)), (name, norms, one))
    with open("evaluated.lua", "w", encoding="utf-8") as out:
        out.write(EVALUATED)
    for words in (), ("rows=8", "ranks=2", "-n", "2"):
        norms = [[r["grad_norm"] for r in train("evaluated_%d_%s" % (len(words), every), "eval.every_steps=" + every,
                                                *words, recipe="evaluated.lua")] for every in ("2", "0")]
        check(len(norms[0]) == 6 and norms[0] == norms[1], (words, norms))
    histograms = []
    for every in "2", "0":
        with open("evaluated_0_%s/summaries.jsonl" % every, encoding="utf-8") as file:
            histograms.append([record for record in map(json.loads, file) if "histogram" in record])
    check(len(histograms[0]) > 8 and histograms[0] == histograms[1], histograms)
    clipped = train("clipped", "norm=false", "clip=true")
    check(math.isclose(clipped[0]["grad_norm"], one[0], rel_tol=1e-5), "the norm is the one before clipping")
    slow = train("slow", "norm=false", "nap=true")
    check(all("grad_norm" not in r for r in slow), "no norm without being asked for")
    check(all(r["tflops"] > 0 for r in slow[1:]), slow)
    check(all(r["peak_memory"] > 1e6 and r["samples"] == 16 * r["step"] for r in slow), slow)
    check(all(0.1 < b["time"] - a["time"] < 60 for a, b in zip(slow, slow[1:])), slow)
    shutil.rmtree(SOCKETS, ignore_errors=True)


main()
