#!/usr/bin/env python3
"""mslua predict: pictures, records, numbers and text give what evaluation computes: predict_test.py MSLUA

The accuracy over digits in files is that of `mslua eval` on the same rows; bad files give one line.
"""
import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

MSLUA = os.path.abspath(sys.argv[1])
RECIPES = os.path.join(os.getcwd(), "recipes")
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "predict")
os.makedirs(WORK, exist_ok=True)
os.chdir(WORK)
os.makedirs("tmp", exist_ok=True)
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", XDG_RUNTIME_DIR=tempfile.mkdtemp(prefix="msp", dir="/tmp"),
                   HOME=WORK, XDG_CACHE_HOME=WORK)
ROWS = 203  # more than six batches of 32


def mslua(*words, stdin="", code=0):
    done = subprocess.run([MSLUA, *words], input=stdin, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def fails(text, *words, stdin="", code=None):
    done = subprocess.run([MSLUA, *words], input=stdin, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("mslua: error: ")]
    assert done.returncode not in (0, None) and len(errors) == 1 and text in errors[0], (words, text, done)
    assert code in (None, done.returncode), (words, done.returncode, code)


def lines(*words, stdin=""):
    return [json.loads(line) for line in mslua("predict", *words, "--json", stdin=stdin).stdout.splitlines()]


def png(pixels, width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def put(name, data):
    with open(name, "wb") as out:
        out.write(data)


def digits():
    """Test digits as files give the accuracy of eval."""
    recipe = os.path.join(RECIPES, "lenet_mnist.lua")
    mslua("data", "make", "mnist", "mnist", "--samples", str(5 * ROWS))
    mslua("train", recipe, "data_path=mnist", "--preset", "smoke", "--out", "digits", "--no-attach",
          "train.max_steps=30")
    with gzip.open("mnist/t10k-images-idx3-ubyte.gz") as images, gzip.open("mnist/t10k-labels-idx1-ubyte.gz") as labels:
        pixels, classes = images.read()[16:], labels.read()[8:]
    assert len(classes) == ROWS
    names = []
    for i, label in enumerate(classes):
        names.append("%d_%d.png" % (i, label))
        put(names[-1], png(pixels[784 * i:784 * (i + 1)], 28, 28))
    words = (recipe, "data_path=mnist", "--ckpt", "digits/ckpt")
    found = lines(*words, *names)
    assert [one["file"] for one in found] == names
    right = sum(one["class"] == label for one, label in zip(found, classes))
    measured = json.loads(mslua("eval", *words, "--json").stdout)["top1"]
    assert measured == float("%.9g" % (right / ROWS)) and 0 < right < ROWS, (measured, right)
    for one in found:
        top = one["top"]
        assert len(top) == 5 and top[0]["class"] == one["class"] and one["label"] == str(one["class"])
        assert all(a["probability"] >= b["probability"] for a, b in zip(top, top[1:]))
    # A file by itself, stdin, and its place among others change nothing.
    alone = lines(*words, names[70], "--top", "3")[0]
    assert len(alone["top"]) == 3 and alone["class"] == found[70]["class"]
    # The configuration of a run folder has the weights of that folder.
    assert lines("digits/config.lua", names[70], "--top", "3") == [alone]
    best = mslua("predict", "digits/config.lua", names[70], "--ckpt", "best")
    assert "weights of digits/ckpt/best/" in best.stderr, best
    newest = os.listdir("digits/ckpt/best")[0]
    mslua("ckpt", "convert", "digits/ckpt/best/" + newest, "converted.safetensors", "--to", "safetensors")
    # A copy of the recipe may have the name of the module that it requires, and so may that of its configuration.
    os.makedirs("copies")
    shutil.copy(recipe, "copies/lenet.lua")
    assert lines("copies/lenet.lua", *words[1:], names[70], "--top", "3") == [alone]
    mslua("train", "copies/lenet.lua", "data_path=mnist", "--preset", "smoke", "--out", "copies/run", "--no-attach",
          "train.max_steps=2")
    assert len(lines("copies/run/config.lua", names[70])) == 1
    assert abs(alone["top"][0]["probability"] - found[70]["top"][0]["probability"]) < 1e-5
    assert [one["file"] for one in lines(*words, names[3], names[1])] == [names[3], names[1]]
    bad_pictures(words, names[0])


def bad_pictures(words, good):
    put("text.png", b"no picture")
    put("short.png", png(bytes(784), 28, 28)[:60])
    put("colours.ppm", b"P6 1 1 255\n\1\2\3")
    fails("text.png is neither a JPEG nor a PNG nor a PPM file", "predict", *words, good, "text.png")
    for names in (["short.png"], ["short.png", good], [good, "short.png"]):
        fails("short.png is a corrupt PNG", "predict", *words, *names, code=3)
    fails("colours.ppm has 3 channels, expected 1", "predict", *words, "colours.ppm")
    fails("nosuch.png", "predict", *words, "nosuch.png")
    fails("too few arguments", "predict", *words)
    with open(words[0], encoding="utf-8") as source:
        text = source.read()
    with open("labels.lua", "w", encoding="utf-8") as out:
        out.write(text.replace('  name = "lenet_mnist",', '  name = "lenet_mnist",\n  labels = { "a", "b" },'))
    line = text[:text.index('  name = "lenet_mnist"')].count("\n") + 2
    fails("labels.lua:%d: labels: expected 10 names, one for each number that the network gives, got 2" % line,
          "predict", "labels.lua", *words[1:], good)
    with open("names.lua", "w", encoding="utf-8") as out:
        names = ", ".join('"digit %d"' % i for i in range(10))
        out.write(text.replace('  name = "lenet_mnist",', '  name = "lenet_mnist",\n  labels = { %s },' % names))
    one = lines("names.lua", *words[1:], good)[0]
    assert one["label"] == "digit %d" % one["class"], one


RESIZED = """
local ms = require "mslua"
local vision = ms.dataset.vision
local p = ms.params { by = "bilinear", shorter = false }
local function rows(usage)
  return ms.dataset.MnistDataset("mnist", usage):map { operations = {
    vision.Resize(p.shorter and 28 or { 28, 28 }, p.by), vision.Rescale(1 / 255, 0), vision.HWC2CHW() },
    input_columns = "image" }:batch(4)
end
local Net = ms.nn.Cell:extend "Net"
function Net:init() self.w = self:parameter("w", { 1, 10 }, "ones") end
function Net:construct(x) return ms.ops.reduce_mean(x, { 3, 4 }) * self.w end
return ms.recipe {
  name = "resized", dataset = function() return rows "train" end, eval_dataset = function() return rows "test" end,
  network = function() return Net() end, loss = ms.nn.CrossEntropyLoss(), optimizer = ms.nn.SGD { learning_rate = 0 },
  train = { max_steps = 1 }, checkpoint = {},
}
"""


def resized_pictures():
    """Pictures of other sizes than the data's go with transforms that give all of them one size."""
    with open("resized.lua", "w", encoding="utf-8") as out:
        out.write(RESIZED)
    mslua("train", "resized.lua", "--no-attach", "--out", "resized")
    put("large.png", png(bytes(40 * 60), 40, 60))
    for by in ("bilinear", "bicubic", "nearest"):
        assert len(lines("resized.lua", "large.png", "--ckpt", "resized", "by=" + by)) == 1
        fails("large.png has 60x40 pixels (height x width), expected 28x28", "predict", "resized.lua", "large.png",
              "--ckpt", "resized", "by=" + by, "shorter=true")


RECORDS = """
local ms = require "mslua"
local nn = ms.nn
local function rows(file)
  return ms.dataset.CsvDataset(file, { columns = { job = "category", risk = "category" }, label = "risk",
    categories_from = "train.csv", pack = true }):shuffle(100):batch(4)
end
local Net = nn.Cell:extend "Net"
function Net:init() self.table, self.head = nn.Embedding(3, 4), nn.Dense(6, 2) end
function Net:construct(x, c) return self.head(ms.ops.concat({ x, self.table(c):reshape(x.shape[1], 4) }, 2)) end
return ms.recipe {
  name = "records", labels = { "high", "low" }, dataset = function() return rows "train.csv" end,
  network = function() return Net() end, loss = nn.CrossEntropyLoss(), optimizer = nn.Adam { learning_rate = 0.05 },
  train = { epochs = 20 }, checkpoint = { save_checkpoint_steps = 10 },
}
"""


def records():
    """CSV rows with and without their label, with the categories of the training file."""
    people = ["%d,%s,%d,%s" % (i % 7, "abc"[i % 3], i % 5, "low" if i % 7 > 3 else "high") for i in range(40)]
    put("train.csv", ("age,job,hours,risk\n" + "\n".join(people) + "\n").encode())
    put("new.csv", b"age,job,hours\n6,b,2\n0,b,2\n")
    with open("records.lua", "w", encoding="utf-8") as out:
        out.write(RECORDS)
    mslua("train", "records.lua", "--out", "records", "--no-attach")
    words = ("records.lua", "--ckpt", "records/ckpt")
    found = lines(*words, "train.csv")
    assert [one["file"] for one in found] == ["train.csv:%d" % (i + 2) for i in range(40)], found[:3]
    assert sum(one["label"] == row.split(",")[3] for one, row in zip(found, people)) > 35
    new = lines(*words, "new.csv")
    assert [one["label"] for one in new] == ["low", "high"], new
    piped = lines(*words, "-", stdin="age,job,hours\n6,b,2\n")
    assert piped[0]["file"] == "-:2" and piped[0]["top"] == new[0]["top"], piped
    fails("-:2: ", "predict", *words, "-", stdin="age,job,hours\nsix,b,2\n")
    fails("which can be read once", "predict", *words, "-", "-")


ONE_NUMBER = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { likely = false }
local function rows()
  return ms.dataset.CsvDataset("train.csv", { columns = { job = "skip", risk = "category" }, label = "risk",
    pack = true }):map { operations = { ms.dataset.transforms.TypeCast(ms.float32) }, input_columns = { "risk" } }
    :batch(4)
end
local Net = nn.Cell:extend "Net"
function Net:init() self.head, self.sigmoid = nn.Dense(2, 1), nn.Sigmoid() end
function Net:construct(x)
  local y = self.head(x * 0.2)
  return (p.likely and self.sigmoid(y) or y):reshape(x.shape[1])
end
return ms.recipe {
  name = "one_number", labels = { "high", "low" }, dataset = rows, eval_dataset = rows,
  network = function() return Net() end, loss = p.likely and nn.BCELoss() or nn.BCEWithLogitsLoss(),
  optimizer = nn.Adam { learning_rate = 0.05 }, train = { epochs = 40 }, eval = { metrics = { "accuracy" } },
  checkpoint = { save_checkpoint_steps = 10 },
}
"""


def one_number():
    """One number a row is the logit of the second of two classes, of BCELoss its probability."""
    with open("one.lua", "w", encoding="utf-8") as out:
        out.write(ONE_NUMBER)
    with open("train.csv", encoding="utf-8") as rows:
        wanted = [row.strip().split(",")[3] for row in rows][1:]
    results = []
    for likely in ("false", "true"):
        words = ("one.lua", "likely=" + likely)
        mslua("train", *words, "--out", "one_" + likely, "--no-attach")
        words += ("--ckpt", "one_%s/ckpt" % likely)
        found = lines(*words, "train.csv")
        right = sum(one["label"] == label for one, label in zip(found, wanted)) / len(wanted)
        measured = json.loads(mslua("eval", *words, "--json").stdout)["accuracy"]
        assert measured == float("%.9g" % right) and right > 0.8, (measured, right)
        for one in found:
            assert len(one["top"]) == 2 and abs(sum(t["probability"] for t in one["top"]) - 1) < 1e-6, one
            assert one["top"][0]["probability"] >= 0.5 and one["label"] == ["high", "low"][one["class"]], one
        results.append(found)
    for logit, probability in zip(*results):
        assert abs(logit["top"][0]["probability"] - probability["top"][0]["probability"]) < 1e-3, (logit, probability)


def numbers():
    """Rows of numbers for a network of one input; a regression gives its numbers."""
    recipe = os.path.join(RECIPES, "quickstart.lua")
    mslua("train", recipe, "--out", "numbers", "--no-attach")
    row = ",".join(["0.5"] * 32)
    words = (recipe, "--ckpt", "numbers/ckpt")
    found = lines(*words, "-", stdin="\n".join([row] * 3) + "\n")
    assert len(found) == 3 and len(found[0]["output"]) == 16 and found[0]["output"] == found[2]["output"], found
    fails("-:2: 2 columns, expected 32", "predict", *words, "-", stdin=row + "\n1,2\n")
    fails("--top has no effect", "predict", *words, "-", "--top", "2", stdin=row + "\n")
    for text in ("[%s]\n" % row, '{"x": [%s]}\n' % row, "\n [1, 2]\n"):
        fails("predict: -: expected CSV rows of 32 numbers without a header, one line for each sample", "predict",
              *words, "-", stdin=text)
    put("in.jsonl", ("[%s]\n" % row).encode())
    fails("predict: in.jsonl: expected CSV rows of 32 numbers", "predict", *words, "in.jsonl")


SHAPED = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { shape = { 2, 3 }, gives = "largest", loss = "mse", labels = {}, augmented = false,
  zipped = false }
local function rows()
  local n, shape = 8, { 8, unpack(p.shape) }
  local read = ms.dataset.NumpySlicesDataset
  local made = read({ ms.zeros(shape), ms.zeros { n, 1 } }, { "x", "y" })
  if p.zipped then made = read({ ms.zeros(shape) }, { "x" }):zip(read({ ms.zeros { n, 1 } }, { "y" })) end
  return made:map { operations = function(x) return x * 0.01 end, input_columns = "x" }
    :map { operations = function(y) return y + 1 end, input_columns = "y" }:rename("x", "data"):batch(4)
end
local function pictures()
  local vision = ms.dataset.vision
  return ms.dataset.MnistDataset("mnist", "train"):map { operations = { vision.RandomCrop(28, 4),
    vision.RandomHorizontalFlip(), vision.Rescale(1 / 255, 0), vision.HWC2CHW() }, input_columns = "image" }:batch(4)
end
local Net = nn.Cell:extend "Net"
function Net:init()
  self.w = self:parameter("w", { 1 }, "ones")
  self.drawn = ms.rand { 3 }  -- a constant
end
local results = {
  largest = function(x) return ops.reduce_max(x, 3) end,
  sum = function(x) return ops.reduce_sum(x) end,
  both = function(x) return { x, x } end,
  two = function(x) return x, x end,
  log = function(x) return ops.log(x) end,
  logits = function(x) return x * 100 end,
  places = function(x) return x:reshape(x.shape[1], 1, 2, 3) end,
  drawn = function(x, drawn) return x * 0 + drawn end,
  picture = function(x) return ops.reduce_mean(x, { 2, 3 }) end,
}
function Net:construct(x) return results[p.gives](x * self.w, self.drawn) end
if p.gives == "two" then function Net:predict(x) return self(x) end end
local function loss(output, y) return ops.reduce_mean(output) + ops.reduce_mean(y) end
return ms.recipe {
  name = "shaped", labels = #p.labels > 0 and p.labels or nil, dataset = p.augmented and pictures or rows,
  network = function() return Net() end,
  loss = p.loss == "bce" and nn.BCEWithLogitsLoss() or loss, optimizer = nn.SGD { learning_rate = 0 },
  train = { epochs = 1 }, checkpoint = { save_checkpoint_steps = 1 },
}
"""


def shaped():
    """Rows of numbers get the samples' shape and the data's operations; results are those of the network."""
    put("shaped.lua", SHAPED.encode())
    mslua("train", "shaped.lua", "--no-attach", "--out", "shaped", "--seed", "5")
    words = ("shaped.lua", "--ckpt", "shaped/ckpt")
    found = lines(*words, "-", stdin="1,2,3,10,20,30\n-1,-2,-3,-6,-5,-4\n")
    assert [one["file"] for one in found] == ["-:1", "-:2"], found
    for one, wanted in zip(found, ([0.03, 0.3], [-0.01, -0.04])):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one["output"], wanted)), found
    assert found == lines(*words, "-", "zipped=true", stdin="1,2,3,10,20,30\n-1,-2,-3,-6,-5,-4\n")
    row = ["-", "shape={3}"]
    fails("a prediction has a row for each sample of a batch, of 1 here", "predict", *words, *row, "gives=sum",
          stdin="1,2,3\n")
    fails("Net gives a table of outputs, a prediction is one tensor: give the network a method predict(x)",
          "predict", *words, *row, "gives=both", stdin="1,2,3\n")
    fails("predict(x) gives one tensor, it returned 2 values", "predict", *words, *row, "gives=two", stdin="1,2,3\n")
    labels = 'labels={"any","small","big"}'
    # Classes that do not exclude each other, and classes of which one is so.
    stdin = "5,4,-4\n"
    several = lines(*words, *row, "gives=logits", "loss=bce", labels, stdin=stdin)[0]["top"]
    assert [(one["label"], round(one["probability"], 4)) for one in several] == [
        ("any", 0.9933), ("small", 0.982), ("big", 0.018)], several
    one_of = lines(*words, *row, "gives=logits", labels, stdin=stdin)[0]["top"]
    assert abs(sum(one["probability"] for one in one_of) - 1) < 1e-6, one_of
    # A row whose result is NaN keeps its line.
    done = mslua("predict", *words, *row, "gives=log", "--json", stdin="1,2,3\n1,-2,3\n", code=7)
    assert [json.loads(line)["output"][1] is None for line in done.stdout.splitlines()] == [False, True], done
    done = mslua("predict", *words, *row, "gives=log", labels, "--json", stdin="1,2,3\n1,-2,3\n0,0,0\n", code=7)
    assert [json.loads(line)["class"] for line in done.stdout.splitlines()] == [2, None, None], done
    fails("the network gives classes for each place of a sample, float32[1, 1, 2, 3], and predict prints those of a "
          "whole sample", "predict", *words, "-", "gives=places", labels, stdin="1,2,3,4,5,6\n")
    # What the network draws when it is made follows from the training's seed, for all that use the weights.
    drawn = lines(*words, *row, "gives=drawn", stdin=stdin)
    assert drawn == lines(*words, *row, "gives=drawn", "seed=5", stdin=stdin) != lines(
        *words, *row, "gives=drawn", "seed=6", stdin=stdin), drawn
    models = []
    for seed in ([], ["seed=5"], ["seed=6"]):
        mslua("export", "shaped.lua", "drawn.onnx", "shape={3}", "gives=drawn", "--ckpt", "shaped/ckpt", *seed)
        with open("drawn.onnx", "rb") as model:
            models.append(model.read())
    assert models[0] == models[1] != models[2]
    # Random transforms of training's data do not change what is predicted.
    picture = bytes(10 * (i % 25) for i in range(784))
    put("grey.png", png(picture, 28, 28))
    done = mslua("predict", *words, "grey.png", "grey.png", "augmented=true", "gives=picture", "--json")
    found = [json.loads(line)["output"] for line in done.stdout.splitlines()]
    rows = [sum(picture[column::28]) / 28 / 255 for column in range(28)]
    mslua("export", "shaped.lua", "picture.onnx", "augmented=true", "gives=picture", "--ckpt", "shaped/ckpt")
    with open("picture.onnx", "rb") as model:
        steps = model.read()
    assert b'"kind": "center_crop"' in steps and b'"kind": "random' not in steps, steps[-800:]
    for output in found:
        assert len(output) == 28 and all(abs(a - b) < 1e-5 for a, b in zip(output, rows)), (found, rows)
    assert "are left out: random_crop, random_horizontal_flip" in done.stderr, done


WRAPPED = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { how = "bare" }
local Net = nn.Cell:extend "Net"
function Net:init() self.fc = nn.Dense(3, 2) end
function Net:construct(x, y)
  if p.how == "loss" or p.how == "outside" then return self.fc(x) end
  return ops.reduce_mean(ops.square(self.fc(x) - y))
end
if p.how == "bare" or p.how == "own" then function Net:predict(x) return self.fc(x) end end
local networks = {
  bare = function() return Net() end,
  own = function() return nn.PipelineCell(Net(), 2) end,
  loss = function() return nn.PipelineCell(nn.WithLossCell(Net(), nn.MSELoss()), 2) end,
  outside = function() return nn.PipelineCell(Net(), 2) end,
  none = function() return nn.PipelineCell(Net(), 2) end,
}
return ms.recipe {
  name = "wrapped", network = networks[p.how],
  dataset = function() return ms.dataset.NumpySlicesDataset({ ms.randn { 8, 3 }, ms.ones { 8, 2 } }):batch(4) end,
  loss = p.how == "outside" and nn.MSELoss() or nil, optimizer = nn.SGD { learning_rate = 0.1 },
  checkpoint = { save_checkpoint_steps = 1 },
}
"""


def wrapped():
    """Networks in nn.PipelineCell and nn.WithLossCell predict, and are exported, as without these."""
    put("wrapped.lua", WRAPPED.encode())
    mslua("train", "wrapped.lua", "--no-attach", "--out", "wrapped")
    words = ("wrapped.lua", "--ckpt", "wrapped/ckpt", "-")
    wanted = lines(*words, stdin="1,2,3\n-1,0,4\n")
    assert len(wanted) == 2 and len(wanted[0]["output"]) == 2, wanted
    written = set()
    for how in ("bare", "own", "loss", "outside"):
        assert lines(*words, "how=" + how, stdin="1,2,3\n-1,0,4\n") == wanted, how
        written.add(mslua("export", "wrapped.lua", "wrapped.onnx", "how=" + how, "--ckpt", "wrapped/ckpt").stdout)
    assert written == {"wrapped.onnx: 8 operators, 0.00 MiB of weights\n"}, written
    fails("or what its method predict(x) gives", "predict", *words, "how=none", stdin="1,2,3\n")
    fails("or what its method predict(x) gives", "export", "wrapped.lua", "wrapped.onnx", "how=none", "--ckpt",
          "wrapped/ckpt")


def text():
    """The character that follows a text; a text longer than a window counts by its end."""
    recipe = os.path.join(RECIPES, "char_gpt.lua")
    mslua("data", "make", "text", "text", "--samples", "20000")
    with open("text/input.txt", encoding="utf-8") as source:
        vocabulary = sorted(set(source.read()))
    words = (recipe, "data_path=text", "vocab=%d" % len(vocabulary), "--preset", "smoke")
    mslua("train", *words, "--out", "gpt", "--no-attach")
    words += ("--ckpt", "gpt/ckpt")
    put("short.txt", b"the")
    put("long.txt", b"the king loves the crown. " * 10)
    put("end.txt", (b"the king loves the crown. " * 10)[-64:])
    found = lines(*words, "short.txt", "long.txt", "end.txt")
    assert found[1]["top"] == found[2]["top"] and found[0]["label"] in vocabulary, found
    put("strange.txt", b"the \xff")
    fails("strange.txt has the character byte 255", "predict", *words, "strange.txt")
    put("empty.txt", b"")
    fails("empty.txt: expected at least one token", "predict", *words, "empty.txt")


TEXT = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { files = { "whole.txt" }, format = "characters", from = "", vocab = 64 }
local function data(usage)
  local from = p.from ~= "" and p.from or nil
  local files = #p.files == 1 and p.files[1] or p.files
  return ms.dataset.TextDataset(files, { usage = usage, block = 8, format = p.format, characters_from = from })
    :batch(8, { drop_remainder = usage == "train" })
end
return ms.recipe {
  name = "files", seed = 1, dataset = function() return data "train" end,
  eval_dataset = function() return data "test" end,
  network = function()
    return require "gpt" { vocab = p.vocab, block = 8, layers = 1, heads = 1, dim = 8, dropout = 0 }
  end,
  loss = nn.CrossEntropyLoss(), optimizer = nn.Adam { learning_rate = 1e-2 }, train = { epochs = 1 },
  checkpoint = { save_checkpoint_steps = 1000 },
}
"""


def files_of_text():
    """Several files are one text, characters_from says what the ids are, tokens of 2 and of 4 bytes are the same."""
    # Each half lacks letters of the other.
    sheep, cows = (b"".join(text % (n * n) for n in range(200)) for text in (b"%d sheep, ", b"%d cows, "))
    whole = sheep + cows
    put("files.lua", TEXT.encode())
    put("whole.txt", whole)
    put("one.txt", sheep)
    put("two.txt", cows)
    put("begin.txt", b"7 sheep")
    both = 'files={"one.txt","two.txt"}'
    wanted = mslua("train", "files.lua", "--no-attach", "--out", "whole").stdout
    assert mslua("train", "files.lua", both, "--no-attach", "--out", "both").stdout == wanted
    told = ("--prompt", "12 s", "--max-new", "8", "--temperature", "0")
    assert lines("files.lua", both, "begin.txt", "--ckpt", "both") == lines("files.lua", "begin.txt", "--ckpt", "whole")
    wanted = mslua("generate", "files.lua", *told, "--ckpt", "whole").stdout
    assert mslua("generate", "files.lua", both, *told, "--ckpt", "both").stdout == wanted
    # Three letters alone have other ids than among all.
    put("few.txt", b"cow" * 200)
    few = ("files.lua", 'files={"few.txt"}', "from=whole.txt", "--ckpt", "whole")
    assert lines(*few, "begin.txt") == lines("files.lua", "begin.txt", "--ckpt", "whole")
    assert mslua("generate", *few, *told).stdout == wanted
    tokens = [byte % 64 for byte in whole]
    found = []
    for kind, code in (("uint16", "H"), ("uint32", "I")):
        put("%s.bin" % kind, struct.pack("<%d%s" % (len(tokens), code), *tokens))
        put("begin.%s" % kind, struct.pack("<7" + code, *tokens[:7]))
        words = ("files.lua", 'files={"%s.bin"}' % kind, "format=" + kind)
        mslua("train", *words, "--no-attach", "--out", kind)
        found.append([line["top"] for line in lines(*words, "begin." + kind, "--ckpt", kind)])
    assert found[0] == found[1], found
    put("odd", b"abc")
    fails("odd: expected at least one token of four bytes, got 3 bytes", "predict", *words, "odd", "--ckpt", kind)


def tokens_of_text():
    """A text becomes the tokens of the data's tokenizer; the likeliest one is what generate gives."""
    put("story.txt", b"the king loves the crown and the queen loves the king.\n" * 200)
    mslua("data", "tokenizer", "story.txt", "-o", "story", "--vocab", "300")
    mslua("data", "tokenize", "story.txt", "--tokenizer", "story", "-o", "story_ids")
    with open("story/tokenizer.json", encoding="utf-8") as tokenizer:
        vocab = max(json.load(tokenizer)["model"]["vocab"].values()) + 1
    words = ("files.lua", 'files={"story_ids"}', "format=tokens", "vocab=%d" % vocab)
    mslua("train", *words, "--no-attach", "--out", "story_run")
    words += ("--ckpt", "story_run")
    put("start.txt", b"the king lo")
    likeliest = lines(*words, "start.txt")[0]
    told = json.loads(mslua("generate", *words, "--prompt", "the king lo", "--max-new", "1", "--temperature", "0",
                            "--json").stdout)
    assert likeliest["class"] == told["ids"][0] and likeliest["label"] == told["text"], (likeliest, told)


digits()
resized_pictures()
records()
one_number()
numbers()
shaped()
wrapped()
text()
files_of_text()
tokens_of_text()
