#!/usr/bin/env python3
"""Metrics that are no mean over rows: what a plain program computes, whatever batch size and ranks:
metrics_test.py MSLUA"""
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "metrics_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)
ROWS, CLASSES = 203, 4  # no batch size below divides the rows
IGNORED = -100  # the label that nn.CrossEntropyLoss leaves out
# The network gives its input, which are the logits: what the metrics should say is known.
RECIPE = """
local ms = require "mslua"
local ops = ms.ops
local p = ms.params { batch = 7, data = "many", mode = "data_parallel" }
local Net = ms.nn.Cell:extend "Net"
function Net:init() self.w = ms.Parameter(ms.ones { 1 }, "w") end
function Net:construct(x) return x * self.w end
local function rows() return ms.dataset.NumpyDataset(p.data .. ".npz"):batch(p.batch) end
local metrics = { "top1", "precision", "recall", "f1", "iou", "confusion_matrix", "perplexity",
  spread = { rows = function(output) return { sum = output, square = output * output } end,
    finish = function(sums, samples)
      local total = 0
      for i, s in ipairs(sums.sum) do total = total + sums.square[i] / samples - (s / samples) ^ 2 end
      return total
    end } }
if p.data == "two" then table.insert(metrics, "auc") end
if p.data == "one" then metrics = { "auc", "f1", "confusion_matrix" } end
return ms.recipe {
  name = "metrics", network = function() return Net() end, dataset = rows, eval_dataset = rows,
  loss = p.data == "one" and ms.nn.MSELoss() or ms.nn.CrossEntropyLoss(),
  labels = p.data == "two" and { "no", "yes" } or nil,
  optimizer = ms.nn.SGD { learning_rate = 0 }, parallel = { parallel_mode = p.mode, gradients_mean = true },
  train = { epochs = 1 }, eval = { metrics = metrics }, checkpoint = {},
  expect = p.data == "two" and { auc_above = 0.6, f1_above = 0.5, perplexity_below = 4, loss_below = 9 } or nil,
}
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def run(*words, code=0):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    check(done.returncode == code, (" ".join(words), done.returncode, done.stdout + done.stderr))
    return done.stdout + ("" if code == 0 else done.stderr)


def npy(kind, shape, values):
    head = "{'descr': '<%s', 'fortran_order': False, 'shape': (%s), }" % (
        {"f": "f4", "i": "i4"}[kind], "".join("%d, " % n for n in shape))
    head += " " * (64 - (10 + len(head) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(
        "<%d%s" % (len(values), kind), *values)


def write(name, logits, labels):
    """An .npz of columns x and y."""
    import zipfile
    flat = [v for row in logits for v in row]
    with zipfile.ZipFile(name + ".npz", "w") as file:
        file.writestr("x.npy", npy("f", [len(logits), len(logits[0])], flat))
        if name == "one":
            file.writestr("y.npy", npy("f", [len(labels), 1], [float(v) for v in labels]))
        else:
            file.writestr("y.npy", npy("i", [len(labels)], labels))


def expected(logits, labels, classes):
    single = len(logits[0]) == 1
    given = [int(row[0] > 0) if single else max(range(classes), key=lambda c, row=row: (row[c], -c)) for row in logits]
    pairs = [pair for pair in zip(labels, given) if pair[0] != IGNORED]
    counts = [[pairs.count((i, j)) for j in range(classes)] for i in range(classes)]
    right = [counts[k][k] for k in range(classes)]
    columns = [sum(counts[i][k] for i in range(classes)) for k in range(classes)]
    rows = [sum(counts[k]) for k in range(classes)]
    share = lambda a, b: a / b if b else 0
    mean = lambda values: sum(values) / len(values)
    found = {
        "confusion_matrix": counts,
        "precision": mean([share(right[k], columns[k]) for k in range(classes)]),
        "recall": mean([share(right[k], rows[k]) for k in range(classes)]),
        "f1": mean([share(2 * right[k], columns[k] + rows[k]) for k in range(classes)]),
        "iou": mean([right[k] / (columns[k] + rows[k] - right[k]) for k in range(classes)
                     if columns[k] + rows[k] - right[k]]),
    }
    if not single:
        losses = [math.log(sum(math.exp(v) for v in row)) - row[label] for row, label in zip(logits, labels)
                  if label != IGNORED]
        found["loss"], found["perplexity"] = mean(losses), math.exp(mean(losses))
        found["top1"] = mean([int(a == b) for a, b in pairs])
        found["spread"] = sum(mean([row[c] ** 2 for row in logits]) - mean([row[c] for row in logits]) ** 2
                              for c in range(classes))
    if classes == 2:
        score = [row[0] if single else row[1] - row[0] for row in logits]
        positive = [s for s, label in zip(score, labels) if label == 1]
        negative = [s for s, label in zip(score, labels) if label == 0]
        found["auc"] = mean([(p > n) + (p == n) / 2 for p in positive for n in negative])
    return found


def compare(got, wanted, what):
    for name, value in wanted.items():
        if name == "confusion_matrix":
            check(got[name] == value, (what, name, got[name], value))
        else:
            # The AUC counts pairs of one bin half: of 1/128 in logits here, fewer than 0.2 % of the pairs.
            bound = 1e-3 if name == "auc" else 1e-5 * max(1, abs(value))
            check(abs(got[name] - value) <= bound, (what, name, got[name], value))


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    os.chdir(WORK)
    with open("metrics.lua", "w", encoding="utf-8") as file:
        file.write(RECIPE)
    draw = random.Random(5)
    for name, classes, width in (("many", CLASSES, CLASSES), ("two", 2, 2), ("one", 2, 1)):
        # Of "many" nothing is of class 3, and every fifth row has no label.
        labels = [IGNORED if name == "many" and i % 5 == 0 else draw.randrange(classes - (name == "many"))
                  for i in range(ROWS)]
        logits = [[struct.unpack("<f", struct.pack("<f", draw.gauss((label == c or label == width) * 1.5, 1.2)))[0]
                   for c in range(width)] for label in labels]
        write(name, logits, labels)
        wanted = expected(logits, labels, classes)
        if name == "one":
            wanted = {key: wanted[key] for key in ("auc", "f1", "confusion_matrix")}
        run("train", "metrics.lua", "--out", name, "data=" + name)
        first = None
        for ranks, batch, mode in ((1, 7, "stand_alone"), (1, 64, "stand_alone"), (2, 7, "data_parallel"),
                                   (3, 16, "data_parallel"), (2, 7, "semi_auto_parallel")):
            out = json.loads(run("eval", "metrics.lua", "--json", "--ckpt", name, "-n", str(ranks), "batch=%d" % batch,
                                 "mode=" + mode, "data=" + name))
            compare(out, wanted, (name, ranks, batch, mode))
            first = first or out
            check(out["confusion_matrix"] == first["confusion_matrix"], (name, ranks, batch, mode))
        with open(name + "/eval.json", encoding="utf-8") as file:
            recorded = json.load(file)
        check(recorded["matrices"] == {"confusion_matrix": wanted["confusion_matrix"]}, recorded)
        check(recorded["step"] == ROWS // 7, recorded)
        check(recorded["labels"] == (["no", "yes"] if name == "two" else []), recorded)
        with open(name + "/metrics.jsonl", encoding="utf-8") as file:
            last = [json.loads(line) for line in file if '"eval_f1"' in line][-1]
        check(abs(last["eval_f1"] - wanted["f1"]) < 1e-6 and "eval_confusion_matrix" not in last, last)
    text = run("eval", "metrics.lua", "--ckpt", "two", "data=two")
    check("auc 0." in text and "a column for each predicted class" in text and "yes" in text, text)
    check(run("verify", "metrics.lua", "data=two").count(" met") == 4, "what verify says")
    text = run("verify", "metrics.lua", "data=two", "expect.f1_above=0.99", code=8)
    check("eval_f1 above 0.99: 0.797853 NOT MET" in text, text)
    run("train", "metrics.lua", "--out", "limited", "--no-attach", "data=two", "expect.f1_above=0.99")
    with open("limited/config.lua", encoding="utf-8") as file:
        check('["expect.f1_above"] = 0.99' in file.readline(), "the limit is in config.lua")
    text = run("verify", "limited/config.lua", "data=two", code=8)
    check("eval_f1 above 0.99: 0.797853 NOT MET" in text, text)
    text = run("recipes", "show", "metrics.lua", "data=two", "expect.f1_above=0.99")
    check(re.search(r"expect.f1_above +0.99 ", text), text)
    # Measured by evaluations too, loss_below stays the limit of the training's loss.
    with open("losses.lua", "w", encoding="utf-8") as file:
        file.write(RECIPE.replace("return ms.recipe {", 'table.insert(metrics, "loss")\nreturn ms.recipe {'))
    text = run("verify", "losses.lua", "data=two")
    check("loss below 9" in text and "eval_loss below" not in text, text)

    for metrics, says in (
            ('{ "f2" }', 'unknown metric "f2" (did you mean'),
            ("{ x = { rows = print } }", "x.finish"),
            ("{ x = { rows = print, finish = print, more = 1 } }", "unknown key 'more'"),
            ('{ "auc" }', "auc: expected an output [n, 2], [n, 1] or [n], got {7, 4}"),
            ("{ x = { rows = function() return 1 end, finish = print } }", "x.rows: expected a tensor"),
            ("{ x = { rows = function(y) return y end, finish = function() end } }", "x.finish: expected")):
        with open("bad.lua", "w", encoding="utf-8") as file:
            file.write(RECIPE.replace("return ms.recipe {", "metrics = %s\nreturn ms.recipe {" % metrics))
        out = run("train", "bad.lua", code=2)
        check("error: bad.lua:" in out and says in out, (metrics, out))
    check_notes()
    check_draws()


# Each part of it draws random numbers.
DRAWN = """
local ms = require "mslua"
local nn = ms.nn
local function rows()
  local x = ms.randn { 16, 4 }
  return ms.dataset.NumpySlicesDataset({ x, x:sum(2, true) }, { "x", "y" }):batch(4)
end
local Net = nn.Cell:extend "Net"
function Net:init() self.fc, self.drawn = nn.Dense(4, 1), ms.randn { 4 } end
function Net:construct(x) return self.fc(x + self.drawn) end
return ms.recipe { name = "drawn", dataset = rows, eval_dataset = rows, network = function() return Net() end,
  loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.01 }, train = { epochs = 1 }, checkpoint = {} }
"""


def check_draws():
    """Verbs that make other parts of a recipe draw the same numbers for the parts that they make."""
    with open("drawn.lua", "w", encoding="utf-8") as file:
        file.write(DRAWN)
    run("train", "drawn.lua", "--out", "drawn", "--no-attach")
    with open("drawn/metrics.jsonl", encoding="utf-8") as file:
        trained = [json.loads(line)["eval_loss"] for line in file if "eval_loss" in line][-1]
    text = run("eval", "drawn.lua", "--ckpt", "drawn/ckpt", "--json")
    measured = json.loads(text[text.index("{"):].splitlines()[0])["loss"]
    check(abs(measured - trained) < 1e-5 * trained, (measured, trained))


# Datasets that ranks do not share by themselves; 13 samples.
READERS = """
local ms = require "mslua"
local p = ms.params { eval = "shared", shards = "shared" }
local rank, ranks = ms.communication.get_rank(), ms.communication.get_group_size()
local function value(i) if i <= 13 then return i + 0.0 end end
local function dataset(kind)
  local options = { length = 13 }
  if kind == "parts" then options.num_shards, options.shard_id = ranks, rank end
  if kind == "same" then options.num_shards, options.shard_id = ranks, 0 end
  local source = value
  if kind == "bare" then source = function(i) return { value(i) } end end
  if kind == "iterator" then
    options = {}
    source = function()
      local i = 0
      return function() i = i + 1 return value(i) end
    end
  end
  local ds = ms.dataset.GeneratorDataset(source, { "x" }, options)
  if kind == "samples" then ds = ds:take(8) end
  if kind == "bare" then return ds end
  ds = ds:batch(2, { drop_remainder = kind == "dropped" })
  if kind == "taken" then ds = ds:take(3) end
  if kind == "skipped" then ds = ds:skip(1) end
  if kind == "whole" then ds = ds:take(99) end
  return ds
end
local Net = ms.nn.Cell:extend "Net"
function Net:init() self.w = self:parameter("w", { 1 }, "ones") end
function Net:rows(x) return x * self.w end
function Net:construct(x) return (self:rows(x)):mean() end
return ms.recipe { name = "readers", network = function() return Net() end,
  dataset = function() return dataset(p.shards) end, eval_dataset = function() return dataset(p.eval) end,
  optimizer = ms.nn.SGD { learning_rate = 0.0 },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true } }
"""


def check_notes():
    """What depends on the number of ranks is said."""
    with open("readers.lua", "w", encoding="utf-8") as file:
        file.write(READERS)
    for ranks, given, says in (
            (1, "eval=parts", ""), (2, "eval=shared", ""),
            (2, "eval=parts", "eval: 1 of 13 samples count twice, since num_shards = 2 makes parts of equal length"),
            (2, "eval=iterator", "eval: each of 2 ranks runs the iterator whole: a sample counts 2 times"),
            (1, "eval=dropped", "eval: samples that fill no batch are left out: 1 of 13;"),
            (2, "eval=taken", "eval: take behind batch counts batches of all 2 ranks, of 4 samples: another number"),
            (2, "eval=skipped", "eval: skip behind batch counts batches of all 2 ranks, of 4 samples: another number"),
            (2, "eval=bare", "eval: 1 of 13 samples are left out: of a dataset without batch each of 2 ranks gets as"),
            (1, "eval=bare", ""), (1, "eval=taken", ""), (2, "eval=samples", ""), (2, "eval=whole", ""),
            (2, "shards=same", "the parts of the dataset are not one for each of 2 ranks")):
        done = subprocess.run([MSLUA, "train", "readers.lua", "--max-steps", "1", "-n", str(ranks), given],
                              env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
        check(done.returncode == 0, done)
        notes = [line for line in done.stderr.splitlines() if "note: eval: " in line or "note: the parts " in line]
        check(says in "\n".join(notes) if says else not notes, (ranks, given, done))
    with open("size.lua", "w", encoding="utf-8") as file:
        file.write("""local ms = require "mslua"
ms.communication.init()
ms.set_auto_parallel_context { parallel_mode = "data_parallel" }
local rows = ms.dataset.NumpySlicesDataset({ ms.ones { 13, 2 } }, { "x" })
print(("%d samples, %d batches"):format(rows:get_dataset_size(), rows:batch(2):get_dataset_size()))
""")
    for ranks, batches in ((1, 7), (2, 4), (3, 3)):
        text = run("run", "size.lua", "-n", str(ranks))
        check("13 samples, %d batches" % batches in text, (ranks, text))


main()
