-- Averages of parameters (train's ema) beside the same averages by hand.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local decay, epochs = 0.8, 3

local Net = nn.Cell:extend "Net"
function Net:init(name, dtype)
  self.w = ms.Parameter(ms.Tensor({ { 0.5, -1 }, { 2, 0.25 } }, dtype), name .. ".w")
  self.b = ms.Parameter(ms.Tensor({ 0.1, 0.2 }, dtype), name .. ".b")
  self.fixed = ms.Parameter(ms.Tensor({ 1, 1 }, dtype), name .. ".fixed", { requires_grad = false })
end
function Net:construct(x) return ops.matmul(x, self.w) + self.b * self.fixed end

local function data(dtype)
  local x, y = {}, {}
  for i = 1, 8 do x[i], y[i] = { i / 4, -i / 8 }, { 1, i / 2 } end
  return ms.dataset.NumpySlicesDataset({ ms.Tensor(x, dtype), ms.Tensor(y, dtype) }, { "x", "y" }, { shuffle = false })
    :batch(4)
end

-- The parameters after each step, as lists of numbers.
local Watch = ms.Callback:extend "Watch"
function Watch:init(net) self.net, self.seen = net, {} end
function Watch:on_train_step_end()
  local values = {}
  for _, p in ipairs(self.net:trainable_params()) do
    for _, v in ipairs(p.value:reshape(-1):totable()) do values[#values + 1] = v end
  end
  table.insert(self.seen, values)
end

-- What optax.ema with debias gives for them.
local function average_of(seen)
  local sum, weights = {}, 0
  for i = 1, #seen[1] do sum[i] = 0 end
  for _, values in ipairs(seen) do
    for i, v in ipairs(values) do sum[i] = decay * sum[i] + (1 - decay) * v end
    weights = decay * weights + 1 - decay
  end
  for i, v in ipairs(sum) do sum[i] = v / weights end
  return sum
end

local function near(a, b, tolerance)
  for i, v in ipairs(b) do
    if math.abs(a[i] - v) > tolerance then error(("%d: expected %.17g, got %.17g"):format(i, v, a[i]), 2) end
  end
end

local function values_of(net)
  local values = {}
  for _, p in ipairs(net:trainable_params()) do
    for _, v in ipairs(p.value:reshape(-1):totable()) do values[#values + 1] = v end
  end
  return values
end

local function model_of(net)
  return ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.Adam { params = net:trainable_params(),
    learning_rate = 0.1 }, metrics = { "loss" } })
end

for _, case in ipairs { { ms.float64, 1e-14 }, { ms.float32, 1e-6 } } do
  local dtype, tolerance = unpack(case)
  check.case("averages are those by hand in " .. dtype, function()
    local net = Net("a_" .. dtype, dtype)
    local model, watch = model_of(net), Watch(net)
    model:train(epochs, data(dtype), { callbacks = watch, ema = decay })
    check.equal(#watch.seen, 2 * epochs)
    local last, average = watch.seen[#watch.seen], average_of(watch.seen)
    near(values_of(net), last, 0)
    local evaluated = model:eval(data(dtype)).loss
    model:use_averages()
    near(values_of(net), average, tolerance)
    -- The evaluation before was of the averages.
    model.averages = nil
    near({ evaluated }, { model:eval(data(dtype)).loss }, tolerance)
    check.equal(net.fixed.value:totable(), { 1, 1 })
  end)
end

check.case("a second training continues the averages", function()
  local whole, parts = Net("b", ms.float64), Net("c", ms.float64)
  local one, two = model_of(whole), model_of(parts)
  one:train(4, data(ms.float64), { ema = decay })
  two:train(1, data(ms.float64), { ema = decay })
  two:train(3, data(ms.float64), { ema = decay })
  check.equal(values_of(parts), values_of(whole))
  one:use_averages()
  two:use_averages()
  check.equal(values_of(parts), values_of(whole))
end)

check.case("a parameter that is trained later has no average", function()
  local net = Net("u", ms.float64)
  net.b.requires_grad = false
  local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
  model:train(1, data(ms.float64), { ema = decay })
  net.b.requires_grad = true
  check.fails("ema: parameter 'u.b' has no average of the first 2 updates",
    function() model:train(1, data(ms.float64), { ema = decay }) end)
end)

check.case("averages of a checkpoint stand for the values of their rank", function()
  local function number(x) return ms.Tensor { x } end
  local values = {
    w = number(1), ["ema.w"] = number(2), ["rank_1/w"] = number(3), ["rank_1/ema.w"] = number(4),
    ["rank_1/b"] = number(5), ["rank_12/ema.gone"] = number(6),
  }
  assert(require("mslua.checkpoint").use_averages(values))
  local found = {}
  for name, v in pairs(values) do found[name] = v:item() end
  check.equal(found, { w = 2, ["ema.w"] = 2, ["rank_1/w"] = 4, ["rank_1/ema.w"] = 4, ["rank_1/b"] = 5,
    ["rank_12/ema.gone"] = 6 })
end)

check.case("averages begin with the optimizer", function()
  local net = Net("d", ms.float64)
  local model = model_of(net)
  check.fails("use_averages: there are none", function() model:use_averages() end)
  model:train(1, data(ms.float64))
  check.fails("the optimizer has made 2 updates without averages",
    function() model:train(1, data(ms.float64), { ema = decay }) end)
  local second = model_of(Net("e", ms.float64))
  second:train(1, data(ms.float64), { ema = decay })
  check.fails("averages have the decay 0.8, this training asks for 0.9",
    function() second:train(1, data(ms.float64), { ema = 0.9 }) end)
  second:train(1, data(ms.float64))
  check.fails("the optimizer has made 2 updates without averages",
    function() second:train(1, data(ms.float64), { ema = decay }) end)
  check.fails("train: ema: expected a number, above 0 and below 1, got 1",
    function() model:train(1, data(ms.float64), { ema = 1 }) end)
end)

check.done()
