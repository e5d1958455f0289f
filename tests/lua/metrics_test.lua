-- Metrics of evaluations.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local ROWS, BATCH = 4001, 1800

-- A network in whose output class 1 is the larger for rows from 1 on.
local function model(amp, metrics)
  local net = nn.Dense(1, 2)
  net.weight.value, net.bias.value = ms.Tensor { { 0 }, { 1 } }, ms.Tensor { 0, -0.5 }
  return ms.Model(net, { loss_fn = nn.CrossEntropyLoss(), amp = amp, metrics = metrics })
end

-- Rows of 0 and 1 whose label is 1 in all places that `is_one` says.
local function data(is_one)
  local x, y = {}, {}
  for i = 1, ROWS do x[i], y[i] = { i % 3 == 0 and 1 or 0 }, is_one(i) and 1 or 0 end
  return ms.dataset.NumpySlicesDataset({ ms.Tensor(x), ms.Tensor(y, "int32") }, { "x", "y" }):batch(BATCH)
end

check.case("counts are exact, in mixed precision too", function()
  local function is_one(i) return i % 7 == 0 or i % 3 == 0 end
  local wanted = { { 0, 0 }, { 0, 0 } }
  for i = 1, ROWS do
    local row = wanted[is_one(i) and 2 or 1]
    local given = i % 3 == 0 and 2 or 1
    row[given] = row[given] + 1
  end
  local names = { "confusion_matrix", "f1", "precision", "recall", "iou", "auc", "top1" }
  names.mine = { rows = function(output)
    -- A product of the recipe's: as exact as the library's.
    return ops.matmul(output - output + 257, ms.ones { 2, 1 })
  end, finish = function(sums, n) return sums.value / n end }
  local plain, mixed = model(nil, names):eval(data(is_one)), model("bf16", names):eval(data(is_one))
  check.equal(plain.confusion_matrix, wanted)
  check.equal(mixed.confusion_matrix, wanted)
  for _, name in ipairs { "f1", "precision", "recall", "iou", "auc", "top1", "mine" } do
    check.equal(mixed[name], plain[name])
  end
  check.equal(mixed.mine, 514)
end)

check.case("what a metric of mixed precision gets is float32", function()
  local seen
  local metrics = { mine = function(output)
    seen = output.dtype
    return ops.reduce_max(output, 2)
  end }
  model("bf16", metrics):eval(data(function() return true end))
  check.equal(seen, "float32")
end)

check.case("a metric's sums have the keys that its rows have", function()
  local seen = {}
  local function metric(rows)
    return { rows = rows, finish = function(sums)
      seen[#seen + 1] = sums
      return 0
    end }
  end
  local names = {
    a = metric(function(output) return { output * 0 + 1, output:sum(2) * 0 + 2 } end),
    b = metric(function(output) return { x = output * 0 + 3 } end),
    c = metric(function(output) return output:sum(2) * 0 + 4 end),
  }
  model(nil, names):eval(data(function() return true end))
  check.equal(seen, { { { ROWS, ROWS }, 2 * ROWS }, { x = { 3 * ROWS, 3 * ROWS } }, { value = 4 * ROWS } })
  names = { a = metric(function(output) return { [true] = output } end) }
  check.fails("a.rows: expected a list of tensors, or a table of them by name, got the key true", function()
    model(nil, names):eval(data(function() return true end))
  end)
end)

---------------------------------------------------------------------------- losses that divide by what they count

-- What the loss says of the given outputs as one batch, and the evaluation of them in batches of 4.
local function both(loss_fn, output, label, metrics)
  local net = nn.Cell()
  function net.construct(_, x) return x end
  local data = ms.dataset.NumpySlicesDataset({ output, label }, { "x", "y" }):batch(4)
  return loss_fn(output, label):item(), ms.Model(net, { loss_fn = loss_fn, metrics = metrics }):eval(data)
end

-- Tokens [10, 6] of 5 classes; in each row another number of labels counts, in the fifth none.
local function tokens()
  local ids = {}
  for i = 1, 10 do
    ids[i] = {}
    for t = 1, 6 do ids[i][t] = t <= i % 5 + 1 and i ~= 5 and (i * t) % 5 or -100 end
  end
  return ms.randn { 10, 6, 5 }, ms.Tensor(ids, "int32")
end

check.case("an evaluation's loss is that of all its labels as one batch", function()
  local logits, ids = tokens()
  local weight = ms.Tensor { 1, 2, 0.5, 4, 0.25 }
  for _, loss_fn in ipairs {
    nn.CrossEntropyLoss(), nn.CrossEntropyLoss { weight = weight }, nn.CrossEntropyLoss { label_smoothing = 0.1 },
    nn.CrossEntropyLoss { weight = weight, label_smoothing = 0.1 }, nn.CrossEntropyLoss { ignore_index = 0,
    reduction = "mean" }, nn.NLLLoss { weight = weight }, nn.NLLLoss(),
  } do
    local labels = loss_fn.ignore_index == 0 and ops.maximum(ids, 0) or ids
    local whole, found = both(loss_fn, logits, labels, { "perplexity" })
    check.near(found.loss, whole, 1e-5)
    check.near(found.perplexity, math.exp(whole), 1e-4)
    local flat_whole, flat = both(loss_fn, logits:reshape(60, 5), labels:reshape(60), {})
    check.near(flat.loss, flat_whole, 1e-5)
    check.near(flat_whole, whole, 1e-5)
  end
  local spans = ms.Tensor({ { 0, 1 }, { 2, 9 }, { -1, 3 }, { 0, 9 }, { 1, 2 } }, "int32")
  local whole, found = both(nn.SpanLoss(), ms.randn { 5, 4, 2 }, spans, {})
  check.near(found.loss, whole, 1e-5)
  local none, nothing = both(nn.CrossEntropyLoss(), logits, ms.full({ 10, 6 }, -100, "int32"), { "perplexity", "top1" })
  check.equal({ none, nothing.loss, nothing.perplexity, nothing.top1 }, { 0, 0, 1, 0 })
end)

------------------------------------------------------------------------------------- what an output and a label may be

local all = { "accuracy", "top1", "f1", "iou", "confusion_matrix" }

check.case("one number a label is the logit of the second of two classes", function()
  -- 8 rows; two of the second class and one of the first are taken for the other.
  local x = ms.Tensor { 2, -1, 3, -2, 0.5, -0.5, 1, -3 }
  local y = ms.Tensor { 1, 1, 1, 0, 0, 0, 1, 1 }
  local wanted = { { 2, 1 }, { 2, 3 } }
  local function test(loss_fn, output, label)
    local _, found = both(loss_fn, output, label, { "accuracy", "f1", "confusion_matrix", "auc" })
    check.equal({ found.accuracy, found.confusion_matrix }, { 5 / 8, wanted })
    return found.auc
  end
  local area = test(nn.BCEWithLogitsLoss(), x, y)
  check.near(area, 10 / 15, 1e-6)
  check.equal(test(nn.BCEWithLogitsLoss(), x:reshape(8, 1), y:reshape(8, 1)), area)
  check.equal(test(function(a, b) return ((a:reshape(-1) - b) ^ 2):mean() end, x:reshape(8, 1), y), area)
  -- Shares and whole numbers, and probabilities.
  check.equal(test(nn.BCEWithLogitsLoss(), x, y * 0.8 + 0.1), area)
  check.equal(test(nn.BCELoss(), ops.sigmoid(x), y), area)
  local _, sure = both(nn.BCELoss(), ms.Tensor { 0, 1, 1, 0 }, ms.Tensor { 0, 1, 0, 0 }, { "accuracy", "auc" })
  check.equal(sure.accuracy, 0.75)
  check.near(sure.auc, 5 / 6, 1e-6)
  -- Masks of pixels.
  local pixels, mask = x:reshape(4, 1, 1, 2), y:reshape(4, 1, 1, 2)
  for _, label in ipairs { mask, mask:reshape(4, 1, 2):astype(ms.int32) } do
    local _, found = both(function(a, b) return (a:reshape(-1) - b:reshape(-1):astype(ms.float32)):mean() end, pixels,
      label, { "accuracy", "confusion_matrix" })
    check.equal({ found.accuracy, found.confusion_matrix }, { 5 / 8, wanted })
  end
end)

check.case("classes are along the last dimension or the second, and labels may have dimensions of 1", function()
  local function loss(output) return output:mean() end
  -- Class (i + j) % 3 of pixel i, j.
  local logits, ids = {}, {}
  for n = 1, 4 do
    logits[n], ids[n] = {}, {}
    for i = 1, 3 do
      logits[n][i], ids[n][i] = {}, {}
      for j = 1, 3 do
        local class = (i + j + n) % 3
        ids[n][i][j] = class
        logits[n][i][j] = { class == 0 and 1 or 0, class == 1 and 1 or 0, class == 2 and 1 or 0 }
      end
    end
  end
  local last, label = ms.Tensor(logits), ms.Tensor(ids, "int32")
  local second = last:transpose(1, 4, 2, 3)
  local function perfect(loss_fn, output, labels)
    local _, found = both(loss_fn, output, labels, all)
    check.equal({ found.accuracy, found.top1, found.f1, found.iou }, { 1, 1, 1, 1 })
    check.equal(found.confusion_matrix, { { 12, 0, 0 }, { 0, 12, 0 }, { 0, 0, 12 } })
  end
  perfect(loss, second, label)
  perfect(loss, second, label:reshape(4, 1, 3, 3))
  perfect(loss, second, second)
  perfect(nn.CrossEntropyLoss(), last, label)
  perfect(nn.CrossEntropyLoss(), last, label:reshape(4, 3, 3, 1))
  perfect(loss, last:reshape(4, 9, 3), label:reshape(4, 9))
  perfect(loss, last:reshape(4, 9, 3), last:reshape(4, 9, 3))
  perfect(loss, last:reshape(4, 9, 3):transpose(1, 3, 2), label:reshape(4, 9))
  perfect(nn.CrossEntropyLoss(), last:reshape(36, 3), label:reshape(36))
  perfect(loss, last:reshape(36, 3), label:reshape(36, 1))
  perfect(loss, last:reshape(36, 3), last:reshape(36, 3))
  check.fails("metrics: an output {4, 3, 3, 3} goes with labels of its shape, or of that without the", function()
    both(loss, last, label:reshape(4, 9), { "accuracy" })
  end)
  check.fails("metrics: unknown metric \"acuracy\" (did you mean 'accuracy'?)", function()
    both(loss, last, label, { "acuracy" })
  end)
end)

check.case("labels that the loss ignores count in no share", function()
  local logits = ms.Tensor { { { 2, 0 }, { 0, 0 }, { 0, 0 } }, { { 0, 2 }, { 0, 2 }, { 2, 0 } } }
  local metrics = { "top1", "accuracy", "top5", "recall", "confusion_matrix" }
  local _, found = both(nn.CrossEntropyLoss(), logits, ms.Tensor({ { 0, -100, -100 }, { 1, 1, 1 } }, "int32"), metrics)
  check.equal({ found.top1, found.accuracy, found.top5 }, { 0.75, 0.75, 1 })
  check.equal(found.confusion_matrix, { { 1, 0 }, { 1, 2 } })
  local _, of_second = both(nn.CrossEntropyLoss { ignore_index = 0 }, logits,
    ms.Tensor({ { 0, 0, 0 }, { 1, 1, 1 } }, "int32"), metrics)
  check.near(of_second.top1, 2 / 3, 1e-6)
  check.equal(of_second.confusion_matrix, { { 0, 0 }, { 1, 2 } })
end)

check.case("mae, mse and rmse are of all elements, for every batch size and precision", function()
  local x, y = {}, {}
  local mae, mse = 0, 0
  for i = 1, 7 do
    x[i], y[i] = { i, -i }, { i * i / 4, 0 }
    mae = mae + math.abs(i - y[i][1]) + i
    mse = mse + (i - y[i][1]) ^ 2 + i ^ 2
  end
  local net = nn.Dense(2, 2, { has_bias = false })
  net.weight.value = ms.Tensor { { 1, 0 }, { 0, 1 } }
  for _, amp in ipairs { false, "bf16" } do
    local m = ms.Model(net, { loss_fn = nn.L1Loss(), amp = amp or nil, metrics = { "mae", "mse", "rmse" } })
    for _, batch in ipairs { 2, 7 } do
      local ds = ms.dataset.NumpySlicesDataset({ ms.Tensor(x), ms.Tensor(y) }, { "x", "y" }):batch(batch)
      local found = m:eval(ds)
      check.near({ found.mae, found.mse, found.rmse }, { mae / 14, mse / 14, math.sqrt(mse / 14) }, 1e-5)
      check.near(found.loss, found.mae, 1e-5)
    end
  end
  local wrong = ms.dataset.NumpySlicesDataset({ ms.Tensor(x), ms.zeros { 7 } }, { "x", "y" }):batch(7)
  check.fails("metrics: mse: expected a label of shape [7, 2] for float32[7, 2], got float32[7]", function()
    ms.Model(net, { metrics = { "mse" } }):eval(wrong)
  end)
end)

check.case("labels of several classes in a row are an error of the metrics of one class", function()
  local x = ms.Tensor { { 3, 1, 2 }, { 1, 2, 3 } }
  local function measured(name, labels)
    local ds = ms.dataset.NumpySlicesDataset({ x, ms.Tensor(labels, ms.float32) }, { "x", "y" }):batch(2)
    return ms.Model(nn.Identity(), { loss_fn = nn.BCEWithLogitsLoss(), metrics = { name } }):eval(ds)[name]
  end
  for _, name in ipairs { "top1", "top5", "f1" } do
    check.equal(measured(name, { { 1, 0, 0 }, { 0.2, 0.3, 0.5 } }), name == "f1" and 2 / 3 or 1)
    check.fails("labels of the output's shape are shares of classes, of which one is the largest", measured, name,
      { { 1, 0, 1 }, { 0, 0, 1 } })
    check.fails("for several classes in a row give a function(output, label)", measured, name,
      { { 1, 0, 0 }, { 0, 0, 0 } })
  end
end)

check.case("labels that are no class are an error of the metrics that count them", function()
  local x, y = ms.Tensor { 1, 2, 3, 4 }, ms.Tensor { 0, 2, 1, 2 }
  local ds = ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(4)
  local function measured(name)
    return ms.Model(nn.Identity(), { loss_fn = nn.MSELoss(), metrics = { name } }):eval(ds)[name]
  end
  for _, name in ipairs { "auc", "f1", "confusion_matrix" } do
    check.fails("metrics: " .. name .. ": 2 labels of the dataset are no class: there are 2", measured, name)
  end
end)

check.case("auc tells large logits apart", function()
  local function auc(scores, labels, loss_fn)
    local n = #scores
    local ds = ms.dataset.NumpySlicesDataset({ ms.Tensor(scores, "float32", { n, 1 }),
      ms.Tensor(labels, "float32", { n, 1 }) }, { "x", "y" }):batch(2)
    return ms.Model(nn.Identity(), { loss_fn = loss_fn or nn.BCEWithLogitsLoss(), metrics = { "auc" } }):eval(ds).auc
  end
  check.equal(auc({ 20, 30, 25, 40 }, { 0, 1, 0, 1 }), 1)
  check.equal(auc({ -20, -30, -25, -40 }, { 0, 1, 0, 1 }), 0)
  check.equal(auc({ 16, 17, 1e6, 2e6 }, { 0, 1, 0, 1 }), 0.75)
  check.equal(auc({ 3e38, 1 / 0, -1 / 0, -3e38 }, { 0, 1, 0, 1 }), 0.75)
  check.equal(auc({ 15.999, 16, -16, -16.5 }, { 0, 1, 1, 0 }), 0.625)
  check.equal(auc({ 1 / 0, 0 / 0, 0 / 0, 1e30 }, { 0, 1, 1, 0 }), 0)
end)

check.done()
