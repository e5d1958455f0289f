-- Cells with a method bprop: gradients against analytic values, and against those of the same cells without it.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- A cell of these two functions, construct(x, ...) and bprop(x, ..., out, dout), without self.
local function cell_of(name, construct, bprop)
  local Made = nn.Cell:extend(name)
  function Made.construct(_, ...) return construct(...) end
  if bprop then function Made.bprop(_, ...) return bprop(...) end end
  return Made()
end

local function f64(list) return ms.Tensor(list, ms.float64) end

------------------------------------------------------------------------------------------------------ analytic values

local Sign = nn.Cell:extend "Sign"
function Sign:construct(x) return ops.sign(x) end
function Sign:bprop(x, out, dout) return dout end

check.case("straight-through: the value of sign, the gradient of the identity", function()
  local sign, x = Sign(), ms.Tensor { 1, -2, 0.5 }
  check.equal(sign(x):totable(), { 1, -1, 1 })
  local value, g = ms.value_and_grad(function(v) return (sign(v) * ms.Tensor { 1, 2, 3 }):sum() end)(x)
  check.equal(value:item(), 2)
  check.equal(g:totable(), { 1, 2, 3 })
end)

check.case("a gradient is reversed, scaled, clipped", function()
  local x = f64 { 1, -2, 3 }
  local function gradient(bprop)
    local cell = cell_of("Same", function(v) return v end, bprop)
    return ms.grad(function(v) return (cell(v) * f64 { 4, 5, -6 }):sum() end)(x):totable()
  end
  check.equal(gradient(function(_, _, dout) return -dout end), { -4, -5, 6 })
  check.equal(gradient(function(_, _, dout) return dout * 0.5 end), { 2, 2.5, -3 })
  check.equal(gradient(function(_, _, dout) return ops.clip(dout, -4.5, 4.5) end), { 4, 4.5, -4.5 })
end)

check.case("a quantizer whose scale is an argument", function()
  -- Learned step size quantization (Esser et al., 2020): round(clip(x / s, -q, q)) * s.
  local q = 2
  local Quantize = nn.Cell:extend "Quantize"
  function Quantize:construct(x, scale) return ops.round(ops.clip(x / scale, -q, q)) * scale end
  function Quantize:bprop(x, scale, out, dout)
    local level = x / scale
    local inside = ops.cast(ops.logical_and(ops.greater(level, -q), ops.less(level, q)), x.dtype)
    return dout * inside, (dout * (out / scale - level * inside)):sum()
  end
  local Net = nn.Cell:extend "Net"
  function Net:init()
    self.scale = ms.Parameter(f64(0.5))
    self.quantize = Quantize()
  end
  function Net:construct(x) return self.quantize(x, self.scale) end
  local net = Net()
  local x, w = f64 { 0.3, -0.9, 2, 0.6 }, f64 { 1, 2, 3, 4 }
  local value, by_x, by_weight = ms.value_and_grad(function(v) return (net(v) * w):sum() end, 1, { net.scale })(x)
  check.near(value:item(), 0.5 * (1 * 1 - 2 * 2 + 2 * 3 + 1 * 4), 1e-12)
  check.equal(by_x:totable(), { 1, 2, 0, 4 })
  check.near(by_weight[1]:item(), 1 * (1 - 0.6) + 2 * (-2 + 1.8) + 3 * 2 + 4 * (1 - 1.2), 1e-12)
end)

check.case("the gradient of a bprop is that of what it computed", function()
  local cube = cell_of("Cube", function(x) return x * x * x end, function(x, _, dout) return dout * 3 * x * x end)
  local function f(x) return cube(x):sum() end
  local function second(x) return ms.grad(f)(x):sum() end
  local function third(x) return ms.grad(second)(x):sum() end
  local x = f64 { 2, -1 }
  check.near(ms.grad(f)(x):totable(), { 12, 3 }, 1e-12)
  check.near(ms.grad(second)(x):totable(), { 12, -6 }, 1e-12)
  check.near(ms.grad(third)(x):totable(), { 6, 6 }, 1e-12)
  -- Through out: exp' = exp.
  local exp = cell_of("Exp", function(v) return ops.exp(v) end, function(_, out, dout) return dout * out end)
  local function slope(v) return ms.grad(function(u) return exp(u):sum() end)(v):sum() end
  local function curve(v) return ms.grad(slope)(v):sum() end
  check.near(ms.grad(curve)(x):totable(), { math.exp(2), math.exp(-1) }, 1e-12)
end)

check.case("several results: out and dout are lists, and dout is zero where none flows", function()
  local seen
  local both = cell_of("Both", function(x, y) return x * y, x + y, ops.greater(x, y) end, function(x, y, out, dout)
    seen = { #out, dout[1] ~= nil, dout[2] ~= nil, dout[3] == nil, out[3].dtype }
    return dout[1] * y + dout[2], dout[1] * x + dout[2]
  end)
  local x, y = f64 { 1, 2 }, f64 { 3, 5 }
  local function gradients(f)
    local dx, dy = unpack(ms.grad(f, { 1, 2 })(x, y))
    return { dx:totable(), dy:totable() }
  end
  check.equal(gradients(function(a, b)
    local product, sum = both(a, b)
    return (product + sum * 10):sum()
  end), { { 13, 15 }, { 11, 12 } })
  check.equal(seen, { 3, true, true, true, "bool" })
  check.equal(gradients(function(a, b) return (select(2, both(a, b))):sum() end), { { 1, 1 }, { 1, 1 } })
  seen = nil
  check.equal(gradients(function(a, b)
    both(a, b)
    return (a - b):sum()
  end), { { 1, 1 }, { -1, -1 } })
  check.equal(seen, nil)  -- not called
end)

check.case("arguments without a gradient: integers, numbers, what is left out", function()
  local pick = cell_of("Pick", function(x, ids, axis) return ops.gather(x, ids, axis or 1) end,
    function(x, ids, _, dout) return ops.zeros_like(x) + dout:sum(), nil end)
  local x, ids = f64 { 1, 2, 3 }, ms.Tensor({ 0, 2 }, ms.int32)
  -- With `...` for parameters bprop gets as many arguments as the call has.
  check.equal(ms.grad(function(v) return pick(v, ids):sum() end)(x):totable(), { 2, 2, 2 })
  local Scale = nn.Cell:extend "Scale"
  function Scale:construct(v, by, offset) return v * (by or 2) + (offset or 0) end
  function Scale:bprop(v, by, offset, out, dout)
    assert(offset == nil and out.dtype == "float64")
    return dout * (by or 100)
  end
  local scale = Scale()
  check.equal(ms.grad(function(v) return scale(v):sum() end)(x):totable(), { 100, 100, 100 })
  check.equal(ms.grad(function(v) return scale(v, 3):sum() end)(x):totable(), { 3, 3, 3 })
end)

check.case("nil is a zero gradient", function()
  local first = cell_of("First", function(x, y) return x + y end, function(_, _, _, dout) return nil, dout end)
  local dx, dy = unpack(ms.grad(function(a, b) return first(a, b):sum() end, { 1, 2 })(f64 { 1 }, f64 { 2 }))
  check.equal({ dx:item(), dy:item() }, { 0, 1 })
end)

check.case("what bprop computes may change from call to call", function()
  local factor, table_of = 2, ms.Tensor { 1, 1 }
  local scale = cell_of("Scale", function(x) return x end, function(_, _, dout) return dout * factor * table_of end)
  local g = ms.grad(function(x) return scale(x):sum() end)
  local x = ms.Tensor { 1, 2 }
  check.equal(g(x):totable(), { 2, 2 })
  factor = 3
  check.equal(g(x):totable(), { 3, 3 })
  table_of = ms.Tensor { 1, 5 }
  check.equal(g(x):totable(), { 3, 15 })
end)

check.case("bprop may call cells, draw random numbers, assign and ask for gradients", function()
  local core = require "mslua.core"
  local state = core.state { name = "largest", dtype = "float64", shape = {}, init = "zeros" }
  local inner = Sign()
  local cell = cell_of("Busy", function(x) return x * x end, function(x, _, dout)
    core.assign(state, ops.abs(dout):max())
    local own = ms.grad(function(v) return (v * v * dout):sum() end)(x)
    return own * ops.cast(ops.greater(ops.random_uniform { shape = { 2 } }, -1), ms.float64) * inner(f64 { 1, 1 })
  end)
  local g = ms.grad(function(x) return (cell(x) * f64 { 1, -7 }):sum() end)(f64 { 3, 4 })
  check.equal(g:totable(), { 6, -56 })
  check.equal(state.value:item(), 7)
end)

check.case("cells with bprop in each other", function()
  local inner = cell_of("Inner", function(x) return x * 2 end, function(_, _, dout) return dout * 10 end)
  local outer = cell_of("Outer", function(x) return inner(x) * 3 end, function(x, _, dout)
    return inner(dout) + ms.grad(function(v) return inner(v):sum() end)(x)
  end)
  check.equal(ms.grad(function(x) return outer(x):sum() end)(f64 { 1 }):item(), 12)
  check.equal(ms.grad(function(x) return inner(inner(x)):sum() end)(f64 { 1 }):item(), 100)
end)

check.case("bprop draws numbers that leave those of the network as they are", function()
  local drop = nn.Dropout { p = 0.5 }
  drop:set_train(true)
  local x = ms.ones { 64 }
  local function draw(bprop)
    ms.set_seed(3)
    local cell = cell_of("Cell", function(v) return v end, bprop)
    return ms.grad(function(v) return drop(cell(drop(v))):sum() end)(x):totable()
  end
  check.equal(draw(function(_, _, dout) return dout + ops.random_uniform { shape = { 64 } } * 0 end), draw())
end)

----------------------------------------------------------------------------------------------- as the usual gradient

-- The same network with bprop, and without it.
local function product(own)
  return cell_of("Product", function(x, w) return ops.matmul(x, w) end, own and function(x, w, _, dout)
    return ops.matmul(dout, w, { transpose_b = true }), ops.matmul(x, dout, { transpose_a = true })
  end)
end
local function squash(own)
  return cell_of("Squash", function(x) return ops.exp(-(x * x)) end, own and function(x, out, dout)
    local slope = -(dout * out)
    return slope * x + slope * x
  end)
end
local Net = nn.Cell:extend "Net"
function Net:init(own, dtype)
  self.first = ms.Parameter(ms.randn({ 6, 8 }, dtype, "first"))
  self.second = ms.Parameter(ms.randn({ 8, 1 }, dtype, "second"))
  self.product, self.squash = product(own), squash(own)
end
function Net:construct(x) return self.product(self.squash(self.product(x, self.first)), self.second) end

local function losses(own, dtype, recompute)
  ms.set_seed(5)
  local net = Net(own, dtype)
  if recompute then net.squash:recompute() end
  local x, y = ms.randn({ 32, 6 }, dtype, "x"), ms.randn({ 32, 1 }, dtype, "y")
  local ds = ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(8)
  local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.Momentum(net:trainable_params(), 0.1, 0.9) })
  local list = {}
  local Losses = ms.Callback:extend "Losses"
  function Losses:on_train_step_end(state) list[#list + 1] = state.loss end
  model:train(3, ds, { callbacks = { Losses() } })
  local step = ms.value_and_grad(function(a) return (net(a) - y):mean() end, 1, net:trainable_params())
  local _, by_x, by_weights = step(x)
  return list, { by_x:totable(), by_weights[1]:totable(), by_weights[2]:totable() }
end

for _, dtype in ipairs { "float64", "float32" } do
  for _, recompute in ipairs { false, true } do
    local name = ("a training with bprop is the same one, %s%s"):format(dtype, recompute and ", recomputed" or "")
    check.case(name, function()
      local list, gradients = losses(true, dtype, recompute)
      local wanted, usual = losses(false, dtype, recompute)
      check.equal(list, wanted)
      check.equal(gradients, usual)
      assert(#list == 12 and list[12] < list[1])
    end)
  end
end

check.case("bprop does not run where there are no gradients", function()
  local core = require "mslua.core"
  local cell = cell_of("Never", function(x) return x * 2 end, function() error "bprop ran" end)
  check.equal(cell(f64 { 1 }):item(), 2)
  check.equal(core.trace(cell, { { dtype = "float64", shape = { 1 } } }):run(f64 { 1 }):item(), 2)
  check.equal(ms.grad(function(x) return (ops.stop_gradient(cell(x)) * x):sum() end)(f64 { 1 }):item(), 2)
  check.equal(ms.grad(function(x, y) return (cell(x) * y):sum() end, 2)(f64 { 1 }, f64 { 1 }):item(), 2)
end)

---------------------------------------------------------------------------------------------------------------- errors

local function graded(cell, x, ...)
  local rest = { ... }
  return ms.grad(function(v) return (cell(v, unpack(rest))):sum() end)(x)
end

check.case("gradients of a wrong kind", function()
  local x = ms.ones { 2, 3 }
  local function fails(text, bprop, ...)
    local Scale = nn.Cell:extend "Scale"
    function Scale:construct(v, w) return v * w end
    Scale.bprop = bprop
    check.fails_here(text, graded, Scale(), x, ...)
  end
  local w = ms.ones { 3 }
  fails("Scale: bprop returns 1 value, expected 2", function(_, _, _, _, dout) return dout end, w)
  fails("Scale: bprop returns 3 values, expected 2", function(_, _, _, _, dout) return dout, nil, nil end, w)
  fails("Scale: bprop returns 0 values, expected 2", function(_, _, _, _, _) end, w)
  fails("Scale: bprop returns f32[2,3] as the gradient of w (argument 2), expected its type, f32[3]: sum over what was "
    .. "broadcast", function(_, v, _, _, dout) return dout, dout * v end, w)
  fails("Scale: bprop returns f64[2,3] as the gradient of v (argument 1), expected its type, f32[2,3]: use :astype",
    function(_, _, _, _, dout) return dout:astype(ms.float64), nil end, w)
  fails("Scale: bprop returns 0 as the gradient of w (argument 2), expected a tensor",
    function(_, _, _, _, dout) return dout, 0 end, w)
  fails("Scale: bprop returns a table", function(_, _, _, _, dout) return { dout, dout } end, w)
  fails("Scale: bprop returns a gradient of w (argument 2), which is 2: only float tensors have one",
    function(_, _, _, _, dout) return dout, dout end, 2)
  fails("Scale: bprop takes 3 arguments, expected 4: function Scale:bprop(v, w, out, dout)",
    function(_, _, _, dout) return dout end, w)
end)

check.case("a parameter that construct reads by itself", function()
  local Linear = nn.Cell:extend "Linear"
  function Linear:init() self.w = ms.Parameter(ms.ones { 3 }) end
  function Linear:construct(x) return x * self.w end
  function Linear:bprop(x, out, dout) return dout * self.w end
  local net, x = Linear(), ms.ones { 2, 3 }
  check.equal(graded(net, x):totable(), { { 1, 1, 1 }, { 1, 1, 1 } })
  local by_weight = ms.grad(function(v) return net(v):sum() end, nil, { net.w })
  check.fails_here("Linear: construct reads the parameter 'w', f32[3], whose gradient is asked for", by_weight, x)
  local ds = ms.dataset.NumpySlicesDataset({ x, x }, { "x", "y" }):batch(2)
  local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD(net:trainable_params(), 0.1) })
  check.fails_here("Linear: construct reads the parameter 'w'", function() model:train(1, ds) end)
end)

check.case("a value that construct reads by itself", function()
  local taken
  local cell = cell_of("Takes", function(x) return x * taken end, function(_, _, dout) return dout end)
  check.fails_here("Takes: construct reads a value that is none of its arguments, f32[2]", function()
    ms.grad(function(x)
      taken = x * 2
      return cell(x):sum()
    end)(ms.ones { 2 })
  end)
  local g = ms.grad(function(x)
    taken = ops.stop_gradient(x * 2)
    return cell(x):sum()
  end)(ms.ones { 2 })
  check.equal(g:totable(), { 1, 1 })
end)

check.case("results of construct that are no tensors", function()
  local cell = cell_of("Table", function(x) return { x } end, function(_, _, dout) return dout end)
  check.fails_here("Table: construct returns {traced f32[2]}, expected a tensor", graded, cell, ms.ones { 2 })
end)

check.case("a bprop that is no function", function()
  local Flag = nn.Cell:extend "Flag"
  function Flag:init() self.bprop = true end
  function Flag.construct(_, x) return x end
  check.fails_here("Flag: bprop is true, expected a method", graded, Flag(), ms.ones { 2 })
end)

check.case("an error in bprop names its line", function()
  local cell = cell_of("Bad", function(x) return x end, function(_, _, dout) return ops.reshape(dout, { 7 }) end)
  check.fails_here("Reshape", graded, cell, ms.ones { 2 })
end)

check.done()
