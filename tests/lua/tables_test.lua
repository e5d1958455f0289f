-- Tables of embeddings: bags of ids by hand, rows that optimizers leave alone. tests/golden/cells.lua compares the bags
-- with PyTorch.
local ms = require "mslua"
local core = require "mslua.core"
local check = require "check"
local nn, ops = ms.nn, ms.ops

local rows = { { 1, 10 }, { 2, 20 }, { 3, 30 }, { 4, 40 }, { 5, -50 } }
local ids = ms.Tensor({ { 0, 2, 2 }, { 4, 1, 3 } }, ms.int32)

local function bag(options)
  local net = nn.EmbeddingBag(5, 2, options)
  core.assign(net.embedding_table, ms.Tensor(rows))
  return net
end

check.case("bags are sums, means and the largest of rows", function()
  check.near(bag { mode = "sum" }(ids):totable(), { { 7, 70 }, { 11, 10 } }, 1e-6)
  check.near(bag {}(ids):totable(), { { 7 / 3, 70 / 3 }, { 11 / 3, 10 / 3 } }, 1e-5)
  check.near(bag { mode = "max" }(ids):totable(), { { 3, 30 }, { 5, 40 } }, 0)
end)

check.case("padding counts for nothing", function()
  check.near(bag { mode = "sum", padding_idx = 2 }(ids):totable(), { { 1, 10 }, { 11, 10 } }, 1e-6)
  check.near(bag { padding_idx = 2 }(ids):totable(), { { 1, 10 }, { 11 / 3, 10 / 3 } }, 1e-5)
  check.near(bag { mode = "max", padding_idx = 4 }(ids):totable(), { { 3, 30 }, { 4, 40 } }, 0)
  local none = ms.Tensor({ { 2, 2, 2 } }, ms.int32)
  for _, mode in ipairs { "sum", "mean", "max" } do
    check.near(bag { mode = mode, padding_idx = 2 }(none):totable(), { { 0, 0 } }, 0)
  end
end)

check.case("bags of unequal lengths begin where offsets say", function()
  local flat, offsets = ms.Tensor({ 0, 2, 2, 4 }, ms.int32), ms.Tensor({ 0, 1, 1 }, ms.int32)
  check.near(bag { mode = "sum" }(flat, offsets):totable(), { { 1, 10 }, { 0, 0 }, { 11, 10 } }, 1e-6)
  check.near(bag {}(flat, offsets):totable(), { { 1, 10 }, { 0, 0 }, { 11 / 3, 10 / 3 } }, 1e-5)
  check.near(bag { padding_idx = 2 }(flat, offsets):totable(), { { 1, 10 }, { 0, 0 }, { 5, -50 } }, 1e-5)
end)

check.case("a bag without ids gives zeros", function()
  local none = ms.zeros({ 2, 0 }, ms.int32)
  for _, mode in ipairs { "sum", "mean", "max" } do
    check.equal(bag { mode = mode }(none):totable(), { { 0, 0 }, { 0, 0 } })
  end
end)

check.case("offsets that are not the beginnings of bags", function()
  local flat, net = ms.Tensor({ 0, 2, 2, 4 }, ms.int32), bag { mode = "sum" }
  check.equal(net(flat, ms.Tensor({ 0, 4 }, ms.int32)):totable(), { { 12, 20 }, { 0, 0 } })
  local function traced(ids_, offsets)
    return ms.value_and_grad(function(x, a, b) return ops.reduce_sum(net(a, b)) * x end, 1)(ms.Tensor(1), ids_, offsets)
  end
  check.equal(traced(flat, ms.Tensor({ 0, 4 }, ms.int32)):item(), 32)
  for _, offsets in ipairs { { 0, 9 }, { 0, 3, 1 }, { 1, 3 }, { -1, 2 } } do
    local places = ms.Tensor(offsets, ms.int32)
    check.fails_here("EmbeddingBag: offsets: expected places from 0 on in ascending order, up to the number of ids = 4",
      function() net(flat, places) end)
    if offsets[1] >= 0 then check.fails("is -1, expected 0 to", traced, flat, places) end
  end
end)

check.case("weights of samples", function()
  local weights = ms.Tensor { { 1, 2, 3 }, { 0, 1, 0.5 } }
  check.near(bag { mode = "sum" }(ids, nil, weights):totable(), { { 16, 160 }, { 4, 40 } }, 1e-5)
  check.fails('per_sample_weights need mode "sum"', function() bag {}(ids, nil, weights) end)
end)

check.case("what does not fit", function()
  local flat = ms.Tensor({ 0, 2 }, ms.int32)
  check.fails("offsets: expected the place where each bag", function() bag {}(flat) end)
  check.fails("offsets: expected none", function() bag {}(ids, flat) end)
  check.fails('mode "max" needs ids [n, l]', function() bag { mode = "max" }(flat, ms.Tensor({ 0 }, ms.int32)) end)
  check.fails("padding_idx: expected an id below vocab_size = 5, got 5", function() bag { padding_idx = 5 } end)
  check.fails("is 5, expected 0 to 4", function() bag {}(ms.Tensor({ { 5 } }, ms.int32)) end)
end)

check.case("a row of padding is 0 at first and gets no gradient", function()
  local kept = { { 1, 10 }, { 2, 20 }, { 0, 0 }, { 4, 40 }, { 5, -50 } }
  local given = nn.Embedding(5, 2, { embedding_table = ms.Tensor(rows), padding_idx = 2 })
  check.equal(given.embedding_table.value:totable(), kept)
  check.equal(given(ids):totable(), { { kept[1], kept[3], kept[3] }, { kept[5], kept[2], kept[4] } })
  ms.set_seed(3)
  local drawn = nn.Embedding(5, 2, { embedding_table = "normal", padding_idx = 2, multiple_of = 4 })
  ms.set_seed(3)
  local whole = nn.Embedding(5, 2, { embedding_table = "normal", multiple_of = 4 }).embedding_table.value:totable()
  for i, row in ipairs(drawn.embedding_table.value:totable()) do check.equal(row, i == 3 and { 0, 0 } or whole[i]) end
  -- A row that was given other values keeps them, whatever ids name it.
  core.assign(given.embedding_table, ms.Tensor(rows))
  local function loss(x) return ops.reduce_sum(given(x) * 3) end
  local _, _, gradients = core.value_and_grad(loss, {}, given:trainable_params())(ids)
  check.equal(gradients[1]:totable(), { { 3, 3 }, { 3, 3 }, { 0, 0 }, { 3, 3 }, { 3, 3 } })
  check.equal(given(ids):totable()[1][2], { 3, 30 })
  check.fails_here("Embedding: padding_idx: expected an id below vocab_size = 5, got 5",
    function() nn.Embedding(5, 2, { padding_idx = 5 }) end)
  check.fails_here("padding_idx: expected an integer, at least 0, got -1",
    function() nn.Embedding(5, 2, { padding_idx = -1 }) end)
end)

-- Trains a table of `height` rows, of which each step names a few, with and without passes.
local function train(optimizer, height, plain, padding_idx)
  ms.set_context { reference_kernels = plain }
  ms.set_seed(1)
  local net = nn.Embedding(height, 3, { embedding_table = "normal", padding_idx = padding_idx })
  net.embedding_table.value = ms.randn({ height, 3 }, "float32", "table")
  local function loss(x, y) return ops.reduce_mean((net(x) - y) * (net(x) - y)) end
  local step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer(net:trainable_params()))
  local x = ms.Tensor({ { 1, 7, 7 }, { 3, 1, 30 } }, ms.int32)
  local y = ms.randn({ 2, 3, 3 }, "float32", "y")
  local before = net.embedding_table.value:totable()
  for _ = 1, 3 do step(x, y) end
  ms.set_context { reference_kernels = false }
  return net.embedding_table.value:totable(), before, loss
end

check.case("rows without an index stay where the optimizer says so", function()
  for name, options in pairs { SGD = {}, Adagrad = {}, FTRL = {}, LazyAdam = { weight_decay = 0.1 } } do
    local function make(params)
      local o = { params = params, learning_rate = 0.5 }
      for key, v in pairs(options) do o[key] = v end
      return nn[name](o)
    end
    local after, before = train(make, 40)
    check.near(after, (train(make, 40, true)), 1e-5)
    for row = 1, 40 do
      local named = row == 2 or row == 8 or row == 4 or row == 31
      if named == (after[row][1] == before[row][1]) then
        error(("%s: row %d: %s to %s"):format(name, row, before[row][1], after[row][1]))
      end
    end
  end
  for name, options in pairs { SGD = { momentum = 0.9, weight_decay = 0.1 }, Adam = { weight_decay = 0.1 } } do
    local after, before = train(function(params)
      return nn[name] { params = params, learning_rate = 0.5, weight_decay = options.weight_decay }
    end, 40)
    if after[40][1] == before[40][1] then error(name .. " has left a row without an index") end
  end
end)

check.case("no optimizer without decay moves the row of padding", function()
  for _, name in ipairs { "SGD", "Adagrad", "LazyAdam", "Adam", "NAdam" } do
    local after, before = train(function(params) return nn[name] { params = params, learning_rate = 0.5 } end, 40,
      false, 7)
    check.equal(after[8], before[8])
    if after[2][1] == before[2][1] then error(name .. " has left row 2") end
  end
end)

check.case("whole gradients name no rows: LazyAdam is Adam on them", function()
  local w = ms.Parameter(ms.Tensor { { 1, 2 }, { 3, 4 } }, "w")
  local update = nn.LazyAdam { params = { w }, learning_rate = 0.1 }
  update { ms.Tensor { { 1, -1 }, { 0, 2 } } }
  check.near(w.value:totable(), { { 0.9, 2.1 }, { 3, 3.9 } }, 1e-5)
end)

check.case("weights of ids have the ids' shape", function()
  local flat, offsets = ms.Tensor({ 0, 2, 2, 4 }, ms.int32), ms.Tensor({ 0, 2 }, ms.int32)
  for _, padding in ipairs { false, 4 } do
    local net = bag { mode = "sum", padding_idx = padding or nil }
    check.near(net(ids, nil, ms.ones { 2, 3 }):totable(), net(ids):totable(), 1e-6)
    for _, shape in ipairs { { 3, 2 }, { 6 }, { 2, 1 }, { 1, 2, 3 } } do
      check.fails_here("EmbeddingBag: per_sample_weights: expected the ids' shape {2, 3}, got {",
        function() net(ids, nil, ms.ones(shape)) end)
    end
    check.fails_here("per_sample_weights: expected the ids' shape {4}, got {2}",
      function() net(flat, offsets, ms.ones { 2 }) end)
    check.fails_here("per_sample_weights: expected the ids' shape {4}, got 2", function() net(flat, offsets, 2) end)
  end
  check.fails_here("EmbeddingBag: offsets: expected int32 [n], got 3", function() bag {}(flat, 3) end)
end)

check.done()
