#!/usr/bin/env python3
"""Averages of parameters (train.ema): the same in every parallel mode, kept by resuming, and what eval, convert and
export read of a checkpoint: ema_test.py MSLUA"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "ema_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)
DECAY = 0.9
RECIPE = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { mode = "data_parallel", stages = 1, rows = 8, batch_norm = true, scale = 0 }
local Net = nn.Cell:extend "Net"
function Net:init()  -- 4 KiB and more: what parallel_optimizer_threshold = 1 shards
  self.a, self.b = nn.Dense(4, 256), nn.Dense(256, 4)
  if p.batch_norm then self.norm = nn.BatchNorm1d(256) end
  if p.stages > 1 then self.a.pipeline_stage, self.b.pipeline_stage = 0, 1 end
  if p.mode == "semi_auto_parallel" and p.stages == 1 then self.a:shard { { 2, 1 }, { 2, 1 } } end
end
function Net:construct(x)
  x = ops.tanh(self.a(x))
  return self.b(self.norm and self.norm(x) or x)
end
local function rows()
  ms.set_seed(3)
  local x = ms.rand { 64, 4 } * 2 - 1
  local feeds = p.mode == "data_parallel" and ms.communication.get_group_size() or 1
  return ms.dataset.NumpySlicesDataset({ x, ops.tanh(x * 2) }, { "x", "y" }, { shuffle = false,
    num_shards = feeds, shard_id = feeds > 1 and ms.communication.get_rank() or 0 }):batch(p.rows / feeds)
end
return ms.recipe {
  name = "averaged", seed = 5,
  network = function() return p.stages > 1 and nn.PipelineCell(Net(), 2) or Net() end,
  dataset = rows, eval_dataset = rows,
  loss = nn.MSELoss(), optimizer = nn.Adam { learning_rate = 0.05 },
  parallel = { parallel_mode = p.mode, pipeline_stages = p.stages, gradients_mean = true },
  train = { epochs = 4, ema = 0.9, loss_scale = p.scale > 0 and ms.FixedLossScaleManager(p.scale) or nil },
  checkpoint = { save_checkpoint_steps = 8, keep_checkpoint_max = 9 },
}
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def run(*words, code=0):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    check(done.returncode == code, (" ".join(words), done.returncode, done.stdout + done.stderr))
    return done.stdout + done.stderr


def tensors(path):
    """The tensors of a .safetensors file, by name."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        body = data[8 + size + begin:8 + size + end]
        found[name] = struct.unpack("<%df" % (len(body) // 4), body)
    return found


def checkpoint(folder, step):
    path = os.path.join(folder, "ckpt", "averaged-%d_%d.ckpt" % (step // 8, step))
    merged = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            merged.update(tensors(os.path.join(path, name)))
    return merged


def near(got, wanted, tolerance, what):
    check(len(got) == len(wanted), (what, len(got), len(wanted)))
    for a, b in zip(got, wanted):
        check(abs(a - b) <= tolerance, (what, a, b))


def evaluated(output):
    return [float(v) for v in re.findall(r"eval: epoch \d+, loss ([0-9.]+)", output)]


def train(folder, *words):
    output = run("train", "r.lua", "--out", folder, *words)
    check(len(evaluated(output)) >= 1, output)
    return output


shutil.rmtree(WORK, ignore_errors=True)
os.makedirs(WORK)
os.chdir(WORK)
with open("r.lua", "w") as recipe:
    recipe.write(RECIPE)

# Checkpoints every step: the averages are those of the parameters after each.
whole = train("whole", "checkpoint.save_checkpoint_steps=1", "checkpoint.keep_checkpoint_max=40")
sums, weights, last = {}, 0.0, {}
for step in range(1, 33):
    path = os.path.join("whole", "ckpt", "averaged-%d_%d.ckpt" % ((step - 1) // 8 + 1, step))
    last = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            last.update(tensors(os.path.join(path, name)))
    weights = DECAY * weights + 1 - DECAY
    for name, values in last.items():
        if name.startswith("ema."):
            of = last[name[4:]]
            sums[name] = [DECAY * s + (1 - DECAY) * v for s, v in zip(sums.get(name, [0.0] * len(of)), of)]
            near(values, [s / weights for s in sums[name]], 2e-6, (step, name))
check(sorted(sums) == sorted("ema." + n for n in
                             ["a.weight", "a.bias", "b.weight", "b.bias", "norm.gamma", "norm.beta"]), sorted(sums))
check(last["ema.a.weight"] != last["a.weight"], "averages are not the parameters")

# eval and convert read the averages; running statistics are the network's.
output = run("eval", "r.lua", "--ckpt", "whole/ckpt")
check("the averages of the parameters (train.ema)" in output, output)
check("loss %.4g" % evaluated(whole)[-1] in output, (evaluated(whole)[-1], output))
output = run("ckpt", "convert", "whole/ckpt", "out.safetensors", "--to", "safetensors")
check("ckpt convert: the averages of the parameters (train.ema)" in output, output)
converted = tensors("out.safetensors")
wanted = sorted(n for n in last if not re.match(r"(ema|moment\d)\.", n))
check(sorted(converted) == wanted, (sorted(converted), wanted))
for name, values in converted.items():
    near(values, last.get("ema." + name, last[name]), 0, name)

# Stopped and resumed: the same bits.
train("parts", "--max-steps", "13", "checkpoint.save_checkpoint_steps=13")
run("train", "r.lua", "--out", "parts", "--resume=parts/ckpt", "checkpoint.save_checkpoint_steps=8")
resumed = {}
for name in os.listdir("parts/ckpt/averaged-4_32.ckpt"):
    if name.endswith(".safetensors"):
        resumed.update(tensors("parts/ckpt/averaged-4_32.ckpt/" + name))
check(resumed == last, "a resumed training has other averages")

# Other modes: without batch norm, whose statistics differ between ranks.
train("one", "batch_norm=false")
one = checkpoint("one", 32)
modes = {
    "data": ["-n", "2"],
    "slices": ["-n", "2", "parallel.enable_parallel_optimizer=true",
               "parallel.parallel_optimizer_config={parallel_optimizer_threshold=1}"],
    "semi": ["-n", "4", "mode=semi_auto_parallel"],
    "sharded": ["-n", "4", "mode=semi_auto_parallel", "parallel.enable_parallel_optimizer=true",
                "parallel.parallel_optimizer_config={parallel_optimizer_threshold=1}"],
    "pipeline": ["-n", "2", "mode=semi_auto_parallel", "stages=2"],
    "scale": ["scale=1024"],
}
for name, words in modes.items():
    output = train(name, "batch_norm=false", *words)
    found = checkpoint(name, 32)
    for key in one:
        if key.startswith("ema."):
            check(key in found, (name, sorted(found)))
            near(found[key], one[key], 2e-5, (name, key))
    evaluation = run("eval", "r.lua", "--ckpt", name + "/ckpt", "batch_norm=false", *words)
    check("loss %.4g" % evaluated(output)[-1] in evaluation, (name, evaluated(output)[-1], evaluation))

output = train("early", "train.early_stopping={min_delta = 100, patience = 2}", "train.epochs=9")
check(len(evaluated(output)) == 3, output)

output = train("skips", "scale=3e38")
check("loss scale: 32 of 32 steps updated nothing: their gradients were infinite or NaN" in output, output)
output = run("train", "r.lua", "--out", "skips", "--resume", "scale=3e38", "train.epochs=5")
check("loss scale: 40 of 40 steps updated nothing" in output, output)

output = run("train", "r.lua", "--out", "bad", "train.ema=1", code=2)
check("ema: expected a number, above 0 and below 1, got 1" in output, output)
print("passed")
