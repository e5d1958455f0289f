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

check.done()
