-- What loops of one's own need beside opt(gradients): epochs, rates, frozen parameters, saved state.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local folder = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/"

-------------------------------------------------------------------------------------------------------------- epochs

local function epoch_of(dataset, epochs)
  local order = {}
  for x in dataset:create_tuple_iterator(epochs) do order[#order + 1] = x:totable() end
  return order
end

local function shuffled()
  return ms.dataset.NumpySlicesDataset({ ms.arange(16) }, { "x" }, { shuffle = true }):batch(8)
end

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
    local columns = { ms.randn({ 8, 1 }, ms.float32, "hx"), ms.randn({ 8, 1 }, ms.float32, "hy") }
    local data = ms.dataset.NumpySlicesDataset(columns, { "x", "y" }, { shuffle = true }):batch(2)
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

------------------------------------------------------------------------------------------------------- learning rates

local function parameter(name, ...) return ms.Parameter(ms.Tensor { ... }, name) end

check.case("a learning rate that is assigned counts from the next step on", function()
  local p = parameter("rate.p", 1, 2)
  local opt = nn.SGD({ p }, 1)
  check.equal(opt.learning_rate, 1)
  opt { ms.ones { 2 } }
  check.near(p.value:totable(), { 0, 1 }, 1e-6)
  for _, key in ipairs { "learning_rate", "lr" } do
    opt[key] = 0.25
    opt { ms.ones { 2 } }
    check.equal(opt.lr, 0.25)
    opt.learning_rate = opt.learning_rate * 2
    opt { ms.ones { 2 } }
  end
  check.near(p.value:totable(), { -1.5, -0.5 }, 1e-6)
  opt.learning_rate = function(step) return step end
  opt { ms.ones { 2 } }
  check.near(p.value:totable(), { -1.5 - 6, -0.5 - 6 }, 1e-6)
  opt.learning_rate = { 1, 1, 1, 1, 1, 1, 2 }
  opt { ms.ones { 2 } }
  check.near(p.value:totable(), { -9.5, -8.5 }, 1e-6)
end)

check.case("and in a TrainOneStepCell, a Model, and below LARS", function()
  local function moved(make, train)
    local net = nn.Dense(1, 1, { has_bias = false, weight_init = "ones" })
    local opt = make(net)
    opt.learning_rate = 0
    train(net, opt)
    check.equal(net.weight.value:totable(), { { 1 } })
    opt.learning_rate = 0.5
    train(net, opt)
    return net.weight.value:item() ~= 1
  end
  local data = { ms.ones { 2, 1 }, ms.zeros { 2, 1 } }
  local function sgd(net) return nn.SGD(net:trainable_params(), 1) end
  local function lars(net) return nn.LARS(sgd(net)) end
  local cells = setmetatable({}, { __mode = "k" })
  local function one_step(net, opt)
    cells[net] = cells[net] or nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), opt)
    cells[net](unpack(data))
  end
  local function model(net, opt)
    ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = opt }):train(1,
      ms.dataset.NumpySlicesDataset(data, { "x", "y" }):batch(2))
  end
  for _, make in ipairs { sgd, lars } do
    for _, train in ipairs { one_step, model } do assert(moved(make, train)) end
  end
  local inner = nn.SGD({ parameter("inner.p", 1) }, 1)
  local outer = nn.LARS(inner)
  inner.learning_rate = 0.5
  check.equal(outer.learning_rate, 0.5)
end)

check.case("what cannot be assigned to an optimizer", function()
  local p = parameter("assigned.p", 1)
  local opt = nn.SGD({ p }, 1)
  check.fails_here("SGD.weight_decay cannot be assigned: of an optimizer only learning_rate can",
    function() opt.weight_decay = 0.1 end)
  check.fails_here("SGD.foo cannot be assigned", function() opt.foo = 1 end)
  check.fails_here("SGD.lr: expected", function() opt.lr = -1 end)
  check.fails_here("SGD.learning_rate: expected", function() opt.learning_rate = "fast" end)
  check.fails_here("SGD.learning_rate: expected a value, got nil", function() opt.learning_rate = nil end)
  local Mine = nn.SGD:extend "Mine"
  function Mine:init(...)
    nn.SGD.init(self, ...)
    self.note = "mine"
  end
  check.equal(Mine({ p }, 1).note, "mine")
end)

check.case("a learning rate that a callback assigns while a Model trains", function()
  local net = nn.Dense(1, 1)
  local opt = nn.SGD(net:trainable_params(), 1)
  local Change = ms.Callback:extend "Change"
  function Change.on_train_step_end() opt.learning_rate = 0.5 end
  local data = ms.dataset.NumpySlicesDataset({ ms.ones { 2, 1 }, ms.zeros { 2, 1 } }, { "x", "y" }):batch(2)
  check.fails("SGD.learning_rate cannot be assigned while ms.Model trains", function()
    ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = opt }):train(1, data, { callbacks = { Change() } })
  end)
end)

---------------------------------------------------------------------------------------------------------- parameters

check.case("an optimizer has its parameters, and no weights are none", function()
  local net = nn.Dense(2, 1)
  local p = net:trainable_params()
  local f = function(x) return net(x):sum() end
  check.equal(nn.SGD(p, 1).parameters, p)
  local groups = { { params = { p[2] } }, { params = { p[1] }, weight_decay = 0.1 } }
  check.equal(nn.SGD(groups, 1).parameters, { p[2], p[1] })
  check.equal(nn.LARS(nn.SGD(p, 1)).parameters, p)
  check.fails("give the optimizer params", function() return nn.SGD({ learning_rate = 1 }).parameters end)
  local _, g = ms.value_and_grad(f, nil, nn.SGD(p, 1).parameters)(ms.ones { 4, 2 })
  check.equal({ #g, g[1].shape[2] }, { 2, 2 })
  _, g = ms.value_and_grad(f, nil, {})(ms.ones { 4, 2 })
  check.equal(g, {})
  local gx, gw = ms.grad(f, 1, {})(ms.ones { 4, 2 })
  check.equal({ gx.shape[1], #gw }, { 4, 0 })
end)

check.case("a frozen parameter stays as it is, and so does its state", function()
  for name, make in pairs {
    SGD = function(p) return nn.SGD { params = p, learning_rate = 0.1, momentum = 0.9, weight_decay = 0.1 } end,
    AdamW = function(p) return nn.AdamW { params = p, learning_rate = 0.1 } end,
    Groups = function(p)
      local groups = { { params = { p[1] }, weight_decay = 0.1 }, { params = { p[2] } } }
      return nn.Adam { params = groups, learning_rate = 0.1 }
    end,
  } do
    local p = { parameter(name .. ".p", 1, 2), parameter(name .. ".q", 3) }
    local alone = { parameter(name .. ".alone", 1, 2), parameter(name .. ".other", 3) }
    local opt, other = make(p), make(alone)
    local g = { ms.Tensor { 0.5, -1 }, ms.Tensor { 2 } }
    opt(g)
    other(g)
    local before = p[1].value:totable()
    p[1].requires_grad = false
    opt(g)
    check.equal(p[1].value:totable(), before)
    assert(p[2].value:item() < 2.9)
    p[2].requires_grad = false
    opt(g)
    p[1].requires_grad = true
    alone[2].requires_grad = false
    if name == "SGD" then  -- the number of the step does not count
      opt(g)
      other(g)
      check.equal(p[1].value:totable(), alone[1].value:totable())
    end
  end
  check.fails_here("Dense.requires_grad = false has no effect", function() nn.Dense(1, 1).requires_grad = false end)
end)

check.case("parameters in plain tables are not lost in silence", function()
  local Late = nn.Cell:extend "Late"
  function Late:init(fill)
    self.fc = nn.Dense(2, 2)
    self.parts = {}
    fill(self)
  end
  local function cells(self) self.parts[1] = nn.Dense(2, 2) end
  local function nested(self) self.parts[1] = { nn.Dense(2, 2) } end
  local function parameters(self) self.parts[1] = { parameter("lost", 1) } end
  for fill, text in pairs {
    [cells] = "Late.parts is a plain table, in which the parameters of a Dense are not found",
    [nested] = "Late.parts is a plain table, in which the parameters of a Dense are not found",
    [parameters] = "Late.parts is a plain table, in which parameter 'lost' is not found",
  } do
    local net = Late(fill)
    check.fails_here(text, function() net:trainable_params() end)
    check.fails_here(text, function() net:get_parameters() end)
    check.fails_here(text, function() net:parameters_dict() end)
    check.fails_here("save_checkpoint: " .. text, function() ms.save_checkpoint(net, folder .. "late.safetensors") end)
    check.fails_here(text, function() ms.load_param_into_net(net, {}) end)
    check.fails(text, function() nn.TrainOneStepCell(net, nn.SGD { learning_rate = 1 })(ms.ones { 2, 2 }) end)
  end
  -- A table may have the network that its cell is a part of.
  local Part = nn.Cell:extend "Part"
  function Part:init() self.fc, self.others = nn.Dense(2, 2), {} end
  local Whole = nn.Cell:extend "Whole"
  function Whole:init()
    self.part = Part()
    self.part.others[1] = self
  end
  check.equal(#Whole().part:trainable_params(), 2)
  -- Of parameters and cells that a field has too, a table may have a list.
  local shared = nn.Dense(2, 2)
  local Listed = nn.Cell:extend "Listed"
  function Listed:init()
    self.fc, self.w = nn.Dense(2, 2), parameter("w", 1)
    self.all, self.shapes = { self.w, deep = { self.w } }, { { 1, 2 }, { 3 } }
    self.all[2] = self.fc
    self.list = nn.CellList { shared }
    self.all[3] = shared
  end
  check.equal(#Listed():trainable_params(), 5)
end)

---------------------------------------------------------------------------------------------------------- saved state

local makers = {
  adam = function(p) return nn.Adam(p, nn.cosine_decay_lr(0, 0.1, 10)) end,
  momentum = function(p) return nn.Momentum { params = p, learning_rate = 0.1, momentum = 0.9 } end,
  sgd = function(p) return nn.SGD(p, function(step) return 0.1 / step end) end,
  lars = function(p) return nn.LARS(nn.Momentum { params = p, learning_rate = 0.1, momentum = 0.9 }) end,
}
local x, y = ms.Tensor { { 1, 2 }, { 0.5, -1 } }, ms.Tensor { { 1 }, { 0 } }

local function fresh()
  ms.set_seed(11)
  return nn.Dense(2, 1)
end

local function by_hand(net, opt)
  local f = ms.value_and_grad(function() return nn.MSELoss()(net(x), y) end, nil, opt.parameters)
  return function() opt((select(2, f()))) end
end

for name, make in pairs(makers) do
  check.case("the state of " .. name .. " is saved and restored", function()
    local whole = fresh()
    local step = by_hand(whole, make(whole:trainable_params()))
    for _ = 1, 6 do step() end

    local first = fresh()
    local opt = make(first:trainable_params())
    step = by_hand(first, opt)
    for _ = 1, 3 do step() end
    ms.save_checkpoint(first, folder .. name .. ".safetensors")
    ms.save_checkpoint(opt, folder .. name .. "_opt.safetensors")
    local second = fresh()
    ms.load_checkpoint(folder .. name .. ".safetensors", second)
    local other = make(second:trainable_params())
    ms.load_param_into_net(other, ms.load_checkpoint(folder .. name .. "_opt.safetensors"))
    step = by_hand(second, other)
    for _ = 1, 3 do step() end
    check.equal(second.weight.value:totable(), whole.weight.value:totable())
  end)

  check.case("and by a TrainOneStepCell with " .. name, function()
    local function cell()
      local net = fresh()
      return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), make(net:trainable_params())), net
    end
    local whole, net = cell()
    for _ = 1, 6 do whole(x, y) end
    local first = cell()
    for _ = 1, 3 do first(x, y) end
    ms.save_checkpoint(first, folder .. name .. "_cell")
    local second, found = cell()
    ms.load_checkpoint(folder .. name .. "_cell", second)
    for _ = 1, 3 do second(x, y) end
    check.equal(found.weight.value:totable(), net.weight.value:totable())
    ms.load_checkpoint(folder .. name .. "_cell", fresh())  -- weights alone
  end)
end

check.case("a TrainOneStepCell whose optimizer updates some of the parameters", function()
  local function cell()
    local net = fresh()
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), makers.adam { net.weight }), net
  end
  local first, net = cell()
  for _ = 1, 3 do first(x, y) end
  ms.save_checkpoint(first, folder .. "some")
  local second, other = cell()
  ms.load_checkpoint(folder .. "some", second)
  first(x, y)
  second(x, y)
  check.equal(other.weight.value:totable(), net.weight.value:totable())
end)

check.case("what does not fit an optimizer", function()
  local net = fresh()
  local opt = makers.adam(net:trainable_params())
  check.fails_here("the values have no 'optimizer.history'", function()
    ms.load_param_into_net(opt, { weight = net.weight })
  end)
  by_hand(net, opt)()
  ms.save_checkpoint(opt, folder .. "adam_fits.safetensors")
  local values = ms.load_checkpoint(folder .. "adam_fits.safetensors")
  values["moment1.weight"] = nil
  check.fails_here("not in the checkpoint: moment1.weight", function() ms.load_param_into_net(opt, values) end)
  values["moment1.weight"] = ms.ones { 3 }
  check.fails_here("moment1.weight is float32{1, 2} here and float32{3} in the checkpoint",
    function() ms.load_param_into_net(opt, values) end)
  local momentum = nn.Momentum { params = net:trainable_params(), learning_rate = 0.1, momentum = 0.9 }
  by_hand(net, momentum)()
  ms.save_checkpoint(momentum, folder .. "momentum_fits.safetensors")
  local sgd = nn.SGD { params = net:trainable_params(), learning_rate = 0.1 }
  local of_momentum = ms.load_checkpoint(folder .. "momentum_fits.safetensors")
  check.fails_here("SGD has no state moments.bias, moments.weight: was it another optimizer's? (strict_load = false "
    .. "loads what fits)", function() ms.load_param_into_net(sgd, of_momentum) end)
  ms.load_param_into_net(sgd, of_momentum, false)
  check.fails_here("SGD: which parameters", function()
    ms.save_checkpoint(nn.SGD { learning_rate = 1 }, folder .. "none.safetensors")
  end)
end)

----------------------------------------------------------------------------------------------------------- gradients

check.case("an .npz file is read", function()
  local path = folder .. "values.npz"
  local values = { scalar = ms.Tensor(3.25, ms.float16), ["a/b"] = ms.zeros { 2, 0, 3 } }
  for _, dtype in ipairs { "float64", "float32", "int32", "int64", "uint8", "bool" } do
    values[dtype] = ms.Tensor({ { 1, 0 }, { 1, 1 } }, dtype)
  end
  ms.save_checkpoint(values, path)
  local read = ms.load_checkpoint(path)
  for name, value in pairs(values) do
    check.equal({ read[name].dtype, read[name].shape }, { value.dtype, value.shape })
    if name ~= "a/b" then check.equal(read[name]:totable(), value:totable()) end
    read[name] = nil
  end
  check.equal(next(read), nil)
  local from, to = nn.Dense(2, 3), nn.Dense(2, 3)
  ms.save_checkpoint(from, path)
  ms.load_checkpoint(path, to)
  check.equal(to.weight.value:totable(), from.weight.value:totable())
  local file = io.open(path, "rb")
  local bytes = file:read "*a"
  file:close()
  file = io.open(path, "wb")
  file:write(bytes:sub(1, -10))
  file:close()
  check.fails("values.npz is truncated, or no .npz archive", function() ms.load_checkpoint(path) end)
  check.fails("none.npz", function() ms.load_checkpoint(folder .. "none.npz") end)
end)

check.case("functions of one graph share a program, and gradients by other values do not", function()
  local p, q = parameter("shared.p", 2), parameter("shared.q", 3)
  local function f() return (p * p * q):sum() end
  for _ = 1, 3 do
    local cases = { [{ p }] = { 12 }, [{ q }] = { 4 }, [{ q, p }] = { 4, 12 }, [{ p, q }] = { 12, 4 } }
    for weights, wanted in pairs(cases) do
      local _, g = ms.value_and_grad(f, nil, weights)()
      local found = {}
      for i, d in ipairs(g) do found[i] = d:item() end
      check.equal(found, wanted)
    end
  end
  local a, b = ms.Tensor { 2 }, ms.Tensor { 3 }
  local function h(u, v) return (u * u * v):sum() end
  check.equal({ ms.grad(h, 1)(a, b):item(), ms.grad(h, 2)(a, b):item() }, { 12, 4 })
  local program, step = os.clock(), function() return ms.value_and_grad(f, nil, { p, q })() end
  for _ = 1, 200 do step() end
  program = (os.clock() - program) / 200
  assert(program < 0.02, program)
end)

check.case("ms.grad gives further results after the gradients", function()
  local function f(v, w) return (v * w):sum(), v * 2, w + 1 end
  local v, w = ms.Tensor { 1, 2 }, ms.Tensor { 3, 4 }
  local g, further, more = ms.grad(f, { has_aux = true })(v, w)
  check.equal(g:totable(), { 3, 4 })
  check.equal({ #further, further[1]:totable(), further[2]:totable(), more }, { 2, { 2, 4 }, { 4, 5 } })
  g, further = ms.grad(f, { 2 }, nil, true)(v, w)
  check.equal({ g[1]:totable(), #further }, { { 1, 2 }, 2 })
  local net = nn.Dense(2, 1, { has_bias = false })
  local by_weight, by_argument
  by_argument, by_weight, further = ms.grad(function(x) return net(x):sum(), x end, 1, { net.weight }, true)(
    ms.ones { 1, 2 })
  check.equal({ by_argument:totable(), by_weight[1]:totable() }, { net.weight.value:totable(), { { 1, 1 } } })
  check.equal(#further, 1)
  by_weight, further = ms.grad(function(x) return net(x):sum(), x end, nil, { net.weight }, true)(ms.ones { 1, 2 })
  check.equal({ by_weight[1]:totable(), further[1]:totable() }, { { { 1, 1 } }, { { 1, 1 } } })
end)

check.case("results that have no gradient", function()
  check.fails("result 2 of the function is a table: expected a tensor", function()
    ms.value_and_grad(function(v) return v:sum(), { logits = v } end, { has_aux = true })(ms.ones { 2 })
  end)
  check.fails("only floats have gradients: give it x:astype(ms.float32)", function()
    ms.grad(function(v) return (v * v):sum() end)(ms.arange(3))
  end)
  check.fails("value_and_grad: argument 2 should be of floats, got i32[3] (only floats have gradients", function()
    ms.grad(function(w, v) return (w * v:astype(ms.float32)):sum() end, { 1, 2 })(ms.ones { 3 }, ms.arange(3))
  end)
end)

check.case("a function that is made again draws other numbers at each call, and the same after set_seed", function()
  local dropout = nn.Dropout { p = 0.5 }
  dropout:set_train(true)
  local x = ms.ones { 64 }
  local function draw()
    local f = ms.value_and_grad(function(a) return dropout(a):sum() end)
    local _, gradient = f(x)
    return table.concat(gradient:totable(), " ")
  end
  ms.set_seed(3)
  local first, second = draw(), draw()
  if first == second then error "both calls draw the same" end
  ms.set_seed(3)
  check.equal({ draw(), draw() }, { first, second })
end)

check.case("a learning rate that is assigned keeps the shares of groups", function()
  local p, q = parameter("share.p", 1), parameter("share.q", 1)
  local opt = nn.SGD { params = { { params = { p }, lr = 0.5 }, { params = { q } } }, learning_rate = 1 }
  local function step()
    local before_p, before_q = p.value:item(), q.value:item()
    opt { ms.ones { 1 }, ms.ones { 1 } }
    return { before_p - p.value:item(), before_q - q.value:item() }
  end
  check.equal(step(), { 0.5, 1 })
  opt.learning_rate = 0.25
  check.equal(step(), { 0.125, 0.25 })
  opt.learning_rate = 2
  check.equal(step(), { 1, 2 })
end)

-- A network whose output tells who trains.
local Part = nn.Cell:extend "Part"
function Part:init() self.w = ms.Parameter(ms.ones { 1 }) end
function Part:construct(x) return x * self.w * (self.training and 2 or 3) end
local Whole = nn.Cell:extend "Whole"
function Whole:init() self.a, self.b = Part(), Part() end
function Whole:construct(x) return self.b(self.a(x)):sum() end

check.case("parts that were told to evaluate do so in training steps, as in value_and_grad", function()
  local x = ms.ones { 1 }
  local function by_step(net)
    return nn.TrainOneStepCell(net, nn.SGD(net:trainable_params(), 0))(x):item()
  end
  local function by_grad(net) return (ms.value_and_grad(net, nil, net:trainable_params())(x)):item() end
  local net = Whole()
  check.equal(by_step(net), 4)
  net:set_train(true)
  net.b:set_train(false)
  check.equal({ by_step(net), by_grad(net), net(x):item() }, { 6, 6, 6 })
  check.equal({ net.training, net.a.training, net.b.training }, { true, true, false })
  net:set_train(false)  -- all of it, as before an evaluation by hand
  check.equal({ by_step(net), by_grad(net) }, { 4, 9 })

  net = Whole()
  local step = nn.TrainOneStepCell(net, nn.SGD(net:trainable_params(), 0))
  check.equal(step(x):item(), 4)
  net.a:set_train(false)
  check.equal(step(x):item(), 6)
  net.a:set_train(true)
  check.equal(step(x):item(), 4)

  local bn = nn.SequentialCell { nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dense(4, 1) }
  bn[2]:set_train(false)
  local ds = ms.dataset.NumpySlicesDataset({ ms.randn { 8, 4 }, ms.randn { 8, 1 } }, { "x", "y" }):batch(4)
  local model = ms.Model(bn, { loss_fn = nn.MSELoss(), optimizer = nn.SGD(bn:trainable_params(), 0.1) })
  model:train(1, ds)
  check.equal(bn[2].moving_mean.value:totable(), { 0, 0, 0, 0 })
  bn[2]:set_train(true)
  model:train(1, ds)
  assert(bn[2].moving_mean.value:abs():sum():item() > 0)
end)

check.case("a field that is assigned between steps is heeded", function()
  local Scaled = nn.Cell:extend "Scaled"
  function Scaled:init()
    self.w, self.tau, self.mask = ms.Parameter(ms.ones { 2 }), 1, ms.ones { 2 }
    self.on = true
  end
  function Scaled:construct(x)
    self.kept = x * 2
    local y = (self.w * x * self.mask):sum() * self.tau
    return self.on and y or -y
  end
  local net, x = Scaled(), ms.ones { 2 }
  local step = nn.TrainOneStepCell(net, nn.SGD(net:trainable_params(), 0))
  check.equal(step(x):item(), 2)
  net.tau = 5
  check.equal(step(x):item(), 10)
  net.mask = ms.Tensor { 1, 0 }
  check.equal(step(x):item(), 5)
  net.on = false
  check.equal(step(x):item(), -5)
  net.tau = 1
  local _ = net(x)  -- what construct keeps is no change
  check.equal(step(x):item(), -1)
end)

check.case("a field that a callback assigns while a Model trains is said to have no effect", function()
  local net = nn.Dense(1, 1)
  net.scale = 1
  local Changes = ms.Callback:extend "Changes"
  function Changes:on_train_step_end() net.scale = net.scale + 1 end
  local said, stderr = {}, io.stderr
  io.stderr = { write = function(_, text) said[#said + 1] = text end }
  local ok, problem = pcall(function()
    local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 1 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(1)
    ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD(net:trainable_params(), 0.1) })
      :train(1, ds, { callbacks = { Changes() } })
  end)
  io.stderr = stderr
  assert(ok, problem)
  check.equal(#said, 1)
  assert(said[1]:find("Dense.scale has changed while ms.Model trains", 1, true), said[1])
end)

check.case("states count in steps, and are assigned between them", function()
  local Counted = nn.Cell:extend "Counted"
  function Counted:init()
    self.w = ms.Parameter(ms.ones { 1 })
    self.tau, self.count, self.seen = self:state("tau", {}, 1), self:state("count", {}, 0), self:state("seen", {}, 0)
  end
  function Counted:construct(x)
    ops.assign(self.count, self.count + 1)
    self.seen.value = self.seen.value + self.count  -- of this step
    return (self.w.value * self.w * x * self.tau):sum()
  end
  local net, x = Counted(), ms.ones { 1 }
  local step = nn.TrainOneStepCell(net, nn.SGD(net:trainable_params(), 0.5))
  check.equal(step(x):item(), 1)  -- the gradient by w is w.value, 1
  check.equal(net.w.value:item(), 0.5)
  net.tau.value = ms.Tensor(2)
  check.equal(step(x):item(), 0.5)
  check.equal({ net.count.value:item(), net.seen.value:item(), net.w.value:item() }, { 2, 3, 0 })
  check.equal(ops.assign(net.count, ms.Tensor(7)), net.count)
  check.equal(net.count.value:item(), 7)
  ms.value_and_grad(net, nil, net:trainable_params())(x)
  check.equal(net.count.value:item(), 8)
end)

check.case("what is no tensor is named", function()
  local net = Whole()
  local step = nn.TrainOneStepCell(net, nn.SGD(net:trainable_params(), 0))
  check.fails_here("TrainOneStepCell: argument 1: expected a tensor, got 2: each column of a batch is an argument",
    function() step(2) end)
  check.fails_here("Whole.training cannot be assigned: cell:set_train(false)",
    function() net.training = false end)
  local f = ms.value_and_grad(function(b) return b.x:sum() end)
  check.fails_here("value_and_grad: expected a tensor as argument 1, got", function() f { x = ms.ones { 1 } } end)
  check.fails_here("value_and_grad: expected a tensor as argument 1, got 0 arguments", function()
    ms.value_and_grad(function() return ms.ones({ 1 }):sum() end)()
  end)
  local p = ms.Parameter(ms.ones { 2 })
  check.fails_here("p.value = x", function() p:set_data(ms.zeros { 2 }) end)
  check.fails_here("NumpySlicesDataset: a dataset is no iterator: for x, y in dataset:create_tuple_iterator() do",
    function() for _ in ms.dataset.NumpySlicesDataset({ ms.ones { 4 } }, { "x" }) do break end end)
  check.fails_here("ms.ops.floor_mod(a, b)", function() local _ = p.value % 2 end)
  check.fails_here("'cumsum': ms.ops.cumsum(x, ...)", function() local _ = ms.ones({ 2 }):cumsum(1) end)
  check.fails_here("ms.ops.expand_dims(x, axis)", function() local _ = ms.ones({ 2 }):unsqueeze(1) end)
  check.fails_here("classes are the last dimension of logits: ops.transpose(x, {1, 3, 4, 2})", function()
    nn.CrossEntropyLoss()(ms.randn { 2, 5, 8, 8 }, ms.zeros({ 2, 8, 8 }, ms.int32))
  end)
  check.fails_here("logits come first", function()
    nn.CrossEntropyLoss()(ms.zeros({ 4 }, ms.int32), ms.randn { 4, 3 })
  end)
end)

check.case("an error names the line of its own function, not of an equal one", function()
  local x, right, wrong = ms.Tensor { 1, 2, 3 }, ms.Tensor({ 1 }, ms.int32), ms.Tensor({ 9 }, ms.int32)
  ms.value_and_grad(function(v) return ops.reduce_sum(ops.gather(v, right)) end)(x)
  local line = debug.getinfo(1, "l").currentline + 1
  local of_wrong = ms.value_and_grad(function(v) return ops.reduce_sum(ops.gather(v, wrong)) end)
  check.fails(":" .. line .. ": gather", function() of_wrong(x) end)
end)

check.done()
