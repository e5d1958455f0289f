#!/usr/bin/env python3
"""Recipes and arguments with one mistake each: bad_recipes.py MSLUA

Each ends with its exit code and one line, `mslua: error: recipe.lua:12: ...`, that names the place, what was expected
and what was given. A case is a mistake in RECIPE (text -> other text; `--@` marks the line that the error must name,
none where the mistake is in an argument), or arguments alone.
"""

import os
import resource
import subprocess
import sys

# Programs have at most 4 GiB. AddressSanitizer takes terabytes of addresses.
LIMITED = "ASAN_OPTIONS" not in os.environ
MSLUA = os.path.abspath(sys.argv[1])
ONLY = sys.argv[2:]  # names of cases

RECIPE = """\
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { lr = 0.1, epochs = 1, hidden = 4, task = "a", bias = true }
local Block = nn.Cell:extend "Block"
function Block:init(n) self.fc = nn.Dense(n, n) end
function Block:construct(x)
  return self.fc(x)
end
local Net = nn.Cell:extend "Net"
function Net:init()
  self.layers = nn.CellList { Block(4), Block(p.hidden), Block(4) }
  self.head = nn.Dense(4, 3)
end
function Net:construct(x)
  for _, block in ipairs(self.layers) do x = block(x) end
  return self.head(x)
end
local x, y = ms.ones { 64, 4 }, ms.zeros({ 64 }, ms.int32)
local loss = nn.CrossEntropyLoss()
return ms.recipe {
  name = "bad",
  network = function() return Net() end,
  loss = loss,
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 },
  dataset = function()
    return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(8)
  end,
  train = { epochs = p.epochs },
}
"""

HEAD = "  return self.head(x)\n"
DATA = "    return ms.dataset.NumpySlicesDataset({ x, y }, { \"x\", \"y\" }):batch(8)\n"
OPTIMIZER = "  optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 },\n"
TRAIN = "  train = { epochs = p.epochs },\n"
XY = "local x, y = ms.ones { 64, 4 }, ms.zeros({ 64 }, ms.int32)\n"
LOSS = "local loss = nn.CrossEntropyLoss()\n"
SAMPLE = "\n      return { 1, 2, 3, 4 }, ms.Tensor(0, ms.int32)\n    "

CASES = {}


def case(name, text, changes=(), code=2, args=(), verb="train", environment=None):
    assert name not in CASES, name
    CASES[name] = (text, changes, code, args, verb, environment or {})


def construct(name, body, text, **more):
    case(name, text, [(HEAD, body)], **more)


def train(name, keys, text, **more):
    case(name, text, [(TRAIN, "  train = { %s },  --@\n" % keys)], **more)


def optimizer(name, made, text, **more):
    case(name, text, [(OPTIMIZER, "  optimizer = %s,  --@\n" % made)], **more)


def data(name, made, text, **more):
    case(name, text, [(DATA, "    return %s  --@\n" % made)], **more)


def generator(name, body, text, **more):
    made = "    return ms.dataset.GeneratorDataset(function(i)%s end, { \"x\", \"y\" }, { length = 64 }):batch(8)\n"
    case(name, text, [(DATA, made % body)], **more)


def argument(name, args, text, **more):
    case(name, text, args=args, **more)


# ------------------------------------------------------------------------------------------------------------ networks
case("the second of three blocks", "Dense: in_channels is 5, the last dimension of x is 4: x is {8, 4}",
     [("  return self.fc(x)\n", "  return self.fc(x)  --@\n")], args=["hidden=5"])
case("the block is named", "(in Net/layers.1/fc)", [("  return self.fc(x)\n", "  return self.fc(x)  --@\n")],
     args=["hidden=5"])
case("a network of the library's cells", "Dense: in_channels is 6, the last dimension of x is 5: x is {8, 5}",
     [("  network = function() return Net() end,\n",
       "  network = function()\n    return nn.SequentialCell {\n      nn.Dense(4, 5),\n      nn.Dense(6, 3),  --@\n"
       "    }\n  end,\n")])
case("a function that ends in a cell's call",
     "Dense: in_channels is 6, the last dimension of x is 4: x is {8, 4} (in Dense)",
     [("  network = function() return Net() end,\n", "  network = function() return nn.Dense(6, 3) end,  --@\n")])
case("a network of the library that gets too long a text",
     "GPT: 5 tokens, the network takes at most block = 4 (in GPT)",
     [("  network = function() return Net() end,\n",
       "  network = function()\n    return require \"gpt\" { "
       "vocab = 3, block = 4, layers = 1, heads = 1, dim = 4 }  --@\n  end,\n"),
      (XY, "local x, y = ms.zeros({ 64, 5 }, ms.int32), ms.zeros({ 64, 5 }, ms.int32)\n")])
construct("product in the head", "  return ops.matmul(x, self.head.bias)  --@\n",
          "MatMul: x is float32[8, 4] and w is float32[3]: 4 columns against 3 rows")
construct("unknown operator", "  return ops.Relu(x)  --@\n", "there is no ms.ops.Relu (did you mean 'ReLU'?)")
construct("operator of another library", "  return ops.topk(x, 2)  --@\n", "ms.ops.top_k(x, k)")
construct("unknown method of a tensor", "  return x:vew(8, 4)  --@\n", "a tensor has no field or method 'vew'")
construct("reshape that does not fit", "  return x:reshape(3, 5)  --@\n", "f32[8,4] has 32 elements, [3,5] has 15")
construct("axis out of range", "  return ops.softmax(x, 3)  --@\n", "axis 3 is out of range for 2 dimensions")
construct("axis 0", "  return x:sum(0)  --@\n", "axis 0 does not exist: axes count from 1")
construct("f32 and i32", "  return x + ms.arange(4)  --@\n",
          "a is f32[8,4] and b is i32[4]: element types differ, and none is converted by itself; convert b with "
          ":astype(ms.float32)")
construct("if over a traced value", "  if x:sum() > 0 then x = x * 2 end  --@\n  return self.head(x)\n",
          "a traced value is compared in Lua")
construct("while over two traced values", "  while x:sum() < x:mean() do x = x * 2 end  --@\n  return self.head(x)\n",
          "use ops.less(x, y)")
construct("== of traced values", "  if x == x:sum() then x = x * 2 end  --@\n  return self.head(x)\n",
          "use ops.equal(x, y)")
construct("item of a traced value", "  local n = x:sum():item()  --@\n  return self.head(x) * n\n",
          "item() of a traced value: it has no elements")
construct("unknown field of a cell", "  return self.heat(x)  --@\n", "has no field 'heat' (did you mean 'head'?)")
construct("unknown method of a cell", "  return self:hed(x)  --@\n", "attempt to call method 'hed'")
construct("colon for a dot", "  return self:head(x)  --@\n", "call cells with a dot, self.head(x)")
construct("an argument too many", "  return self.head(x, x)  --@\n", "Dense: takes 1 argument (x), got 2")
case("construct without a return", "Net: expected one output for the loss, construct returned 0",
     [(HEAD + "end\n", "  x = self.head(x)\nend  --@\n")])
construct("two outputs and a loss", "  return self.head(x), x  --@\n", "construct returned 2")
construct("error in construct", "  error 'no more'  --@\n", "no more (in Net)")
construct("index of nothing", "  return x.shape[3][1]  --@\n", "attempt to index")
construct("construct called with a dot", "  return self.head.construct(x)  --@\n",
          "call a cell as self.fc(x), not self.fc.construct(x)")
construct("construct that calls itself", "  return self:construct(x)\n",
          "recipe.lua:7: the traced graph has more than 100000")
construct("functions without an end", "  local function f(n) return 1 + f(n) end  --@\n  return self.head(x) * f(1)\n",
          "stack overflow")
construct("slice out of range", "  return self.head(x[{ {}, { 2, 9 } }])  --@\n",
          "subscript 2 of f32[8,4]: expected 1 to 4, or -1 to -4 from the end, got 9")
construct("slice of too many dimensions", "  return self.head(x[{ 1, 1, 1 }])  --@\n",
          "expected a list of 1 to 2 subscripts, got 3")
construct("slice backwards", "  return self.head(x[{ { 5, 2 } }])  --@\n", "expected first not behind last, got {5, 2}")
construct("slice of words", "  return self.head(x[{ 'all' }])  --@\n", "expected an integer, {} for all")
construct("assignment to an element", "  x[1] = 0  --@\n  return self.head(x)\n", "cannot be changed")
case("plain list of cells", "would not be found: use nn.CellList",
     [("  self.layers = nn.CellList {", "  self.layers = {"), (" Block(4) }\n", " Block(4) }  --@\n")])
case("init that makes itself", "stack overflow",
     [("  self.head = nn.Dense(4, 3)\n", "  self.head = Net()\n")])
case("unknown key of a cell", "Dense: unknown key 'bias' (did you mean 'has_bias'?); keys: in_channels, out_channels",
     [("  self.head = nn.Dense(4, 3)\n", "  self.head = nn.Dense(4, 3, { bias = false })  --@\n")])
case("cell of another library", "there is no ms.nn.Linear: ms.nn.Dense",
     [("  self.head = nn.Dense(4, 3)\n", "  self.head = nn.Linear(4, 3)  --@\n")])
case("too few arguments of a cell", "Dense: out_channels is missing",
     [("  self.head = nn.Dense(4, 3)\n", "  self.head = nn.Dense(4)  --@\n")])
case("negative size", "out_channels: expected an integer, at least 1, got -3",
     [("  self.head = nn.Dense(4, 3)\n", "  self.head = nn.Dense(4, -3)  --@\n")])
if LIMITED:
    case("more memory than there is", "parameter 'head.weight' f32[500000000,4] needs 8000000000 bytes: out of memory",
         [("  self.head = nn.Dense(4, 3)\n", "  self.head = nn.Dense(4, 500000000)  --@\n")], code=4)
    construct("values that do not fit into memory",
              "  local columns = ops.expand_dims(x, 3) * ms.ones { 1, 1, 10000 }\n"
              "  local all = ops.expand_dims(columns, 4) * ms.ones { 1, 1, 1, 6000 }\n"
              "  x = ops.reduce_sum(all, { 3, 4 })\n" + HEAD,
              "out of memory", code=4)
case("network that is a class", "network: expected a Cell", [("return Net() end,\n", "return Net end,  --@\n")])
case("network that is nothing", "network: the function gave nothing",
     [("function() return Net() end,\n", "function() end,  --@\n")])

# -------------------------------------------------------------------------------------------------------------- losses
case("loss that gives nothing", "the loss function: expected a loss, one float number, got nil",
     [(LOSS, "local function loss(a)\n  local _ = a * 2\nend  --@\n")])
case("loss that gives rows", "the loss function: expected a loss, one float number, got float32{8, 3}",
     [(LOSS, "local function loss(a) return a * a end  --@\n")])
case("loss without a reduction", "expected a loss, one float number, got float32{8}",
     [(LOSS, "local loss = nn.CrossEntropyLoss \"none\"\n"), ("  loss = loss,\n", "  loss = loss,  --@\n")])
case("labels that are floats", "expected ids of classes, int32 or int64, got float32[8]",
     [(XY, "local x, y = ms.ones { 64, 4 }, ms.zeros { 64 }\n"), ("  loss = loss,\n", "  loss = loss,  --@\n")])
case("variable that there is not", "there is no variable 'los' (did you mean 'loss'?)",
     [("  loss = loss,\n", "  loss = los,  --@\n")])
case("names of fewer classes", "labels: expected 3 names, one for each number that the network gives, got 2",
     [(TRAIN, TRAIN + '  eval = { metrics = { "top1" } }, eval_dataset = function()\n'
              '    return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(8)\n  end,\n'
              '  labels = { "a", "b" },  --@\n')])
case("names of fewer classes in an export", "labels: expected 3 names, one for each number that the network gives",
     [(TRAIN, TRAIN + '  labels = { "a", "b" },  --@\n')], verb="export", args=("model.onnx",))
case("label out of range", "the label of record 6 is 3, expected 0 to 2 for 3 classes",
     [(XY, "local labels = {}\nfor i = 1, 64 do labels[i] = i == 14 and 3 or 0 end\n"
           "local x, y = ms.ones { 64, 4 }, ms.Tensor(labels, ms.int32)\n")], code=3)
case("record of a label out of range", "(epoch 1, batch 2 of the epoch: NumpySlicesDataset, row 14)",
     [(XY, "local labels = {}\nfor i = 1, 64 do labels[i] = i == 14 and -1 or 0 end\n"
           "local x, y = ms.ones { 64, 4 }, ms.Tensor(labels, ms.int32)\n")], code=3)
case("loss that is a word", "loss: expected a loss cell or function, got \"mse\"",
     [("  loss = loss,\n", "  loss = \"mse\",  --@\n")])
case("unknown reduction", "reduction: expected one of \"mean\", \"sum\", \"none\", got \"men\" (did you mean 'mean'?)",
     [(LOSS, "local loss = nn.CrossEntropyLoss \"men\"  --@\n")])
case("a tensor compared with a number", "a tensor is compared with a value of another kind",
     [(LOSS, "if x > 0 then x = -x end  --@\n" + LOSS)])
case("NaN in the loss", "the loss is NaN at step 1",
     [(XY, "local x, y = ms.full({ 64, 4 }, 0 / 0), ms.zeros({ 64 }, ms.int32)\n")], code=7)

# ---------------------------------------------------------------------------------------------------------- optimizers
optimizer("rate by its short name", "nn.Adam { lr = 0.1 }",
          "Adam: unknown key 'lr' (did you mean 'learning_rate'?); keys: params, learning_rate, beta1")
optimizer("negative rate", "nn.SGD { learning_rate = -0.1 }",
          "SGD: learning_rate: expected a finite number, at least 0, got -0.1")
optimizer("endless rate", "nn.SGD { learning_rate = 1 / 0 }", "expected a finite number, at least 0, got inf")
optimizer("no momentum", "nn.Momentum { learning_rate = 0.1 }", "Momentum: momentum is missing")
optimizer("beta of one", "nn.Adam { beta1 = 1 }", "beta1: expected a number, at least 0 and below 1, got 1")
optimizer("parameters by a wrong name", "nn.SGD { params = \"wieght\", learning_rate = 0.1 }",
          "SGD: no parameter to train: params selects none of the network's 8")
optimizer("optimizer by its name", "\"adam\"", "optimizer: expected an optimizer such as nn.Momentum {...}")
optimizer("optimizer of another library", "nn.RMSprop { learning_rate = 0.1 }", "there is no ms.nn.RMSprop")
optimizer("function that gives no optimizer", "function() end", "optimizer: the function gave nothing")

case("perplexity of several steps",
     "metrics: perplexity is measured by the recipe's key loss, or ms.Model's loss_fn, and there is none: give a "
     "metric of your own instead, my_perplexity = {",
     [("  loss = loss,\n", ""),
      (OPTIMIZER, "  steps = { { name = \"one\", loss = function(net, a, b) return loss(net(a), b) end,\n"
       "    optimizer = nn.SGD { learning_rate = 0.1 } } },\n"),
      (TRAIN, TRAIN + "  eval = { metrics = { \"perplexity\" } },  --@\n")])

# ---------------------------------------------------------------------------------------------------------------- data
data("negative batch", "ms.dataset.NumpySlicesDataset({ x, y }):batch(-4)",
     "batch: batch_size: expected an integer, at least 1, got -4")
data("batch larger than the data", "ms.dataset.NumpySlicesDataset({ x, y }):batch(1000)",
     "training takes whole batches, and the dataset has none of 1000 rows")
case("no batch", "the dataset has no batch, 'y' is one number: call ds:batch(n)",
     [("dataset = function()\n" + DATA, "dataset = function()  --@\n" + DATA.replace(":batch(8)", ""))])
case("one column", "the dataset gives one column, 'x'; a loss needs data and label",
     [("dataset = function()\n" + DATA,
       "dataset = function()  --@\n" + DATA.replace("x, y }, { \"x\", \"y\"", "x }, { \"x\""))])
data("rows of different number", "ms.dataset.NumpySlicesDataset({ x, ms.ones { 60 } }):batch(8)",
     "expected one first dimension")
data("ragged rows", "ms.dataset.NumpySlicesDataset({ { { 1, 2 }, { 3 } }, { 0, 0 } }):batch(2)", "expected 2")
data("unknown column",
     "ms.dataset.NumpySlicesDataset({ x, y }, { \"x\", \"y\" }):map({}, \"z\"):batch(8)",
     "map: no column 'z'; there are x, y")
data("unknown method of a dataset", "ms.dataset.NumpySlicesDataset({ x, y }):shufle(4):batch(8)",
     "NumpySlicesDataset has no method 'shufle' (did you mean 'shuffle'?)")
data("repeat", "ms.dataset.NumpySlicesDataset({ x, y })[\"repeat\"]", "repeat is a keyword of Lua: repeat_(n)")
data("missing folder", "ms.dataset.MnistDataset \"nowhere\"", "nowhere", code=3)
data("no folder", "ms.dataset.MnistDataset \"\"", "expected a folder, got \"\"")
data("unknown usage", "ms.dataset.MnistDataset(\"d\", \"valid\")",
     "usage: expected one of \"train\", \"test\", \"all\"")
data("filter that keeps nothing",
     "ms.dataset.NumpySlicesDataset({ x, y }):filter(function() return false end):batch(8)",
     "filter: the function keeps none of the 64 samples")
data("filter that gives a number", "ms.dataset.NumpySlicesDataset({ x, y }):filter(function() return 1 end):batch(8)",
     "the function should give true or false, got 1")
data("split that does not add up", "(ms.dataset.NumpySlicesDataset({ x, y }):split { 0.5, 0.2 }):batch(8)",
     "split: sizes: expected fractions that add up to 1, got {0.5, 0.2}")
data("zip of one column twice",
     "ms.dataset.NumpySlicesDataset({ x, y }):zip(ms.dataset.NumpySlicesDataset({ x })):batch(8)",
     "zip: two datasets have a column 'column_0'")
data("function behind a batch", "ms.dataset.NumpySlicesDataset({ x, y }):batch(8):map(function(a) return a end)",
     "map: the dataset is batched already")
data("function that gives too little", "ms.dataset.NumpySlicesDataset({ x, y }):map(function() end):batch(8)",
     "map: the function should give 1 value, one for each of")
generator("error in a generator", "\n      if i == 7 then error 'broken' end  --@" + SAMPLE,
          "broken (sample 7)")
generator("samples of different shape",
          "  --@\n      if i == 7 then return { 1 }, ms.Tensor(0, ms.int32) end" + SAMPLE,
          "sample 7 is (f32[1], i32[]), sample 1 was (f32[4], i32[])")
generator("a column that is missing", "  --@\n      return { 1, 2, 3, 4 }\n    ",
          "GeneratorDataset: a sample has 1 column, column_names has 2")
generator("nothing for a sample", "  --@\n    ", "GeneratorDataset: a sample has 0 columns, column_names has 2")

# ------------------------------------------------------------------------------------------------------ recipe's table
train("unknown key of train", "epochs = 1, epoch = 3",
      "recipe: train: unknown key 'epoch' (did you mean 'epochs'?); keys: epochs, steps, dataset_sink_mode")
train("no epochs", "epochs = 0", "epochs: expected an integer, at least 1, got 0")
train("half an epoch", "epochs = 1.5", "epochs: expected an integer, at least 1, got 1.5")
train("epochs and steps", "epochs = 1, steps = 10", "epochs = 1 and steps = 10: give one of them")
train("precision of another library", "amp = \"fp16\"", "amp: expected one of \"bf16\", \"f16\", got \"fp16\"")
train("a mark without its metric", "epochs = 1 }, expect = { top1_above = 0.5",
      'top1_above: eval.metrics has no top1: add it, eval = { metrics = { "top1" } }')
train("negative norm", "clip_norm = -1", "clip_norm: expected a number, above 0, got -1")
train("two ways to clip", "clip_norm = 1, clip_value = 1", "clip_norm and clip_value: give one of them")
train("micro-batches that do not divide", "accumulate_steps = 3", "does not divide the batch of column 'x', 8 rows")
case("unknown key", "recipe: unknown key 'trian' (did you mean 'train'?); keys: name, doc",
     [("  train = {", "  trian = {"), ("p.epochs },\n", "p.epochs },  --@\n")])
case("key in the wrong table", "unknown key 'epochs': it belongs to train = { epochs = ... }",
     [(TRAIN, "  epochs = 3,  --@\n")])
case("no dataset", "recipe: dataset is missing", [("return ms.recipe {\n", "return ms.recipe {  --@\n"),
     ("  dataset = function()\n" + DATA + "  end,\n", "")])
case("name with a space", "name: expected letters, digits", [("  name = \"bad\",\n", "  name = \"my net\",  --@\n")])
case("callback that stops at nothing", "EarlyStopping: monitor: nothing called 'val_loss' is measured",
     [(TRAIN, TRAIN + "  callbacks = { ms.EarlyStopping { monitor = \"val_loss\" } },  --@\n")])
case("method of no callback", "C.on_step_end is no method of a callback; they are on_train_begin",
     [("local loss =", "local C = ms.Callback:extend \"C\"\nfunction C:on_step_end() end\nlocal loss ="),
      (TRAIN, TRAIN + "  callbacks = { C() },  --@\n")])
case("callback that is a function", "expected a callback such as ms.LossMonitor(), got a function",
     [(TRAIN, TRAIN + "  callbacks = { function() end },  --@\n")])
case("error in a callback", "gone",
     [("local loss =", "local C = ms.Callback:extend \"C\"\nfunction C:on_train_step_end() error \"gone\" end  --@\n"
                       "local loss ="), (TRAIN, TRAIN + "  callbacks = { C() },\n")])
case("syntax", "expected", [(HEAD, "  return self.head(x\n"), ("end\nlocal x, y", "end  --@\nlocal x, y")])
case("file that gives nothing", "a recipe ends with `return ms.recipe {...}`",
     [("return ms.recipe {", "local _ = ms.recipe {")])

# ----------------------------------------------------------------------------------------------------------- arguments
argument("unknown parameter", ["epocs=2"], "unknown parameter 'epocs' (did you mean 'epochs'?)")
argument("word for a number", ["lr=abc"], "parameter 'lr': expected a number")
argument("number for a boolean", ["bias=3"], "parameter 'bias'")
argument("unknown flag", ["--max-step", "3"], "did you mean '--max-steps'?")
argument("no steps", ["--max-steps", "0"], "--max-steps")
argument("no ranks", ["-n", "0"], "-n expects an integer")
argument("device without its driver", ["--device", "cuda"],
         os.environ.get("MSLUA_TEST_NO_DEVICE", "libcuda.so.1 was not found"), code=4,
         environment={"MSLUA_CUDA_LIBRARIES": "/nowhere"})
argument("unknown preset", ["--preset", "smok"], "preset")
argument("checkpoint that is none", ["--resume=nowhere"], "nowhere", code=9)
argument("output that is a file", ["--out", "recipe.lua"], "recipe.lua", code=9)
argument("evaluation without data", [], "the recipe has no eval_dataset", verb="eval")
argument("variable with a word for a number", [], "MSLUA_TRAIN_EPOCHS", environment={"MSLUA_TRAIN_EPOCHS": "many"})


def run(name):
    text, changes, code, args, verb, environment = CASES[name]
    source = RECIPE
    for old, new in changes:
        assert old in source, (name, old)
        source = source.replace(old, new, 1)
    line = next((i for i, row in enumerate(source.split("\n"), 1) if "--@" in row), None)
    with open("recipe.lua", "w", encoding="utf-8") as file:
        file.write(source)
    def limit():
        if LIMITED:
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    done = subprocess.run([MSLUA, verb, "recipe.lua", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                          preexec_fn=limit)
    errors = [row for row in done.stderr.split("\n") if row.startswith("mslua: error")]
    problems = []
    if done.returncode != code:
        problems.append("exit code %d, expected %d" % (done.returncode, code))
    if len(errors) != 1:
        problems.append("%d lines of error, expected one" % len(errors))
    if line is not None and not any(row.startswith("mslua: error: recipe.lua:%d: " % line) for row in errors):
        problems.append("the error does not name recipe.lua:%d" % line)
    if not any(text in row for row in errors):
        problems.append("expected '%s'" % text)
    if problems:
        print("%s: %s: %s" % (name, "; ".join(problems), "\n".join(errors) or done.stderr[-400:]))
    return not problems


def main():
    os.chdir(os.environ.get("TEST_TMPDIR", "."))
    names = ONLY or list(CASES)
    good = sum(run(name) for name in names)
    print("%d of %d" % (good, len(names)))
    sys.exit(0 if good == len(names) else 1)


main()
