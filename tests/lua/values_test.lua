-- Optimizers, callbacks, loss scales, datasets: what their arguments become, and what is refused.
local check = require "check"
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms

check.case("a loss of one number is evaluated where all batches are full", function()
  local Loss = nn.Cell:extend "Loss"
  function Loss:construct(x, y) return (x - y):abs():mean() end
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.zeros { 4, 2 } }, { "x", "y" })
  local model = ms.Model(nn.ReLU(), { loss_fn = Loss() })
  check.near(model:eval(ds:batch(2)).loss, 1, 1e-6)
  check.fails_here("eval: loss is one number for the whole batch, and the last batch has fewer rows: give the loss a "
    .. "method rows(output, label), the loss of each row, or batch the dataset with drop_remainder = true",
    function() model:eval(ds:batch(3)) end)
  model = ms.Model(nn.ReLU(), { loss_fn = function(x, y) return (x - y):abs():mean() end })
  check.fails_here("make the loss a cell, which can have a method rows(output, label), the loss of each row",
    function() model:eval(ds:batch(3)) end)
end)

check.case("words without quotes in a table of the command line are named", function()
  local literal = require "mslua.literal"
  check.equal(literal.read("{1, 2, a = {true}}", "table"), { 1, 2, a = { true } })
  check.equal(literal.read("{math.huge}", "table"), { math.huge })
  local v, hint = literal.read("{top1, f1}", "table")
  check.equal({ v == nil, hint }, { true, ': top1 needs quotes, "top1"' })
  check.equal(literal.read("{math.pi}", "table"), nil)
end)

check.case("tables are written so that they read back, whatever their keys are", function()
  local literal = require "mslua.literal"
  local v = { 1, ["end"] = 2, _x1 = 3, ["a b"] = { ["not"] = true }, ["line\nbreak"] = "\r\0" }
  local text = literal.write(v)
  check.equal(text:find "\n", nil)
  check.equal(loadstring("return " .. text)(), v)
end)

check.case("a learning rate that a callback assigns to its context is an error", function()
  local Changes = ms.Callback:extend "Changes"
  function Changes:on_train_step_end(context) context.lr = 0.5 end
  local net = nn.Dense(1, 1)
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 2, 1 }, ms.ones { 2, 1 } }, { "x", "y" }):batch(1)
  local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD(net:trainable_params(), 0.1) })
  check.fails("Changes.on_train_step_end: the context's lr tells the learning rate, and assigning it has no effect",
    function() model:train(1, ds, { callbacks = { Changes() } }) end)
end)

check.case("operators as methods", function()
  check.equal(ms.Tensor({ 4, 9 }):sqrt():totable(), { 2, 3 })
  check.equal(ms.ones({ 2, 3 }):matmul(ms.ones { 3, 1 }):clip(0, 2.5):expand_dims(1).shape, { 1, 2, 1 })
end)

check.case("a new axis counts from 1 as all axes do", function()
  local x = ms.ones { 2, 3 }
  check.equal(ms.ops.expand_dims(x, 1).shape, { 1, 2, 3 })
  check.equal(ms.ops.expand_dims(x, -1).shape, { 2, 3, 1 })
  check.equal(ms.ops.ExpandDims()(x, 3).shape, { 2, 3, 1 })
  check.equal(ms.ops.stack({ x, x, x, x }, 2).shape, { 2, 4, 3 })
  check.equal(ms.ops.stack({ x, x, x, x }).shape, { 4, 2, 3 })
  check.fails_here("axes count from 1", function() local _ = ms.ops.expand_dims(x, 0) end)
  check.fails_here("out of range for a result of 3 dimensions", function() local _ = ms.ops.expand_dims(x, 4) end)
end)

check.case("a shape is a list that prints, and compares by value", function()
  local a, b = ms.ones { 2, 3 }, ms.zeros { 2, 3 }
  check.equal(a.shape, { 2, 3 })
  check.equal({ tostring(a.shape), "is " .. a.shape, #a.shape }, { "{2, 3}", "is {2, 3}", 2 })
  local other = ms.ones { 3, 2 }
  check.equal({ a.shape == b.shape, a.shape == other.shape, a.shape == a:sum().shape }, { true, false, false })
  check.equal(ms.ones(a.shape).shape, { 2, 3 })
end)

local Net = nn.Cell:extend "Net"
function Net:init()
  self.fc = nn.Dense(2, 3)
  self.norm = nn.LayerNorm(3)
  self.norm.gamma.requires_grad = false
end

local function names(list)
  local found = {}
  for i, p in ipairs(list) do found[i] = p.name end
  return found
end

check.case("optimizers choose parameters", function()
  local net = Net()
  local all, spec = nn.Momentum(net:trainable_params(), 0.1, 0.9):bind(net)
  check.equal(names(all), { "fc.weight", "fc.bias", "norm.beta" })
  check.equal({ spec.kind, spec.momentum, spec.nesterov, spec.weight_decay }, { "momentum", 0.9, false, 0 })
  check.equal(names((nn.SGD { params = "^fc" }:bind(net))), { "fc.weight", "fc.bias" })
  check.equal(names((nn.Adam { params = function(p) return #p.shape == 2 end }:bind(net))), { "fc.weight" })
  local _, groups = nn.AdamWeightDecay { learning_rate = 0.1, params = {
    { params = "weight$", weight_decay = 0.1 }, { params = "", weight_decay = 0, lr = 0.05 },
  } }:bind(net)
  check.equal(names(groups.groups[1].params), { "fc.weight" })
  check.equal(names(groups.groups[2].params), { "fc.bias", "norm.beta" })
  check.equal({ groups.groups[1].weight_decay, groups.groups[2].lr_scale }, { 0.1, 0.5 })
end)

check.case("a group that can mean nothing", function()
  local net = nn.Dense(2, 2)
  local function bind(groups, rate) return nn.SGD { params = groups, learning_rate = rate }:bind(net) end
  check.fails_here("params[1]: no parameter that is left has 'wieght' in its name",
    function() bind({ { params = "wieght" }, { params = "bias" } }, 0.1) end)
  local _, all = bind({ { params = "weight" }, { params = "bias" }, { params = "" } }, 0.1)
  check.equal(#all.groups[3].params, 0)
  check.fails_here("params[1]: lr, a share of learning_rate, needs one above 0",
    function() bind({ { params = "bias", lr = 0.1 }, { params = "weight" } }, 0) end)
  local _, spec = bind({ { params = "bias", lr = 0.05 }, { params = "weight" } }, nn.cosine_decay_lr(0, 0.1, 8))
  check.near(spec.groups[1].lr_scale, 0.5, 1e-12)
  local lists = { { params = { net.weight }, lr = 0.01 }, { params = { net.bias, net.weight } } }
  check.fails_here("SGD: params[2] lists parameter 'weight', which params[1] has: one group updates a parameter",
    function() bind(lists, 0.1) end)
  check.fails_here("params[3] lists parameter 'bias', which params[1] has", function()
    bind({ { params = "bias" }, { params = "" }, { params = { net.bias } } }, 0.1)
  end)
end)

check.case("an empty last table is no value", function()
  check.equal(tostring(nn.Conv2d(4, 6, 3, {}).op), tostring(nn.Conv2d(4, 6, 3).op))
end)

check.case("NaN is a value of tensors and of nothing else", function()
  local nan = 0 / 0
  local t = ms.Tensor({ 1, nan, 3 }, ms.float32)
  check.equal(tostring(ms.ops.not_equal(t, t)), "[False,  True, False]")
  for _, dtype in ipairs { ms.float32, ms.bfloat16, ms.float64 } do
    check.equal(tostring(ms.ops.relu(t:astype(dtype))), "[ 1., nan,  3.]")
    check.equal(tostring(ms.ops.maximum(t:astype(dtype), 2)), "[ 2., nan,  3.]")
    check.equal(tostring(ms.ops.minimum(ms.Tensor(2, dtype), t:astype(dtype))), "[ 1., nan,  2.]")
  end
  check.fails_here("learning_rate: expected a finite number, got nan", function() nn.SGD { learning_rate = nan } end)
  check.fails_here("learning_rate: expected finite numbers, got {0.1, nan}",
    function() nn.SGD { learning_rate = { 0.1, nan } } end)
end)

check.case("optimizers that make no sense", function()
  check.fails_here("Momentum: learning_rate is missing", function() nn.Momentum { momentum = 0.9 } end)
  check.fails_here("Momentum: momentum is missing", function() nn.Momentum { learning_rate = 0.9 } end)
  check.fails_here("unknown key 'momentun' (did you mean 'momentum'?)",
    function() nn.Momentum { learning_rate = 1, momentun = 1 } end)
  check.fails_here("beta1: expected a number, at least 0 and below 1, got 1", function() nn.Adam { beta1 = 1 } end)
  check.fails_here("params[1]: expected a Parameter", function() nn.SGD { 3 } end)
  check.fails_here("no parameter to train", function() nn.SGD { params = "^nothing$" }:bind(Net()) end)
  check.fails_here("expected a finite number, at least 0, got -1", function() nn.Lamb { learning_rate = -1 } end)
end)

check.case("CheckpointConfig", function()
  local c = ms.CheckpointConfig { save_checkpoint_steps = 3, save_checkpoint_seconds = 9, keep_checkpoint_max = 2,
    keep_checkpoint_per_n_minutes = 5 }
  check.equal({ c.save_checkpoint_seconds, c.keep_checkpoint_per_n_minutes }, { 0, 0 })
  c = ms.CheckpointConfig { save_checkpoint_steps = 0, save_checkpoint_seconds = 9, keep_checkpoint_max = 0,
    keep_checkpoint_per_n_minutes = 5 }
  check.equal({ c.save_checkpoint_seconds, c.keep_checkpoint_per_n_minutes }, { 9, 5 })
  c = ms.CheckpointConfig()
  check.equal({ c.save_checkpoint_steps, c.keep_checkpoint_max, c.integrated_save, c.async_save },
    { 1, 5, true, false })
  check.fails_here("are all 0", function() ms.CheckpointConfig(0, 0, 0, 0) end)
  check.fails_here("at least 0, got -1", function() ms.CheckpointConfig { keep_checkpoint_max = -1 } end)
  check.fails_here("without '/'", function() ms.ModelCheckpoint { prefix = "a/b" } end)
  check.fails_here("expected ms.CheckpointConfig", function() ms.ModelCheckpoint { config = {} } end)
end)

check.case("callbacks", function()
  check.fails_here("at least 0 (steps), got -1", function() ms.LossMonitor(-1) end)
  check.equal(ms.LossMonitor().every, 1)
  check.equal(ms.EarlyStopping { monitor = "eval_top1" }.spec.mode, "max")
  check.equal(ms.EarlyStopping { monitor = "eval_loss" }.spec.mode, "min")
  local seen, Mine = {}, ms.Callback:extend "Mine"
  function Mine:on_train_step_end(context) seen[#seen + 1] = context.step end
  local spec = { hooks = {} }
  Mine():add_to(spec)
  Mine():add_to(spec)
  spec.hooks.step_end { step = 4 }
  check.equal(seen, { 4, 4 })
  check.equal(spec.hooks.epoch_end, nil)
  check.fails_here("defines no method of a callback", function() ms.Callback:extend "Idle"():add_to { hooks = {} } end)
end)

check.case("a callback's method that nobody calls", function()
  local Mine = ms.Callback:extend "Mine"
  function Mine:on_train_end() end
  function Mine:on_epoch_end() end
  check.fails_here("Mine.on_epoch_end is no method of a callback (did you mean 'on_train_epoch_end'?)",
    function() Mine():add_to { hooks = {} } end)
end)

check.case("a metric gives a number a row", function()
  local data = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 3 }, ms.ones { 4, 3 } }):batch(2)
  local function eval(f) return ms.Model(nn.Dense(3, 3), { metrics = { mae = f } }):eval(data).mae end
  check.fails_here("metrics: mae: expected a tensor with a number for each of the 2 rows, got float32{2, 3}",
    function() eval(function(output, label) return output - label end) end)
  check.fails_here("each of the 2 rows, got float32{2, 1}: x:squeeze(2) takes the second dimension away",
    function() eval(function(output, label) return (output - label):mean(2, true) end) end)
  check.fails_here("each of the 2 rows, got 3", function() eval(function() return 3 end) end)
  check.fails_here("each of the 2 rows, got nil", function() eval(function() end) end)
  check.near(eval(function(_, label) return label:sum(2) end), 3, 1e-6)
end)

check.case("equal logits and NaN are not right by chance", function()
  local nan = 0 / 0
  local function eval(metric, x, y)
    local data = ms.dataset.NumpySlicesDataset({ ms.Tensor(x), ms.Tensor(y, ms.int32) }):batch(#x)
    local net = nn.Cell:extend "Given"
    function net:construct(v) return v end
    return ms.Model(net(), { metrics = { metric } }):eval(data)[metric]
  end
  local equal, nans = { 0, 0, 0, 0, 0, 0 }, { nan, nan, nan, nan, nan, nan }
  check.equal(eval("top5", { equal, equal, equal }, { 0, 4, 5 }), 2 / 3)
  check.equal(eval("top5", { nans, nans }, { 0, 5 }), 0)
  check.equal(eval("top5", { { 1, nan, 2, 3, 4, 5 }, { 1, 2, nan, 3, 4, 5 } }, { 2, 2 }), 1 / 2)
  check.equal(eval("top5", { { 1, 2, 3 }, { 1, 2, 3 }, { nan, 2, 3 } }, { 3, -1, 0 }), 0)
  check.equal(eval("top5", { { 1, 2, 3, 4, 5, 6 }, { 1, 2, 3, 4, 5, 6 } }, { 0, 1 }), 1 / 2)
  for _, metric in ipairs { "top1", "accuracy" } do
    check.equal(eval(metric, { nans, nans, { nan, 2, 3, 0, 0, 0 }, { 1, 2, nan, 0, 0, 0 } }, { 0, 5, 0, 2 }), 0)
    check.equal(eval(metric, { { nan, 2, 3 }, { 1, 2, 3 }, { 1, 2, 3 }, { 0, 0, 0 } }, { 2, 2, 1, 0 }), 2 / 4)
  end
  check.equal(eval("confusion_matrix", { { nan, 2 }, { 0, nan }, { 1, 2 }, { 3, 2 } }, { 0, 1, 1, 0 }),
    { { 1, 1 }, { 1, 1 } })
  check.equal(eval("confusion_matrix", { { nan }, { nan }, { 1 }, { -1 } }, { 1, 0, 1, 0 }), { { 1, 1 }, { 1, 1 } })
  check.equal(eval("auc", { { nan }, { nan }, { 1 }, { -1 } }, { 1, 0, 1, 0 }), 1 / 4)
  check.equal(eval("auc", { { 2 }, { 0 }, { 1 }, { -1 } }, { 1, 0, 1, 0 }), 1)
end)

check.case("JSON of bytes that are not UTF-8", function()
  local json_string = require("mslua.literal").json_string
  check.equal(json_string "a\"\n\195\164\226\130\172\240\159\152\128",
    '"a\\"\\u000a\195\164\226\130\172\240\159\152\128"')
  check.equal(json_string "\164x\226\130y\237\160\128\255", '"' .. ("?x??y????"):gsub("?", "\239\191\189") .. '"')
end)

check.case("a state that a graph assigns and gives", function()
  local core = require "mslua.core"
  local Scaled = nn.Cell:extend "Scaled"
  function Scaled:init() self.s = self:state("s", {}, "ones") end
  function Scaled:construct(x)
    local y = x * self.s
    core.assign(self.s, self.s * 10)
    return y
  end
  local cell = Scaled()
  cell:set_train(true)
  local f = ms.value_and_grad(function(x) return cell(x) end, 1)
  for step = 0, 2 do
    local y, slope = f(ms.Tensor(3.0))
    check.equal({ y:item(), slope:item(), cell.s.value:item() }, { 3 * 10 ^ step, 10 ^ step, 10 ^ (step + 1) })
  end
end)

check.case("a parameter that the network assigns and the optimizer updates", function()
  local core = require "mslua.core"
  local Clipped = nn.Cell:extend "Clipped"
  function Clipped:init() self.w = self:parameter("w", { 3 }, "ones") end
  function Clipped:construct(x)
    core.assign(self.w, ms.ops.clip(self.w, -0.5, 0.5))
    return ((x * self.w) ^ 2):mean()
  end
  local net = Clipped()
  local data = ms.dataset.NumpySlicesDataset({ ms.ones { 8, 3 } }, { "x" }):batch(4)
  check.fails("parameter 'w' is assigned in the network, and the optimizer updates it too", function()
    ms.Model(net, { optimizer = nn.SGD(net:trainable_params(), { learning_rate = 0.3 }) }):train(1, data)
  end)
end)

check.case("a metric that there is not", function()
  check.fails_here('unknown metric "r2"; there are accuracy, auc, confusion_matrix, f1, iou, loss, mae, ',
    function() ms.Model(nn.Dense(2, 2), { metrics = { "r2" } }) end)
  local function own() return 1 end
  check.fails_here("metrics: loss: there is a metric of that name already",
    function() ms.Model(nn.Dense(2, 2), { loss_fn = nn.MSELoss(), metrics = { loss = own } }) end)
  check.fails_here("metrics: a name has no quotes, backslashes or control characters",
    function() ms.Model(nn.Dense(2, 2), { metrics = { ['f1 "macro"'] = own } }) end)
end)

check.case("values that do not fit an optimizer leave the network as it was", function()
  local function training(optimizer)
    local net = nn.Dense(2, 2)
    return net, nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer(net:trainable_params()))
  end
  local _, saved = training(function(list) return nn.Momentum(list, 0.1, 0.9) end)
  saved(ms.ones { 1, 2 }, ms.ones { 1, 2 })
  ms.save_checkpoint(saved, "momentum")
  local net, other = training(function(list) return nn.Adam(list, 0.1) end)
  local before = net.weight:totable()
  check.fails("load_param_into_net: not in the checkpoint: ",
    function() ms.load_param_into_net(other, ms.load_checkpoint "momentum") end)
  check.equal(net.weight:totable(), before)
end)

check.case("samples without a batch", function()
  local model = ms.Model(nn.Dense(4, 2), { loss_fn = nn.CrossEntropyLoss() })
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 3, 4 }, ms.zeros({ 3 }, ms.int32) }, { "x", "y" })
  check.fails_here("eval: the dataset has no batch, 'y' is one number: call ds:batch(n)", function() model:eval(ds) end)
end)

check.case("loss scale managers", function()
  check.equal(ms.FixedLossScaleManager(1024).spec, { kind = "fixed", value = 1024 })
  check.equal(ms.DynamicLossScaleManager().spec, { kind = "dynamic", value = 2 ^ 24, factor = 2, window = 2000 })
  check.fails_here("above 1", function() ms.DynamicLossScaleManager { scale_factor = 1 } end)
end)

check.case("transforms are data", function()
  check.equal(vision.RandomCrop({ 32, 30 }, { 4, 5, 6, 7 }).spec,
    { kind = "random_crop", height = 32, width = 30, left = 4, top = 5, right = 6, bottom = 7 })
  check.equal(vision.RandomCrop(32, { 4, 5 }).spec,
    { kind = "random_crop", height = 32, width = 32, left = 4, top = 5, right = 4, bottom = 5 })
  check.equal(vision.Resize({ 224, 224 }).spec, { kind = "resize", height = 224, width = 224 })
  check.equal(vision.Resize { 224, 224 }.spec, { kind = "resize", height = 224, width = 224 })
  check.equal(vision.Resize(32).spec, { kind = "resize", height = 32, width = 0 })
  check.equal(vision.Rescale(0.5, 1).spec, { kind = "rescale", scale = 0.5, shift = 1 })
  check.equal(transforms.TypeCast(ms.int32).spec, { kind = "type_cast", dtype = "int32" })
  check.fails_here("2 means and 1 deviations", function() vision.Normalize({ 1, 2 }, { 1 }) end)
  check.fails_here("1, 2 or 4 numbers", function() vision.RandomCrop(3, { 1, 2, 3 }) end)
  check.fails_here("did you mean 'int32'?", function() transforms.TypeCast "int3" end)
  check.fails_here("at least 1, got {0, 3}", function() vision.Resize { 0, 3 } end)
end)

check.case("datasets are chains of data", function()
  local first = ms.dataset.Cifar10Dataset("folder", { num_shards = 8, shard_id = 3 })
  local ds = first:map { operations = { vision.HWC2CHW(), { transforms.TypeCast(ms.float32) } },
    input_columns = "image" }
  ds = ds:shuffle(10):batch(32, true):repeat_(2):take(4):skip(1)
  check.equal(#first.spec.ops, 0)
  check.equal(ds.spec.num_shards, 8)
  check.equal(ds.spec.ops, {
    {
      kind = "map", columns = { "image" },
      transforms = { { kind = "hwc2chw" }, { kind = "type_cast", dtype = "float32" } },
    },
    { kind = "shuffle", buffer_size = 10 }, { kind = "batch", size = 32, drop_remainder = true },
    { kind = "repeat", count = 2 }, { kind = "take", count = 4 }, { kind = "skip", count = 1 },
  })
  check.fails_here("go together", function() ms.dataset.Cifar10Dataset("f", { num_shards = 2 }) end)
  check.fails_here("below num_shards = 2, got 2",
    function() ms.dataset.Cifar10Dataset("f", { num_shards = 2, shard_id = 2 }) end)
  local _, problem = pcall(ms.dataset.MnistDataset, "")
  check.equal(problem:match "expected a folder.*$", 'expected a folder, got ""')
  check.fails_here('expected one of "train", "test", "all"', function() ms.dataset.MnistDataset("f", "valid") end)
  check.fails_here("expected a transform such as", function() first:map { operations = { 3 } } end)
  check.fails_here("at least 1, got 0", function() first:batch(0) end)
  check.fails_here("expected 2, got {\"c\"}", function()
    first:map { operations = vision.HWC2CHW(), input_columns = { "a", "b" }, output_columns = "c" }
  end)
  check.equal(first:padded_batch(4, true, { b = { { 3, 2 } }, a = { 5, -1 } }).spec.ops[1],
    { kind = "batch", size = 4, drop_remainder = true,
      padding = { { name = "a", shape = { 5 }, value = -1 }, { name = "b", shape = { 3, 2 }, value = 0 } } })
  check.fails_here("pad_info is missing", function() first:padded_batch(4) end)
  check.fails_here("expected { column = { {sizes}, value } }, got", function()
    first:padded_batch(4, false, { a = { { 0 }, 1 } })
  end)
  check.fails_here("expected at least one column, got none", function() first:padded_batch(4, false, {}) end)
  check.fails_here("column_names is missing", function() ms.dataset.GeneratorDataset(function() end) end)
  check.fails_here("source: without length the function is called without arguments and gives an iterator, but it "
    .. "takes i: give length = N", function() ms.dataset.GeneratorDataset(function(i) return i end, { "x" }) end)
end)

check.case("datasets from arrays, shuffled", function()
  local function all(ds)
    local list = {}
    for x in ds:create_tuple_iterator() do list[#list + 1] = x:item() end
    return list
  end
  check.equal(all(ms.dataset.NumpySlicesDataset(ms.arange(3))), { 0, 1, 2 })
  check.equal(all(ms.dataset.NumpySlicesDataset { 5, 6 }), { 5, 6 })
  local shuffled = all(ms.dataset.NumpySlicesDataset(ms.arange(20), { shuffle = true }))
  local moved = 0
  for i, v in ipairs(shuffled) do moved = moved + (v == i - 1 and 0 or 1) end
  table.sort(shuffled)
  check.equal(shuffled, ms.arange(20):totable())
  assert(moved > 10, moved)
  check.equal(#all(ms.dataset.NumpySlicesDataset(ms.arange(20), { shuffle = true, num_samples = 4 })), 4)
end)

check.case("a method that a dataset does not have", function()
  local ds = ms.dataset.NumpySlicesDataset(ms.arange(3))
  check.fails_here("NumpySlicesDataset has no method 'bach' (did you mean 'batch'?)", function() ds:bach(2) end)
  check.fails_here("NumpySlicesDataset has no method 'prefetch': batches are made ahead", function() ds:prefetch(2) end)
  check.fails_here("NumpySlicesDataset has no [1]: `for x, y in ds:create_tuple_iterator() do`",
    function() return ds[1] end)
end)

check.case("a table of values is no table of arguments", function()
  local net = Net()
  check.equal({ ms.load_param_into_net(net, { ["fc.bias"] = ms.full({ 3 }, 7), other = ms.ones { 1 } }, false) },
    { { "fc.weight", "norm.gamma", "norm.beta" }, { "other" } })
  check.equal(net.fc.bias.value:totable(), { 7, 7, 7 })
  ms.load_param_into_net { net = net, parameter_dict = { ["fc.bias"] = ms.ones { 3 } }, strict_load = false }
  check.equal(net.fc.bias.value:totable(), { 1, 1, 1 })
end)

check.case("what does not fit is listed, and nothing changes", function()
  local net, all = Net(), {}
  for _, p in ipairs(net:get_parameters()) do all[p.name] = ms.full(p.shape, 5) end
  local function with(changes)
    local values = {}
    for name, v in pairs(all) do values[name] = v end
    for name, v in pairs(changes) do values[name] = v or nil end
    return values
  end
  local function refused(text, changes)
    local before = net.fc.weight.value:totable()
    check.fails_here(text, function() ms.load_param_into_net(net, with(changes)) end)
    check.equal(net.fc.weight.value:totable(), before)
  end
  refused("load_param_into_net: fc.bias is float32{3} in the network and float32{2} in the checkpoint (strict_load = "
    .. "false loads what fits)", { ["fc.bias"] = ms.ones { 2 } })
  refused("fc.bias is float32{3} in the network and float16{3} in the checkpoint", {
    ["fc.bias"] = ms.ones({ 3 }, ms.float16) })
  refused("not in the checkpoint: fc.bias", { ["fc.bias"] = false })
  refused("not in the network: other", { other = ms.ones { 1 } })
  refused("not in the checkpoint: fc.bias; not in the network: other", {
    ["fc.bias"] = false, other = ms.ones { 1 } })
  refused("parameter_dict: 'fc.bias': expected a Tensor, got 5", { ["fc.bias"] = 5 })
  check.fails_here("no name in common", function() ms.load_param_into_net(net, { x = ms.ones { 2 } }) end)
  check.fails_here("load_param_into_net: nothing of the checkpoint fits the network: ",
    function() ms.load_param_into_net(net, { ["fc.bias"] = ms.ones { 2 } }, false) end)
  ms.load_param_into_net(net, with { ["moments.fc.bias"] = ms.ones { 3 }, ["moment1.fc.weight"] = ms.ones { 1 } })
  check.equal(net.fc.bias.value:totable(), { 5, 5, 5 })
  -- An optimizer's state, or the value of another cell, is not that of a parameter.
  for _, name in ipairs { "moment1.fc.bias", "ema.fc.bias" } do
    refused("not in the checkpoint: fc.bias (strict_load", { ["fc.bias"] = false, [name] = ms.ones { 3 } })
  end
  for _, name in ipairs { "adam.m.fc.bias", "other.fc.bias", "bias" } do
    refused("not in the checkpoint: fc.bias; not in the network: " .. name, {
      ["fc.bias"] = false, [name] = ms.ones { 3 } })
  end
  net.fc.bias.saved = false
  ms.load_param_into_net(net, with { ["fc.bias"] = false, ["moments.fc.bias"] = ms.ones { 3 } })
  check.equal(net.fc.bias.value:totable(), { 5, 5, 5 })
  net.fc.bias.saved = true
  -- What does not fit stays, a float of another type is converted.
  check.equal({ ms.load_param_into_net(net, with {
    ["fc.bias"] = ms.full({ 3 }, 2, ms.float16), ["fc.weight"] = ms.ones { 9 } }, false) },
    { { "fc.weight" }, {} })
  check.equal(net.fc.bias.value:totable(), { 2, 2, 2 })
  check.equal(net.fc.weight.value:totable()[1][1], 5)
end)

check.case("sines and cosines of angles of every size", function()
  local angles = { 0, 0.5, -2, 38999, -39001, 123456.5, 3e7, 1e30 }
  local x = ms.Tensor(angles, ms.float32)
  local sines, cosines = x:sin():totable(), ms.ops.cos(x):totable()
  for i, angle in ipairs(x:totable()) do
    assert(math.abs(sines[i] - math.sin(angle)) < 1e-6, ("sin(%g) is %g"):format(angles[i], sines[i]))
    assert(math.abs(cosines[i] - math.cos(angle)) < 1e-6, ("cos(%g) is %g"):format(angles[i], cosines[i]))
  end
  local endless = ms.ops.sin(ms.Tensor({ 1, math.huge }, ms.float32)):totable()
  assert(endless[2] ~= endless[2] and math.abs(endless[1] - math.sin(1)) < 1e-6)
end)

check.done()
