#!/usr/bin/env python3
"""mslua export writes every recipe: export_test.py MSLUA. mslua lr-find suggests a learning rate.

Reads the files without an ONNX library: names are defined before use, dimensions of the batch are open, weights and
metadata are there. tools/golden/check_onnx.js compares results with ONNX Runtime.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

MSLUA = os.path.abspath(sys.argv[1])
RECIPES = os.path.join(os.getcwd(), "recipes")
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "export")
os.makedirs(WORK, exist_ok=True)
os.chdir(WORK)
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", XDG_RUNTIME_DIR=tempfile.mkdtemp(prefix="mse", dir="/tmp"),
                   HOME=WORK, XDG_CACHE_HOME=WORK)


def mslua(*words, code=0):
    done = subprocess.run([MSLUA, *words], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def message(wire):
    """The fields of a message of protocol buffers: number -> values."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = wire[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(wire):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 5:
            value = struct.unpack("<f", wire[at:at + 4])[0]
            at += 4
        else:
            size = varint()
            value = wire[at:at + size]
            at += size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def texts(fields, number):
    return [value.decode() for value in fields.get(number, [])]


def dims_of(info):
    shape = message(message(message(message(info)[2][0])[1][0])[2][0])
    return [message(d).get(1, message(d).get(2))[0] for d in shape.get(1, [])]


def check(path):
    """Names, dimensions and metadata of a file; gives its metadata."""
    model = message(open(path, "rb").read())
    assert model[1] == [8] and message(model[8][0])[2] == [17], path
    graph = message(model[7][0])
    known = set(texts({1: [name for t in graph.get(5, []) for name in message(t)[8]]}, 1))
    for info in graph[11]:
        known.add(texts(message(info), 1)[0])
        assert dims_of(info)[0] == b"batch", (path, dims_of(info))
    for node in graph[1]:
        fields = message(node)
        for name in texts(fields, 1):
            assert name in known, (path, texts(fields, 4), name)
        for name in texts(fields, 2):
            assert name not in known, (path, name)
            known.add(name)
    for info in graph[12]:
        assert texts(message(info), 1)[0] in known and dims_of(info)[0] in (b"batch", b"64*batch"), dims_of(info)
    return dict(zip(*[iter(t for entry in model[14] for t in texts(message(entry), 1) + texts(message(entry), 2))] * 2))


def recipe(name, data, *more):
    path = name if name.endswith(".lua") else os.path.join(RECIPES, name + ".lua")
    stem = os.path.basename(path)[:-len(".lua")]
    words = [path, *more]
    if data:
        if not os.path.exists(data):
            mslua("data", "make", data, data, "--samples", "2000" if data != "text" else "20000")
        words.append("data_path=" + data)
    mslua("train", *words, "--out", stem, "--no-attach", "train.max_steps=2")
    mslua("export", *words, stem + ".onnx", "--ckpt", stem + "/ckpt")
    found = check(stem + ".onnx")
    assert found["recipe"] == stem and found["step"] == "2", found
    return words, found


SMOKE = ("--preset", "smoke")
recipe("quickstart", "")
words, found = recipe("lenet_mnist", "mnist", *SMOKE)
steps = [t["kind"] for op in json.loads(found["preprocessing"]) for t in op["transforms"]]
assert steps == ["type_cast", "resize", "rescale", "normalize", "hwc2chw"], steps
words, found = recipe("resnet18_cifar10", "cifar10", *SMOKE)
assert json.loads(found["labels"])[3] == "cat", found
size = os.path.getsize("resnet18_cifar10.onnx")
mslua("export", *words, "bf16.onnx", "--ckpt", "resnet18_cifar10/ckpt", "--dtype", "bf16")
check("bf16.onnx")
assert os.path.getsize("bf16.onnx") < 0.75 * size
recipe("resnet50_cifar10", "cifar10", *SMOKE)
recipe("char_gpt", "text", *SMOKE, "vocab=65")
recipe("examples/circle", "")
recipe("examples/pipeline", "")
BAD = """local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local Net = nn.Cell:extend "Net"
function Net:init() self.a = nn.Dense(2, 2) end
function Net:construct(x)
  return self.a(x) * x.shape[1] ^ 0.5
end
local function rows() return ms.dataset.NumpySlicesDataset({ ms.ones { 8, 2 }, ms.ones { 8, 2 } }):batch(4) end
return ms.recipe { name = "bad", dataset = rows, network = function() return Net() end, loss = nn.MSELoss(),
  optimizer = nn.SGD { learning_rate = 0.1 }, checkpoint = { save_checkpoint_steps = 1 } }
"""
with open("bad.lua", "w", encoding="utf-8") as out:
    out.write(BAD)
mslua("train", "bad.lua", "--out", "bad", "--no-attach")
error = mslua("export", "bad.lua", "bad.onnx", "--ckpt", "bad/ckpt", code=2).stderr
assert "bad.lua:6: export: constant: a number in it is made of the size of the batch" in error, error
# A number that follows the rows of some batches alone.
for number, says in (("math.min(x.shape[1], 4)", "a number in it is made of the size of the batch"),
                     ("(x.shape[1] % 2 == 0 and ops.exp(x) or x)", "computes other operators for another size"),
                     ("(x.shape[1] > 16 and ops.exp(x) or x)", "computes other operators for another size")):
    with open("some.lua", "w", encoding="utf-8") as out:
        out.write(BAD.replace("x.shape[1] ^ 0.5", number))
    mslua("train", "some.lua", "--out", "some", "--no-attach")
    error = mslua("export", "some.lua", "some.onnx", "--ckpt", "some/ckpt", code=2).stderr
    assert says in error and not os.path.exists("some.onnx"), error
# A parameter with 12 rows, one of the sizes that are tried, in another shape.
with open("twelve.lua", "w", encoding="utf-8") as out:
    out.write(BAD.replace("self.a = ", 'self.w = self:parameter("w", { 12, 2 }, "ones") self.a = ')
              .replace("x.shape[1] ^ 0.5", "self.w:reshape { 4, 6 }:mean()"))
mslua("train", "twelve.lua", "--out", "twelve", "--no-attach")
mslua("export", "twelve.lua", "twelve.onnx", "--ckpt", "twelve/ckpt")
check("twelve.onnx")
# What is divided by the rows of a batch, as a mean over them is, holds for any batch.
with open("mean.lua", "w", encoding="utf-8") as out:
    out.write(BAD.replace("x.shape[1] ^ 0.5", "(1 / x.shape[1]) - ops.reduce_mean(x, 1)"))
mslua("train", "mean.lua", "--out", "mean", "--no-attach")
mslua("export", "mean.lua", "mean.onnx", "--ckpt", "mean/ckpt")
check("mean.onnx")
# Random numbers read the number of the step, which no line of the recipe names: they are named themselves.
with open("random.lua", "w", encoding="utf-8") as out:
    out.write(BAD.replace("x.shape[1] ^ 0.5", "ms.rand { 2 }"))
mslua("train", "random.lua", "--out", "random", "--no-attach")
error = mslua("export", "random.lua", "random.onnx", "--ckpt", "random/ckpt", code=2).stderr
assert re.search(r"^mslua: error: random.lua:6: export: \w+ has no ONNX form", error, re.M), error
assert "step" not in error.split("error:")[1], error

# A reshape to the recipe's batch size: its own line is named, whether it fails, what follows does, or nothing.
WIDE = BAD.replace("{ 8, 2 }", "{ 8, 4 }").replace("Dense(2, 2)", "Dense(4, 4)")
for body, wanted in (
        ("self.a(x:reshape(4, 4))", ("f32[7,4] has 28 elements, [4,4] has 16", "export traces the network with 7 rows",
                                     "its batch size of 4, give -1 or x.shape[1]")),
        ("self.a(x:reshape(4, -1))", ("export: this reshape makes f32[4,7] of f32[7,4]: it fixes the batch at 4 rows",
                                      "fix: give -1 or x.shape[1]")),
        ("self.a(x):reshape(4, -1):sum(-1, true) * ms.ones { 1, 4 }", ("f32[4,7] of f32[7,4]", "4 rows"))):
    with open("fixed.lua", "w", encoding="utf-8") as out:
        out.write(WIDE.replace("self.a(x) * x.shape[1] ^ 0.5", body))
    mslua("train", "fixed.lua", "--out", "fixed", "--no-attach")
    error = mslua("export", "fixed.lua", "fixed.onnx", "--ckpt", "fixed/ckpt", code=2).stderr
    assert "fixed.lua:6: " in error and error.count("\n") == 1 and all(part in error for part in wanted), error
# What is wrong whatever the number of rows is says nothing of rows.
with open("pair.lua", "w", encoding="utf-8") as out:
    out.write(BAD.replace("self.a(x) * x.shape[1] ^ 0.5", "{ one = self.a(x) }"))
error = mslua("export", "pair.lua", "pair.onnx", code=2).stderr
assert "pair.lua:6: export: Net gives a table of outputs" in error and "rows" not in error, error
assert "ends in .onnx" in mslua("export", "bad.lua", "bad.txt", code=2).stderr

# lr-find: a geometric series of rates, over an epoch's end (64 steps) too, a suggestion within it, nothing saved.
before = sorted(os.listdir("."))
curve = [json.loads(line) for line in mslua("lr-find", os.path.join(RECIPES, "examples/circle.lua"), "--steps", "90",
                                            "--json").stdout.splitlines()]
rates = [point["lr"] for point in curve[:-1]]
assert len(rates) >= 10 and abs(rates[0] - 1e-6) < 1e-9 and all(a < b for a, b in zip(rates, rates[1:])), rates
ratios = [b / a for a, b in zip(rates, rates[1:])]
assert max(ratios) - min(ratios) < 1e-4 and 1e-5 < curve[-1]["suggested"] < 10, curve[-1]
assert sorted(os.listdir(".")) == before
# Where the loss becomes infinite the curve ends, and there is a suggestion all the same.
with open("grows.lua", "w", encoding="utf-8") as out:
    out.write("""
local ms = require "mslua"
local nn = ms.nn
local x = ms.randn({ 64, 4 }, "float32", "x")
return ms.recipe {
  name = "grows", seed = 1, network = nn.SequentialCell { nn.Dense(4, 4), nn.Dense(4, 4), nn.Dense(4, 4) },
  loss = function(output, label) return ms.ops.reduce_mean((output - label) ^ 4) * 1e30 end,
  optimizer = nn.SGD { learning_rate = 1 }, dataset = ms.dataset.NumpySlicesDataset({ x, x }, { "x", "y" }):batch(8),
  train = { epochs = 1 },
}
""")
grows = mslua("lr-find", "grows.lua", "--steps", "60", "--json").stdout.splitlines()
assert "suggested" in json.loads(grows[-1]) and len(grows) < 60, grows
os.remove("grows.lua")
# The batches of the starter have much noise.
mslua("init", "starter")
for seed in ("1", "2", "3"):
    found = json.loads(mslua("lr-find", "starter/recipe.lua", "--seed", seed, "--json").stdout.splitlines()[-1])
    assert found["suggested"] and 0.003 < found["suggested"] < 0.5, found
shutil.rmtree("starter")
