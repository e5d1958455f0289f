-- What loops of one's own need beside opt(gradients): epochs.
local check = require "check"
local ms = require "mslua"
local nn = ms.nn

-------------------------------------------------------------------------------------------------------------- epochs

local function epoch_of(dataset, epochs)
  local order = {}
  for x in dataset:create_tuple_iterator(epochs) do order[#order + 1] = x:totable() end
  return order
end

local function shuffled() return ms.dataset.NumpySlicesDataset({ ms.arange(16) }, { "x" }, { shuffle = true }):batch(8) end

check.case("each iterator of a dataset begins with the epoch after those before", function()
  local whole, parts = epoch_of(shuffled(), 4), {}
  local dataset = shuffled()
  for _, epochs in ipairs { 1, 2, 1 } do
    for _, batch in ipairs(epoch_of(dataset, epochs)) do parts[#parts + 1] = batch end
  end
  check.equal(parts, whole)
  assert(tostring(ms.Tensor(whole[1])) ~= tostring(ms.Tensor(whole[3])), "two epochs have one order")
end)

check.case("an iterator that stops early counts as an epoch", function()
  local dataset = shuffled()
  dataset:create_tuple_iterator()()
  check.equal(epoch_of(dataset)[1], epoch_of(shuffled(), 2)[3])
end)

check.case("a longer dataset counts for itself, and training counts its own epochs", function()
  local dataset = shuffled()
  epoch_of(dataset)
  check.equal(epoch_of(dataset:take(2)), epoch_of(shuffled()))
  local function trained(before)
    ms.set_seed(5)
    local net = nn.Dense(1, 1)
    local data = ms.dataset.NumpySlicesDataset({ ms.randn({ 8, 1 }, ms.float32, "hx"), ms.randn({ 8, 1 }, ms.float32, "hy") },
      { "x", "y" }, { shuffle = true }):batch(2)
    for _ = 1, before do for _ in data:create_tuple_iterator() do end end
    ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD(net:trainable_params(), 0.1) }):train(2, data)
    return net.weight.value:totable()
  end
  check.equal(trained(2), trained(0))
end)

check.case("an iterator of Lua gives all samples in each epoch", function()
  local dataset = ms.dataset.GeneratorDataset(function()
    local i = 0
    return function()
      i = i + 1
      if i <= 3 then return i end
    end
  end, { "x" }):batch(3)
  for _ = 1, 3 do check.equal(epoch_of(dataset), { { 1, 2, 3 } }) end
end)

check.done()
