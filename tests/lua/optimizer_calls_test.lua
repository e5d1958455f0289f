-- Training loops of one's own: opt(gradients) beside nn.TrainOneStepCell.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local Net = nn.Cell:extend "Net"
function Net:init(name)
  self.w = ms.Parameter(ms.Tensor { { 0.5, -1 }, { 2, 0.25 } }, name .. ".w")
  self.b = ms.Parameter(ms.Tensor { 0.1, 0.2 }, name .. ".b")
end
function Net:construct(x) return ops.matmul(x, self.w) + self.b end

local loss = nn.MSELoss()
local batches = {}
for i = 1, 6 do
  batches[i] = { ms.Tensor { { i, -i / 2 }, { 1 / i, 3 } }, ms.Tensor { { 1, 2 }, { i, 0 } } }
end

local optimizers = {
  SGD = function(params)
    return nn.SGD { params = params, learning_rate = 0.01, momentum = 0.5, weight_decay = 0.1 }
  end,
  Momentum = function(params)
    return nn.Momentum { params = params, learning_rate = nn.cosine_decay_lr(0, 0.1, 6), momentum = 0.9,
      use_nesterov = true }
  end,
  Adam = function(params) return nn.Adam { params = params, learning_rate = function(step) return 0.1 / step end } end,
  AdamWeightDecay = function(params)
    local groups = { { params = { params[1] }, weight_decay = 0.1 }, { params = { params[2] } } }
    return nn.AdamWeightDecay { params = groups }
  end,
  Lamb = function(params) return nn.Lamb { params = params, learning_rate = 0.1 } end,
}

for name, make in pairs(optimizers) do
  check.case(name .. " by hand is a training step", function()
    local mine, ready = Net(name .. "1"), Net(name .. "2")
    local step = nn.TrainOneStepCell(nn.WithLossCell(ready, loss), make(ready:trainable_params()))
    local weights = mine:trainable_params()
    local opt = make(weights)
    local f = ms.value_and_grad(function(x, y) return loss(mine(x), y) end, nil, weights)
    for _, batch in ipairs(batches) do
      local value, gradients = f(unpack(batch))
      check.equal(value:item(), step(unpack(batch)):item())
      opt(gradients)
    end
    for i, p in ipairs(weights) do
      check.equal(p.value:totable(), ready:trainable_params()[i].value:totable())
    end
  end)
end

-- The weights after `steps` of all batches, made in turn by a step of its own and by hand.
for name, make in pairs(optimizers) do
  check.case(name .. " continues in another loop", function()
    local whole, parts = Net(name .. "3"), Net(name .. "4")
    local step = nn.TrainOneStepCell(nn.WithLossCell(whole, loss), make(whole:trainable_params()))
    local opt = make(parts:trainable_params())
    local first = nn.TrainOneStepCell(nn.WithLossCell(parts, loss), opt)
    local second = nn.TrainOneStepCell(nn.WithLossCell(parts, loss), opt)
    local weights = parts:trainable_params()
    local f = ms.value_and_grad(function(x, y) return loss(parts(x), y) end, nil, weights)
    for i, batch in ipairs(batches) do
      step(unpack(batch))
      if i % 3 == 0 then
        first(unpack(batch))
      elseif i % 3 == 1 then
        second(unpack(batch))
      else
        opt((select(2, f(unpack(batch)))))
      end
    end
    for i, p in ipairs(weights) do
      check.equal(p.value:totable(), whole:trainable_params()[i].value:totable())
    end
  end)

  check.case("a second " .. name .. " of the same parameters has a state of its own", function()
    local both, other = Net(name .. "5"), Net(name .. "6")
    local function train(net, first, last)
      local step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), make(net:trainable_params()))
      for i = first, last do step(unpack(batches[i])) end
    end
    train(both, 1, 3)
    for i, p in ipairs(other:trainable_params()) do p.value = both:trainable_params()[i].value end
    train(both, 4, 6)
    train(other, 4, 6)
    for i, p in ipairs(both:trainable_params()) do
      check.equal(p.value:totable(), other:trainable_params()[i].value:totable())
    end
  end)
end

check.case("model:train twice is once with the epochs of both", function()
  local function trained(epochs)
    ms.set_seed(3)
    local net = nn.Dense(2, 2)
    local columns = { x = ms.Tensor { { 1, 2 }, { 3, 4 }, { 0.5, 1 }, { 2, -1 } },
      y = ms.Tensor { { 1, 0 }, { 2, 1 }, { 0, 3 }, { 1, 1 } } }
    local data = ms.dataset.NumpySlicesDataset(columns, { shuffle = false }):batch(2)
    local model = ms.Model(net, { loss_fn = loss,
      optimizer = nn.Adam { params = net:trainable_params(),
        learning_rate = nn.exponential_decay_lr(0.1, 0.5, 8, 2, 1) } })
    for _, n in ipairs(epochs) do model:train(n, data, { dataset_sink_mode = false }) end
    return net.weight.value:totable()
  end
  check.equal(trained { 4 }, trained { 1, 3 })
end)

check.case("without momentum nothing is dampened", function()
  for dampening, wanted in pairs { [0.5] = { 0.9, 0.8, 0.7 }, [1] = { 0.9, 0.8, 0.7 } } do
    local p, found = ms.Parameter(ms.Tensor({ 1 }, ms.float64), "p"), {}
    local opt = nn.SGD { params = { p }, learning_rate = 0.1, dampening = dampening }
    for step = 1, 3 do
      opt { ms.ones({ 1 }, ms.float64) }
      found[step] = p.value[1]
    end
    check.near(found, wanted, 1e-12)
  end
end)

check.case("gradients can be clipped by hand, and a list of parameters given", function()
  local net = Net "clipped"
  local weights = net:trainable_params()
  local opt = nn.SGD { learning_rate = 1 }
  local before = net.b.value:totable()
  opt({ ms.zeros { 2, 2 }, ops.clip(ms.Tensor { 5, -7 }, -1, 1) }, weights)
  check.near(net.b.value:totable(), { before[1] - 1, before[2] + 1 }, 1e-6)
  opt({ ms.zeros { 2, 2 }, ms.ones { 2 } }, weights)
  check.near(net.b.value:totable(), { before[1] - 2, before[2] }, 1e-6)
end)

check.case("calls that make no sense", function()
  local net = Net "refused"
  local weights = net:trainable_params()
  local opt = nn.SGD { params = weights, learning_rate = 1 }
  local g = { ms.zeros { 2, 2 }, ms.zeros { 2 } }
  check.fails_here("which parameters it updates is not known",
    function() nn.SGD { learning_rate = 1 }(g) end)
  check.fails_here("expected a list of 2 gradients, one for each parameter, got 1", function() opt { g[1] } end)
  check.fails_here("gradient 2: expected float32{2}, the type of parameter", function() opt { g[1], g[1] } end)
  check.fails_here("gradient 1: expected float32{2, 2}", function() opt { 3, g[2] } end)
  opt(g)
  check.fails_here("its update was compiled for other parameters", function() opt({ g[2] }, { weights[2] }) end)
  check.fails_here("loss_scale = 1024 is for ms.Model",
    function() nn.SGD { params = weights, learning_rate = 1, loss_scale = 1024 }(g) end)
  local with_loss = nn.WithLossCell(net, loss)
  check.fails_here("TrainOneStepCell: SGD has loss_scale = 1024, which only divides gradients", function()
    nn.TrainOneStepCell(with_loss, nn.SGD { learning_rate = 1, loss_scale = 1024 })(unpack(batches[1]))
  end)
end)

check.case("a learning rate's function gives a finite number", function()
  for text, value in pairs { nan = 0 / 0, inf = math.huge, ["-1"] = -1 } do
    local net = Net("rate" .. text)
    local opt = nn.SGD { params = net:trainable_params(), learning_rate = function() return value end }
    check.fails_here(("the learning rate's function gave %s for step 1: expected a finite number"):format(text),
      function() opt { ms.zeros { 2, 2 }, ms.zeros { 2 } } end)
  end
  local opt = nn.SGD { params = Net("rate"):trainable_params(), learning_rate = function() return "1" end }
  check.fails_here("the learning rate's function should return a number, got", function()
    opt { ms.zeros { 2, 2 }, ms.zeros { 2 } }
  end)
end)

local function weights_of(net)
  local found = {}
  for i, p in ipairs(net:get_parameters()) do found[i] = p.value:totable() end
  return found
end

check.case("a step is compiled again where requires_grad has changed", function()
  local make = optimizers.Adam
  local function trained(frozen_at)
    local net = Net("frozen" .. frozen_at)
    local step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), make(net:trainable_params()))
    local seen = {}
    for i = 1, 6 do
      if i == frozen_at then net.w.requires_grad = false end
      if i == 5 then net.w.requires_grad = true end
      step(unpack(batches[i]))
      seen[i] = weights_of(net)
    end
    return seen
  end
  local free, frozen = trained(7), trained(3)
  check.equal({ frozen[1], frozen[2] }, { free[1], free[2] })
  check.equal({ frozen[3][1], frozen[4][1] }, { free[2][1], free[2][1] })
  check.equal(frozen[3][2], free[3][2])
  assert(frozen[4][2][1] ~= frozen[3][2][1] and frozen[5][1][1][1] ~= frozen[4][1][1][1])
end)

check.case("the steps of a recipe that is trained by hand too", function()
  local ByHand = require "mslua.by_hand"
  local net = nn.Dense(2, 2)
  local data = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.zeros { 4, 2 } }, { "x", "y" }):batch(2)
  local hand = ByHand(ms.Model(net, { loss_fn = loss, optimizer = nn.SGD { learning_rate = 0.1 } }), data)
  hand:step()
  net.weight.requires_grad = false
  local before = weights_of(net)
  hand:step()
  local after = weights_of(net)
  check.equal(after[1], before[1])
  assert(after[2][1] ~= before[2][1])
end)

check.case("a step has something to train, and all that its network uses", function()
  local net = nn.Dense(2, 2)
  for _, p in ipairs(net:get_parameters()) do p.requires_grad = false end
  check.fails_here("SGD: no parameter to train: none of the network has requires_grad = true", function()
    nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.SGD { learning_rate = 1 })(unpack(batches[1]))
  end)
  local Empty = nn.Cell:extend "Empty"
  function Empty:__init() self.fc = nn.Dense(2, 2) end
  function Empty:construct(x) return x end
  check.fails_here("SGD: the network Empty has no parameters: assign cells to fields of self in function Empty:init()",
    function() ms.Model(Empty(), { loss_fn = loss, optimizer = nn.SGD { learning_rate = 1 } }):train(1,
      ms.dataset.NumpySlicesDataset({ ms.ones { 2, 2 }, ms.ones { 2, 2 } }):batch(2)) end)
  local Outside, outside = nn.Cell:extend "Outside", nn.Dense(2, 2)
  function Outside:init() self.fc = nn.Dense(2, 2) end
  function Outside:construct(x) return outside(self.fc(x)) end
  check.fails_here("which is none of its own, so it would not be trained", function()
    nn.TrainOneStepCell(nn.WithLossCell(Outside(), loss), nn.SGD { learning_rate = 1 })(unpack(batches[1]))
  end)
end)

check.case("the state of an optimizer without updates restores its beginning", function()
  local function make()
    local net = nn.Dense(2, 1, { weight_init = 0.5 })
    return net, nn.Momentum { params = net:trainable_params(), learning_rate = 0.1, momentum = 0.9 }
  end
  local net, opt = make()
  local gradients = {}
  for i, p in ipairs(opt.parameters) do gradients[i] = ms.ones(p.shape) end
  local function values() return net.weight.value:totable() end
  local path = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/fresh_optimizer"
  ms.save_checkpoint(opt, path)
  local begin = net.weight.value
  opt(gradients)
  opt(gradients)
  local wanted = values()
  net.weight.value = begin
  ms.load_checkpoint(path, opt)
  opt(gradients)
  opt(gradients)
  check.equal(values(), wanted)
end)

check.done()
