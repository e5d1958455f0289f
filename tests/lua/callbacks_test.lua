-- Callbacks in a training: when they stop it, and what they see.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local Falling = nn.Cell:extend "Falling"
function Falling:init() self.w = self:parameter("w", { 1 }, "zeros") end
function Falling:construct(x) return self.w + x * 0 end

local data = ms.dataset.NumpySlicesDataset({ ms.zeros { 4, 1 }, ms.zeros { 4, 1 } }):batch(4)

local Seen = ms.Callback:extend "Seen"
function Seen:on_train_end(context) self.last = context.epoch .. "." .. context.step end

-- Trains for ten epochs of one step; w, which is loss and metric, falls by `rates`. Gives the last step.
local function train(rates, every_epochs, stopping)
  local loss = function(output) return ops.reduce_mean(output) end
  local function sum(output) return output:sum(2) end
  local model = ms.Model(Falling(), {
    loss_fn = loss, optimizer = nn.SGD { learning_rate = rates }, metrics = { m = sum, own_mae = sum },
  })
  local seen = Seen()
  model:train(10, data, {
    callbacks = { seen, ms.EvalCallback { data, every_epochs = every_epochs }, ms.EarlyStopping(stopping) },
  })
  return seen.last
end

check.case("EarlyStopping counts epochs without an improvement", function()
  local rates = { 1, 1, 0, 0, 5e-4, 0, 0, 0, 0, 0 }
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "min", patience = 0 }), "3.1")
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "min", patience = 3 }), "8.1")
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "min", patience = 3, min_delta = 0.01 }), "5.1")
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "max", patience = 2 }), "3.1")
  check.equal(train(rates, 1, { monitor = "eval_loss", patience = 10 }), "10.1")
  check.equal(train({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 1, { monitor = "eval_own_mae", patience = 2 }), "10.1")
end)

check.case("EarlyStopping judges where there was an evaluation", function()
  local rates = { 1, 1, 0, 0, 0, 0, 1, 1, 0, 0 }
  check.equal(train(rates, 2, { monitor = "eval_loss", patience = 0 }), "4.1")
  check.equal(train(rates, 2, { monitor = "eval_loss", patience = 4 }), "6.1")
  check.equal(train(rates, 2, { monitor = "eval_loss", patience = 5 }), "10.1")
end)

-- The learning rates of ten epochs of one step; the loss falls by `slope` times the rate in each.
local function rates_with(slope, rate, plateau)
  local Rates, rates = ms.Callback:extend "Rates", {}
  function Rates:on_train_step_end(context) rates[#rates + 1] = tonumber(("%.6g"):format(context.lr)) end
  local model = ms.Model(Falling(), {
    loss_fn = function(output) return ops.reduce_mean(output) * slope end, optimizer = nn.SGD { learning_rate = rate },
  })
  plateau.monitor = "loss"
  model:train(10, data, { callbacks = { Rates(), ms.ReduceLROnPlateau(plateau) } })
  return rates
end

check.case("ReduceLROnPlateau multiplies the rate where nothing improves", function()
  check.equal(rates_with(0, 0.1, { factor = 0.5, patience = 2 }),
    { 0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125, 0.00625 })
  check.equal(rates_with(0, 0.1, { factor = 0.5, patience = 2, cooldown = 1 }),
    { 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.0125 })
  check.equal(rates_with(0, 0.1, { factor = 0.5, patience = 3, min_lr = 0.04 }),
    { 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.04, 0.04, 0.04 })
  check.equal(rates_with(0, { 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 }, { patience = 4 }),
    { 10, 9, 8, 7, 6, 0.5, 0.4, 0.3, 0.2, 0.01 })
end)

check.case("ReduceLROnPlateau reduces no rate below min_lr, and leaves one that is below it", function()
  check.equal(rates_with(0, { 1, 1, 1, 1, 0.3, 0.3, 0.3, 0.1, 0.1, 0.1 }, { factor = 0.5, patience = 2, min_lr = 0.2 }),
    { 1, 1, 1, 0.5, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1 })
end)

check.case("what ReduceLROnPlateau has reduced stays so for the optimizer's later steps", function()
  local rates, Rates = {}, ms.Callback:extend "Rates"
  function Rates:on_train_step_end(context) rates[#rates + 1] = tonumber(("%.6g"):format(context.lr)) end
  local net, optimizer = Falling(), nn.SGD { learning_rate = 1 }
  local model = ms.Model(net, { loss_fn = function(output) return output:mean() * 0 end, optimizer = optimizer })
  local plateau = ms.ReduceLROnPlateau { monitor = "loss", factor = 0.5, patience = 2, min_lr = 0.3 }
  model:train(4, data, { callbacks = { Rates(), plateau } })
  model:train(3, data, { callbacks = { Rates(), plateau } })
  model:train(1, data, { callbacks = { Rates() } })
  check.equal(rates, { 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.3 })
  local before = net.w.value:totable()[1]
  nn.TrainOneStepCell(nn.WithLossCell(net, function(output) return output:sum() end), optimizer)(
    ms.zeros { 1, 1 }, ms.zeros { 1 })
  check.near(net.w.value:totable()[1], before - 0.3, 1e-6)
end)

check.case("ReduceLROnPlateau leaves a rate that improves the loss", function()
  local constant = {}
  for i = 1, 10 do constant[i] = 0.1 end
  check.equal(rates_with(1, 0.1, { patience = 1 }), constant)
  check.equal(rates_with(1, function() return 0.1 end, { patience = 1 }), constant)
  -- Three steps together are an improvement by more than 0.25.
  check.equal(rates_with(1, 0.1, { patience = 3, min_delta = 0.25 }), constant)
  check.equal(rates_with(1, 0.1, { patience = 2, min_delta = 0.25 })[4], 0.01)
end)

check.case("what EarlyStopping watches is looked for before training", function()
  local Steps, steps = ms.Callback:extend "Steps", 0
  function Steps:on_train_step_end() steps = steps + 1 end
  local model = ms.Model(Falling(), {
    loss_fn = function(output) return ops.reduce_mean(output) end, optimizer = nn.SGD { learning_rate = 0.1 },
    metrics = { m = function(o) return o:sum(2) end },
  })
  local function watch(monitor, ...)
    model:train(1, data, { callbacks = { Steps(), ms.EarlyStopping { monitor = monitor }, ... } })
  end
  check.fails_here("EarlyStopping: monitor: nothing called 'eval_lss' is measured (did you mean 'eval_loss'?); "
    .. "there are loss, eval_loss, eval_m", watch, "eval_lss", ms.EvalCallback(data))
  check.fails_here("nothing called 'eval_loss' is measured; there are loss, and metrics of an evaluation", watch,
    "eval_loss")
  check.equal(steps, 0)
  watch "loss"
  check.equal(steps, 1)
end)

check.case("two callbacks of a kind that a training has once", function()
  local model = ms.Model(Falling(), {
    loss_fn = function(output) return ops.reduce_mean(output) end, optimizer = nn.SGD { learning_rate = 0.1 },
  })
  local function train_with(...) model:train(1, data, { callbacks = { ... } }) end
  check.fails_here("EvalCallback: there are two", train_with, ms.EvalCallback(data), ms.EvalCallback(data))
  check.fails_here("LossMonitor: there are two", train_with, ms.LossMonitor(0), ms.LossMonitor(2))
end)

check.case("a callback that would not be called, or asks for what there is not", function()
  local model = ms.Model(Falling(), {
    loss_fn = function(output) return ops.reduce_mean(output) end, optimizer = nn.SGD { learning_rate = 0.1 },
  })
  local function train_with(callback) model:train(1, data, { callbacks = { callback } }) end
  local Dotted = ms.Callback:extend "Dotted"
  function Dotted.on_train_end(context) return context end
  check.fails_here("Dotted.on_train_end is defined with a dot: write function Dotted:on_train_end(context)", train_with,
    Dotted())
  local Misspelled = ms.Callback:extend "Misspelled"
  function Misspelled:on_train_step_end(context) return context.globalstep end
  check.fails_here("Misspelled: the context has no 'globalstep' (did you mean 'global_step'?); it has epoch, epochs, ",
    train_with, Misspelled())
  local Early, early = ms.Callback:extend "Early", {}
  function Early:on_train_begin(context) early = { loss = context.loss, step = context.step } end
  train_with(Early())
  check.equal(early, { step = 0 })
end)

check.case("requires_grad of a parameter that is being trained cannot be set", function()
  local net, other = nn.Dense(2, 1), nn.Dense(2, 1)
  local problem
  local Freeze = ms.Callback:extend "Freeze"
  function Freeze:on_train_epoch_begin()
    other.weight.requires_grad = false
    net.weight.requires_grad = true
    problem = check.fails("requires_grad: ms.Model trains the network", function() net.weight.requires_grad = false end)
  end
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
  ms.Model(net, nn.MSELoss(), nn.SGD { params = net:trainable_params(), learning_rate = 0.1 }):train(1, ds, Freeze())
  check.equal(problem ~= nil, true)
  net.weight.requires_grad = false
end)

check.case("the state of an optimizer cannot be loaded while a Model trains with it", function()
  local net = nn.Dense(2, 1)
  local opt = nn.Momentum { params = net:trainable_params(), learning_rate = 0.1, momentum = 0.9 }
  local path = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/loaded_optimizer"
  ms.save_checkpoint(opt, path)
  local Loads, problem = ms.Callback:extend "Loads", nil
  function Loads:on_train_epoch_end()
    problem = check.fails("its state cannot be loaded while ms.Model trains", ms.load_checkpoint, path, opt)
  end
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
  ms.Model(net, nn.MSELoss(), opt):train(1, ds, Loads())
  check.equal(problem ~= nil, true)
end)

check.case("an optimizer that a Model trains with is of no use to other trainings until the end", function()
  local net = nn.Dense(2, 1)
  local opt = nn.Momentum { params = net:trainable_params(), learning_rate = 0.1, momentum = 0.9 }
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
  local model, other = ms.Model(net, nn.MSELoss(), opt), ms.Model(net, nn.MSELoss(), opt)
  local head = nn.Dense(2, 1)
  local own = nn.Momentum { params = head:trainable_params(), learning_rate = 0.1, momentum = 0.9 }
  local Trains, ends = ms.Callback:extend "Trains", 0
  function Trains.on_train_epoch_end()
    for _, m in ipairs { model, other } do
      check.fails("train: a model:train that has not ended trains with this Momentum", m.train, m, 1, ds)
    end
    check.fails("step: a model:train that has not ended trains with this", opt, { ms.ones { 1, 2 }, ms.ones { 1 } })
    ms.Model(head, nn.MSELoss(), own):train(1, ds)
    ends = ends + 1
  end
  model:train(2, ds, Trains())
  check.equal(ends, 2)
  other:train(1, ds)
end)

check.done()
