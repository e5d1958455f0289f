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
  local model = ms.Model(Falling(), {
    loss_fn = loss, optimizer = nn.SGD { learning_rate = rates }, metrics = { m = function(o) return o:sum(2) end },
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
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "min", patience = 2 }), "8.1")
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "min", patience = 2, min_delta = 0.01 }), "5.1")
  check.equal(train(rates, 1, { monitor = "eval_m", mode = "max", patience = 1 }), "3.1")
  check.equal(train(rates, 1, { monitor = "eval_loss", patience = 9 }), "10.1")
end)

check.case("EarlyStopping judges where there was an evaluation", function()
  local rates = { 1, 1, 0, 0, 0, 0, 1, 1, 0, 0 }
  check.equal(train(rates, 2, { monitor = "eval_loss", patience = 0 }), "4.1")
  check.equal(train(rates, 2, { monitor = "eval_loss", patience = 3 }), "6.1")
  check.equal(train(rates, 2, { monitor = "eval_loss", patience = 4 }), "10.1")
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

check.done()
