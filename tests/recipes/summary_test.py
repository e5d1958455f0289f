#!/usr/bin/env python3
"""What a training records for `mslua report` and TensorBoard beside its metrics: summary_test.py MSLUA"""
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "summary_test")
RECIPE = '''
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { metrics = "top1", kill_at = 0, save = 6 }
ms.set_seed(3)
-- Rows 5 and 11 have the wrong label.
local x, y = {}, {}
for i = 1, 24 do
  local class = i % 2
  x[i] = ms.full({ 1, 6, 6 }, class):totable()
  y[i] = (i == 5 or i == 11) and 1 - class or class
end
local data = ms.dataset.NumpySlicesDataset({ ms.Tensor(x), ms.Tensor(y, ms.int32) }, { "image", "label" }):batch(4)
local Notes = ms.Callback:extend "Notes"
function Notes:on_train_step_end(context)
  ms.summary.scalar("twice", 2 * context.global_step)
  if context.global_step == p.kill_at then os.execute "kill -9 $PPID" end
  ms.summary.histogram("values", ms.Tensor { -1, 0, 3, 1 / 0, 0 / 0 })
end
function Notes:on_train_epoch_end(context)
  ms.summary.text("note", "epoch " .. context.epoch .. " </script>")
  ms.summary.image("squares", ms.ones { 3, 1, 4, 4 })
end
function Notes:on_train_end() ms.summary.scalar("over", 1) end
return ms.recipe {
  name = "noted", seed = 1, dataset = data, eval_dataset = data, labels = { "dark", "light" },
  network = function() return nn.SequentialCell { nn.Flatten(), nn.Dense(36, 2) } end,
  loss = nn.CrossEntropyLoss(), optimizer = nn.Momentum { learning_rate = 0.01, momentum = 0.9 },
  train = { epochs = 3, histograms = { every_steps = 6, gradients = true } }, callbacks = { Notes() },
  eval = { metrics = { p.metrics } }, checkpoint = { save_checkpoint_steps = p.save },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
}
'''

# Ranks have parts of the network: of a weight, or whole layers.
PARTS = '''
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { how = "weight", rows = 8 }
local x, y = ms.randn({ 40, 1, 6, 6 }, ms.float32, "x"), {}
for i = 1, 40 do y[i] = i % 3 end
local data = ms.dataset.NumpySlicesDataset({ x, ms.Tensor(y, ms.int32) }, { "image", "label" }):batch(p.rows)
local Net = nn.Cell:extend "Net"
function Net:init()
  self.first, self.last = nn.Dense(36, 8), nn.Dense(8, 3)
  if p.how == "weight" then self.first:shard { { 1, 2 }, { 1, 2 } } end
  if p.how == "stages" then self.first.pipeline_stage, self.last.pipeline_stage = 0, 1 end
end
function Net:construct(x) return self.last(ops.relu(self.first(ops.reshape(x, { -1, 36 })))) end
return ms.recipe {
  name = "parts", seed = 1, dataset = data, eval_dataset = data,
  network = function() return p.how == "stages" and nn.PipelineCell(Net(), 2) or Net() end,
  loss = nn.CrossEntropyLoss(), optimizer = nn.Momentum { learning_rate = 0.01, momentum = 0.9 },
  train = { epochs = 2 }, eval = { metrics = { "top1" } },
  parallel = { parallel_mode = ms.ParallelMode.SEMI_AUTO_PARALLEL, pipeline_stages = p.how == "stages" and 2 or 1 },
}
'''


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def mslua(*words):
    done = subprocess.run([MSLUA, *words], capture_output=True, text=True, timeout=240, check=False,
                          env=dict(os.environ, HOME=WORK, XDG_RUNTIME_DIR=WORK), stdin=subprocess.DEVNULL)
    check(done.returncode == 0, done)
    return done


def lines_of(folder):
    with open(folder + "/summaries.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def fields(data):
    """The fields of a message of protocol buffers: number -> values; numbers, or bytes."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4, 2: None}[key & 7]
            size = varint() if size is None else size
            value = data[at:at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def events_of(folder):
    """Tag and Summary.Value of each event, with the step."""
    found = []
    for path in glob.glob(folder + "/events.out.tfevents.*"):
        with open(path, "rb") as file:
            data = file.read()
        at = 0
        while at < len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            event = fields(data[at + 12:at + 12 + size])
            at += size + 16
            for summary in event.get(5, []):
                for value in fields(summary).get(1, []):
                    value = fields(value)
                    found.append((value[1][0].decode(), event.get(2, [0])[0], value))
    return found


def check_events(folder):
    by_tag = {}
    for tag, step, value in events_of(folder):
        by_tag.setdefault(tag, []).append((step, value))
    check([(s, struct.unpack("<f", v[2][0])[0]) for s, v in by_tag["twice"]] == [(i, 2.0 * i) for i in range(1, 19)],
          by_tag["twice"])
    histogram = fields(by_tag["values"][0][1][5][0])
    check([struct.unpack("<d", histogram[i][0])[0] for i in range(1, 6)] == [-1, 3, 3, 2, 10], histogram)
    limits, counts = (struct.unpack("<64d", histogram[i][0]) for i in (6, 7))
    check(limits[-1] == 3 and list(limits) == sorted(limits) and sum(counts) == 3 and counts[0] == 1, counts)
    text = by_tag["note"][2][1]
    tensor = fields(text[8][0])
    check(tensor[1] == [7] and tensor[8] == [b"epoch 3 </script>"], tensor)
    check(fields(fields(text[9][0])[1][0]) == {1: [b"text"]}, text)
    image = fields(by_tag["squares"][0][1][4][0])
    with open(folder + "/summaries/squares_6.png", "rb") as file:
        check(image[4] == [file.read()] and (image[1], image[2], image[3]) == ([8], [20], [1]), image)
    check([s for s, _ in by_tag["gradients/1.weight"]] == [6, 12, 18], by_tag.keys())


def check_samples(folder, ranks):
    with open(folder + "/eval_samples.json", encoding="utf-8") as file:
        found = json.load(file)
    samples = found["samples"]
    check(found["step"] == 18 // ranks and found["labels"] == ["dark", "light"] and len(samples) == 16, found)
    check(sorted(int(re.search(r"(\d+)$", s["sample"]).group(1)) for s in samples[:2]) == [5, 11], samples)
    losses = [s["loss"] for s in samples]
    check(losses == sorted(losses, reverse=True), losses)
    for s in samples[:2]:
        check(s["label"] != s["prediction"] and 0.5 < s["confidence"] <= 1 and s["picture"].startswith("iVBOR"), s)


def samples_of(folder):
    with open(folder + "/eval_samples.json", encoding="utf-8") as file:
        return json.load(file)["samples"]


# An evaluation whose network gives NaN, and whose loss is one number for a batch.
NAN = '''
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local function data(x)
  return ms.dataset.NumpySlicesDataset({ x, ms.ones({ 16 }, ms.int32) }, { "x", "y" }):batch(4)
end
local One = nn.Cell:extend "One"
function One:construct(output, label) return ops.reduce_mean(ops.cross_entropy(output, label)) end
return ms.recipe {
  name = "nan", network = function() return nn.Dense(4, 3) end, loss = One(), optimizer = nn.SGD { learning_rate = 0 },
  dataset = data(ms.ones { 16, 4 }), eval_dataset = data(ms.ones { 16, 4 } * (0 / 0)), eval = { metrics = { "top1" } },
  train = { epochs = 1 }, parallel = { parallel_mode = "data_parallel", gradients_mean = true },
}
'''


def check_nan():
    with open("nan.lua", "w", encoding="utf-8") as file:
        file.write(NAN)
    mslua("train", "nan.lua", "-n", "2", "--out", "nan")
    found = samples_of("nan")
    check(len(found) == 16 and all(s["label"] == 1 and s["confidence"] is None for s in found), found)


def check_parts():
    """The worst samples of ranks that have parts of the network are those of one rank."""
    with open("parts.lua", "w", encoding="utf-8") as file:
        file.write(PARTS)
    mslua("train", "parts.lua", "--out", "parts_1")
    wanted = samples_of("parts_1")
    check(len(wanted) == 16 and wanted[0]["picture"].startswith("iVBOR"), wanted)
    # Each rank reads its part of a batch, or all of it.
    for how, rows in (("weight", 4), ("stages", 8)):
        mslua("train", "parts.lua", "how=" + how, "rows=%d" % rows, "-n", "2", "--out", how)
        found = samples_of(how)
        check([s["sample"] for s in found] == [s["sample"] for s in wanted], (how, found))
        for a, b in zip(found, wanted):
            check(a["picture"] == b["picture"] and a["prediction"] == b["prediction"], (how, a, b))
            check(abs(a["loss"] - b["loss"]) < 1e-4 * b["loss"], (how, a, b))


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    os.chdir(WORK)
    with open("noted.lua", "w", encoding="utf-8") as file:
        file.write(RECIPE)
    done = mslua("train", "noted.lua", "--out", "a")
    check(done.stderr.count("summary.histogram: values: at step 1 1 values are NaN and 1 infinite, of 5") == 1, done)
    lines = lines_of("a")
    check([x["twice"] for x in lines if "twice" in x] == [2 * i for i in range(1, 19)], lines)
    names = [x["histogram"]["name"] for x in lines if "histogram" in x and x["step"] == 6]
    check(sorted(names) == ["gradients/1.bias", "gradients/1.weight", "parameters/1.bias", "parameters/1.weight",
                            "values"], names)
    check_events("a")
    check_samples("a", 1)
    whole = {(x["step"], x["histogram"]["name"]): x["histogram"] for x in lines if "histogram" in x}

    # A run that resumes leaves each record once, those of an epoch's end and of the training's end included.
    ckpt = sorted(glob.glob("a/ckpt/*-1_6.ckpt"))
    for resumed in ["--resume=" + ckpt[0], "--resume"]:
        mslua("train", "noted.lua", "--out", "a", resumed)
        again = lines_of("a")
        check([x["twice"] for x in again if "twice" in x] == [2 * i for i in range(1, 19)], again)
        check([x["step"] for x in again if "text" in x] == [6, 12, 18], again)
        check([x["step"] for x in again if "image" in x] == [6, 12, 18], again)
        check([x["step"] for x in again if "over" in x] == [18], again)
    mslua("train", "noted.lua", "--out", "short", "save=4", "train.max_steps=8")
    check([(x["at"], x["ended"]) for x in lines_of("short") if "over" in x] == [(8, True)], lines_of("short"))
    mslua("train", "noted.lua", "--out", "short", "save=4", "train.max_steps=14", "--resume")
    check([x["step"] for x in lines_of("short") if "over" in x] == [14], lines_of("short"))

    # What is recorded after a step with a checkpoint is there for a run that resumes from it.
    words = ["train", "noted.lua", "--out", "killed", "save=4", "kill_at=5"]
    check(subprocess.run([MSLUA, *words], env=dict(os.environ, HOME=WORK, XDG_RUNTIME_DIR=WORK), capture_output=True,
                         timeout=240, check=False).returncode == -9, words)
    mslua("train", "noted.lua", "--out", "killed", "save=4", "--resume")
    check([r["step"] for r in lines_of("killed") if "twice" in r] == list(range(1, 19)), lines_of("killed"))

    # Two ranks record once, and the gradients of the whole batch.
    mslua("train", "noted.lua", "--out", "two", "-n", "2")
    check([x["twice"] for x in lines_of("two") if "twice" in x] == [2 * i for i in range(1, 10)], lines_of("two"))
    two = {(x["step"], x["histogram"]["name"]): x["histogram"] for x in lines_of("two") if "histogram" in x}
    check(two[6, "gradients/1.weight"]["count"] == whole[6, "gradients/1.weight"]["count"] == 72, two)
    check_samples("two", 2)
    check_parts()
    check_nan()

    mslua("report", "a", "two", "-o", "r.html")
    with open("r.html", encoding="utf-8") as file:
        text = file.read()
    runs = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    check(len(runs[0]["worst"]["samples"]) == 16 and runs[0]["curves"]["twice"][1][-1] == 36, runs[0])
    check([p["step"] for p in runs[0]["pictures"]] == [18, 12, 6] and "picture" in runs[0]["pictures"][0], "pictures")
    check([t["text"] for t in runs[0]["texts"]][0] == "epoch 3 </script>", runs[0]["texts"])
    check(len(runs[0]["histograms"]["values"]) == 18 and len(runs[0]["histograms"]["gradients/1.bias"]) == 3,
          runs[0]["histograms"].keys())


main()
