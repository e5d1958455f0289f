#!/usr/bin/env python3
"""Batches by length (bucket_batch_by_length) from the command line: workers, resuming, ranks: buckets_test.py MSLUA"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "buckets_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)
RECIPE = """local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { workers = 1, parts = 1, mode = "data_parallel", dropout = 0.1, longest = 9 }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.words, self.dropout, self.out = nn.Embedding(32, 8), nn.Dropout { p = p.dropout }, nn.Dense(8, 2)
end
function Net:construct(x)
  local seen = ops.reshape(ops.cast(ops.not_equal(x, 0), ms.float32), { x.shape[1], x.shape[2], 1 })
  return self.out(ops.reduce_sum(self.dropout(self.words(x)) * seen, { 2 }) / ops.reduce_sum(seen, { 2 }))
end
local function data(shuffle)
  return ms.dataset.GeneratorDataset("rows.lua", { "x", "label" }, { shuffle = shuffle,
    num_parallel_workers = p.workers }):bucket_batch_by_length { column_names = "x",
    bucket_boundaries = { 4, p.longest }, bucket_batch_sizes = { 4 * p.parts, 2 * p.parts },
    pad_info = { x = { { -1 }, 0 } } }
end
return ms.recipe { name = "by_length", seed = 3, dataset = function() return data(true) end,
  eval_dataset = function() return data(false) end, network = function() return Net() end,
  loss = nn.CrossEntropyLoss(), optimizer = nn.Adam { learning_rate = 0.02 }, train = { epochs = 3 },
  eval = { metrics = { "accuracy", "loss" } },
  parallel = { parallel_mode = p.mode, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 5, keep_checkpoint_max = 0 } }
"""
ROWS = """local ms = require "mslua"
return { length = 45, get = function(i)
  local x = {}
  for k = 1, i * 3 % 8 + 1 do x[k] = (i * k + k) % 31 + 1 end
  return ms.Tensor(x, ms.int32), ms.Tensor(i % 2, ms.int32)
end }
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def run(*words, code=0):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False,
                          stdin=subprocess.DEVNULL)
    check(done.returncode == code, (" ".join(words), done.returncode, done.stdout + done.stderr))
    return done.stdout + done.stderr


def train(folder, *words, code=0):
    return run("train", "job/r.lua", "--out", folder, "--no-attach", *words, code=code)


def losses(output):
    return re.findall(r"epoch: (\d+) step: (\d+), loss is (\S+)", output)


def evaluated(output):
    return re.findall(r"eval: epoch \d+, (.*)", output)


def parameters(folder):
    """The tensors of the newest checkpoint, by name."""
    names = [name for name in os.listdir(folder + "/ckpt") if name.endswith(".ckpt")]
    newest = max(names, key=lambda name: int(re.findall(r"_(\d+)\.ckpt", name)[0]))
    found = {}
    for name in os.listdir(os.path.join(folder, "ckpt", newest)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, "ckpt", newest, name), "rb") as file:
            content = file.read()
        size = struct.unpack("<Q", content[:8])[0]
        for key, entry in json.loads(content[8:8 + size]).items():
            if key != "__metadata__":
                begin, end = entry["data_offsets"]
                found[key] = content[8 + size + begin:8 + size + end]
    return found


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK + "/job")
    os.chdir(WORK)
    for name, content in (("r", RECIPE), ("rows", ROWS)):
        with open("job/%s.lua" % name, "w", encoding="utf-8") as file:
            file.write(content)
    output = train("one")
    one = losses(output)
    check(len(one) > 30 and len(evaluated(output)) == 3, output)
    check("for each of 2 shapes of a batch" in output, output)
    check("fewer rows than full batches of their buckets" in output, output)
    # Any number of workers, and a resume in the middle of an epoch, give the same.
    check(losses(train("three", "workers=3")) == one, "workers")
    for stop in ("5", "17"):
        part = "part" + stop
        check(losses(train(part, "--max-steps", stop)) == one[:int(stop)], "the first steps")
        check(losses(train(part, "workers=2", "--resume")) == one[int(stop):], ("a resume at", stop))
        check(parameters(part) == parameters("one"), ("the last checkpoint of a resume at", stop))
    # The same evaluation on its own, and of all samples whatever the batches are.
    line = evaluated(output)[-1]
    check(line in run("eval", "job/r.lua", "--ckpt", "one/ckpt"), line)
    check(line in run("eval", "job/r.lua", "--ckpt", "one/ckpt", "parts=3"), line)
    check(line in run("eval", "job/r.lua", "--ckpt", "one/ckpt", "-n", "2"), line)
    # Two ranks have the batches of one, each its half; a resume too.
    train("whole", "parts=2", "dropout=0")
    two = train("halves", "-n", "2", "dropout=0")
    check("global batch 4 = 2 x 2 or 8 = 4 x 2 feeds" in two, two)
    whole, halves = parameters("whole"), parameters("halves")
    check(sorted(whole) == sorted(halves), (sorted(whole), sorted(halves)))
    for key, value in whole.items():
        for a, b in zip(struct.unpack("<%df" % (len(value) // 4), value),
                        struct.unpack("<%df" % (len(value) // 4), halves[key])):
            check(abs(a - b) < 1e-4, (key, a, b))
    train("broken", "-n", "2", "dropout=0", "--max-steps", "8")
    rest = train("broken", "-n", "2", "dropout=0", "--resume")
    check(losses(rest) == losses(two)[8:], (losses(rest), losses(two)))
    check(parameters("broken") == halves, "two ranks that resume")
    # What one shape of a batch is needed for is refused.
    check("prof: batches of the dataset have 2 shapes" in run("prof", "job/r.lua", code=2), "prof")
    refused = run("train", "job/r.lua", "--out", "semi", "-n", "2", "mode=semi_auto_parallel", code=2)
    check("bucket_batch_by_length goes with data_parallel ranks" in refused, refused)
    refused = run("train", "job/r.lua", "--out", "long", "longest=8", code=2)
    check("has length 8, and the longest bucket is for lengths below 8" in refused and "job/r.lua:" in refused, refused)
    # The other verbs.
    check("loss is" in run("train", "job/r.lua", "--fast-dev-run", "--out", "fast"), "--fast-dev-run")
    check("learning rate" in run("lr-find", "job/r.lua", "--steps", "12"), "lr-find")
    run("plan", "job/r.lua", "-n", "2")
    print("passed")


main()
