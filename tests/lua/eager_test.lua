-- What eager calls and gradients follow: set_train, and what changes between calls.
local check = require "check"
local ms = require "mslua"
local nn, ops, Tensor = ms.nn, ms.ops, ms.Tensor

local function values(t) return t:totable() end

-- The numbers that a list has, in order.
local function numbers(t)
  local seen, list = {}, {}
  for _, v in ipairs(values(t)) do
    if not seen[v] then list[#list + 1] = v end
    seen[v] = true
  end
  table.sort(list)
  return list
end

check.case("each cell trains or evaluates as it was told", function()
  local x = Tensor { { 1 }, { 3 } }
  local norm, drop = nn.BatchNorm1d(1), nn.Dropout { p = 0.5 }
  norm:set_train(false)
  drop:set_train(true)
  check.near(values(norm(x)), { { 1 }, { 3 } }, 1e-4)
  check.equal(values(norm.moving_mean.value), { 0 })
  local ones = ms.ones { 64 }
  check.equal(numbers(drop(ones)), { 0, 2 })
  check.equal(values(nn.Dropout { p = 0.5 }(ones)), values(ones))
end)

check.case("a cell trains as its owner was told last, unless it was told otherwise", function()
  local ones = ms.ones { 64 }
  local net = nn.SequentialCell { nn.Dropout { p = 0.5 }, nn.Dropout { p = 0.5 } }
  net:set_train(true)
  net[2]:set_train(false)
  check.equal(numbers(net(ones)), { 0, 2 })
  net:set_train(true)
  check.equal(numbers(net(ones)), { 0, 4 })
  -- A field that comes later.
  local Net = nn.Cell:extend "Net"
  function Net:construct(x) return self.drop(x) end
  local owner = Net()
  owner:set_train(true)
  owner.drop = nn.Dropout { p = 0.75 }
  check.equal(numbers(owner(ones)), { 0, 4 })
end)

check.case("predict evaluates, whatever cells were told", function()
  local net = nn.Dropout { p = 0.5 }
  net:set_train(true)
  local ones = ms.ones { 64 }
  check.equal(values(ms.Model { network = net }:predict(ones)), values(ones))
  check.equal(numbers(net(ones)), { 0, 2 })
end)

check.case("grad reads what has changed since the last call", function()
  local k, y = 2, Tensor { 3 }
  local grad = ms.grad(function(x) return ops.reduce_sum(x * k * y) end)
  check.equal(values(grad(Tensor { 1 })), { 6 })
  k = 7
  check.equal(values(grad(Tensor { 1 })), { 21 })
  y = Tensor { 5 }
  check.equal(values(grad(Tensor { 1 })), { 35 })
  k = 2
  check.equal(values(grad(Tensor { 1, 1 })), { 10, 10 })
end)

check.case("grad follows set_train", function()
  local drop, ones = nn.Dropout { p = 0.5 }, ms.ones { 64 }
  local grad = ms.grad(function(x) return ops.reduce_sum(drop(x)) end)
  drop:set_train(true)
  local first = values(grad(ones))
  check.equal(numbers(grad(ones)), { 0, 2 })
  local same = 0
  for i, v in ipairs(values(grad(ones))) do same = same + (v == first[i] and 1 or 0) end
  if same == 64 then error "each call drops the same" end
  drop:set_train(false)
  check.equal(values(grad(ones)), values(ones))
end)

-- A number that changes makes another program of the function: its draws continue those of the others.
check.case("grad draws other numbers in each call", function()
  local drop, ones, k = nn.Dropout { p = 0.5 }, ms.ones { 64 }, 0
  drop:set_train(true)
  local grad = ms.grad(function(x) return ops.reduce_sum(drop(x)) * k end)
  local seen = {}
  for step = 1, 40 do
    k = step
    local zeros = {}
    for i, v in ipairs(values(grad(ones))) do
      if v == 0 then zeros[#zeros + 1] = i else check.equal(v, 2 * step) end
    end
    local text = table.concat(zeros, " ")
    if seen[text] then error("calls " .. seen[text] .. " and " .. step .. " draw the same") end
    seen[text] = step
  end
end)

check.case("tensors that a function reads are the same where it reads them twice", function()
  local t = Tensor { 2, 3 }
  local value, grad = ms.value_and_grad(function(x) return ops.reduce_sum(x * t + t * t) end)(Tensor { 1, 1 })
  check.equal(value:item(), 2 + 3 + 4 + 9)
  check.equal(values(grad), { 2, 3 })
end)

check.case("clip_by_global_norm scales all tensors of a list by one number", function()
  local list = { ms.Tensor { 3, 3 }, ms.Tensor({ 4 }, ms.float64), ms.Tensor({ 1 }, ms.bfloat16) }
  local norm = math.sqrt(35)
  local clipped = ops.clip_by_global_norm(list, 1)
  check.near(clipped[1]:totable(), { 3 / norm, 3 / norm }, 1e-6)
  check.near(clipped[2]:item(), 4 / norm, 1e-12)
  check.near(clipped[3]:item(), 1 / norm, 1e-3)
  check.equal({ clipped[1].dtype, clipped[2].dtype, clipped[3].dtype }, { "float32", "float64", "bfloat16" })
  check.equal(ops.clip_by_global_norm({ ms.Tensor { 3, 4 } }, 5)[1]:totable(), { 3, 4 })
  check.equal(ops.clip_by_global_norm({ ms.zeros { 2 } })[1]:totable(), { 0, 0 })
  check.equal(#ops.clip_by_global_norm({}, 1), 0)
  local x = ms.Tensor { 3, 4 }
  local gradient = ms.grad(function(a) return ops.clip_by_global_norm({ a }, 1)[1][1] end)(x)
  check.near(gradient:totable(), { 16 / 125, -12 / 125 }, 1e-6)
  check.fails_here("clip_by_global_norm: x: expected float tensors, got int32[2] in place 1",
    function() ops.clip_by_global_norm({ ms.zeros({ 2 }, ms.int32) }, 1) end)
end)

check.case("predictions of large networks are compiled, and follow what changes", function()
  local Net = nn.Cell:extend "Net"
  function Net:init()
    self.first, self.second, self.scale = nn.Dense(256, 512), nn.Dense(512, 256), 1
  end
  function Net:construct(x)
    local h = ops.relu(self.first(x))
    if self.reads and h:sum():item() < 0 then return h end
    return self.second(h) * self.scale, h
  end
  local net = Net()
  local model, x = ms.Model(net), ms.randn { 64, 256 }
  local function same()
    local y, h = model:predict(x)
    local y1, h1 = net(x)
    check.near(values(y), values(y1), 1e-4)
    check.near(values(h), values(h1), 1e-4)
  end
  same()
  net.scale = 3
  same()
  net.first.weight.value = net.first.weight.value * 0.5
  same()
  check.fails("Dense: in_channels is 256, the last dimension of x is 255", model.predict, model, ms.randn { 64, 255 })
  same()
  -- What asks a value for its number cannot be traced: it runs operator by operator.
  net.reads = true
  same()
  same()
end)

check.case("predictions of large networks draw other numbers in each call, as eager ones do", function()
  local function net_of(returned)
    local Net = nn.Cell:extend "Net"
    function Net:init() self.dense = nn.Dense(512, 512) end
    function Net:construct(x)
      local y = self.dense(x) + ms.randn { 64, 512 }
      if returned then return y, returned end
      return y
    end
    return Net()
  end
  local x = ms.randn { 64, 512 }
  -- A number among the results: such a network runs operator by operator.
  for _, returned in ipairs { false, 3 } do
    local model = ms.Model(net_of(returned or nil))
    local first, three = model:predict(x)
    local second = model:predict(x)
    check.equal(three, returned or nil)
    check.equal(ops.reduce_max(ops.abs(first - second)):item() > 0.1, true)
  end
end)

check.case("a cast to the same type stays when its tensor is freed, and when its parameter changes", function()
  local tensor = Tensor { 1, 2 }
  local same = ops.cast(tensor, "float32")
  tensor:free()
  check.equal(values(same), { 1, 2 })
  check.fails("the Tensor was freed", ops.cast, tensor, "float32")
  local p = ms.Parameter(Tensor { 1, 2 }, "held")
  local held, stopped = ops.cast(p, "float32"), ops.stop_gradient(p)
  p.value = Tensor { 5, 6 }
  check.equal(values(held), { 1, 2 })
  check.equal(values(stopped), { 1, 2 })
end)

check.done()
