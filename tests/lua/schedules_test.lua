-- Schedules: their rates at each step, what they are made of, and what is refused.
local check = require "check"
local core = require "mslua.core"
local ms = require "mslua"
local nn = ms.nn

local function rates(schedule, steps)
  local list = {}
  for step = 1, steps do list[step] = schedule:at(step) end
  return list
end

local function data(object)
  local copy = {}
  for key, v in pairs(object) do copy[key] = v end
  return copy
end

check.case("schedules are data", function()
  check.fails_here("min_lr, the last rate, is 0.2, more than max_lr, the first, 0.1", function()
    nn.SGD { learning_rate = nn.cosine_decay_lr(0.2, 0.1, 100) }
  end)
  check.equal(data(nn.cosine_decay_lr(0.01, 0.1, 100)),
    { kind = "cosine_decay_lr", value = 0.1, min_lr = 0.01, max_lr = 0.1, total_step = 100, step_per_epoch = 1 })
  check.equal(data(nn.piecewise_constant_lr({ 2, 5 }, { 0.1, 0.05 })),
    { kind = "piecewise_constant_lr", value = 0.1, milestone = { 2, 5 }, learning_rates = { 0.1, 0.05 } })
  check.equal({ nn.one_cycle_lr(0.1, 780).value, nn.warmup_lr(0.1, 6, 2, 2).value }, { 0.1, 0.1 })
  check.equal(nn.warmup_lr { learning_rate = nn.cosine_decay_lr(0, 1, 9), warmup_epoch = 3 }.value, 1)
end)

check.case("rates of each step", function()
  local function cosine(step, total) return 0.01 + 0.09 * (1 + math.cos(math.pi * math.min(step / total, 1))) / 2 end
  local wanted = {}
  for i = 1, 8 do wanted[i] = cosine(i - 1, 6) end
  check.near(rates(nn.cosine_decay_lr(0.01, 0.1, 6), 8), wanted, 1e-15)
  local warm = nn.warmup_lr { learning_rate = nn.cosine_decay_lr(0.01, 0.1, 6), warmup_epoch = 2, warmup_from = 0.02 }
  check.near(rates(warm, 5), { 0.06, 0.1, cosine(0, 6), cosine(1, 6), cosine(2, 6) }, 1e-15)
  check.near(rates(nn.warmup_lr(0.1, 6, 2, 2), 6), { 0.025, 0.05, 0.075, 0.1, 0.1, 0.1 }, 1e-15)
  for i = 1, 8 do wanted[i] = 0.09 * (1 - math.min((i - 1) / 6, 1)) ^ 2 + 0.01 end
  check.near(rates(nn.polynomial_decay_lr(0.1, 0.01, 6, { power = 2 }), 8), wanted, 1e-15)
  check.near(rates(nn.step_decay_lr(1, 0.1, 2), 5), { 1, 1, 0.1, 0.1, 0.01 }, 1e-15)
  check.equal(rates(nn.piecewise_constant_lr({ 2, 3 }, { 0.1, 0.05 }), 4), { 0.1, 0.1, 0.05, 0.05 })
end)

check.case("MindSpore's values of each epoch", function()
  -- mindspore.nn.cosine_decay_lr(0.01, 0.1, 6, 2, 2)
  check.near(rates(nn.cosine_decay_lr(0.01, 0.1, 6, 2, 2), 7), { 0.1, 0.1, 0.055, 0.055, 0.01, 0.01, 0.01 }, 1e-12)
  -- mindspore.nn.polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5)
  check.near(rates(nn.polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5), 6),
    { 0.1, 0.1, 0.07363961030678928, 0.07363961030678928, 0.01, 0.01 }, 1e-12)
end)

check.case("decays by an exponent or a quotient", function()
  check.near(rates(nn.exponential_decay_lr(0.1, 0.9, 6, 2, 1), 7), { 0.1, 0.1, 0.09, 0.09, 0.081, 0.081, 0.081 }, 1e-12)
  check.near(rates(nn.exponential_decay_lr { learning_rate = 1, decay_rate = 0.5, total_step = 5, decay_epoch = 2,
    is_stair = true }, 6), { 1, 1, 0.5, 0.5, 0.25, 0.25 }, 1e-12)
  check.near(rates(nn.natural_exp_decay_lr(1, 0.5, 2), 3), { 1, math.exp(-0.5), math.exp(-0.5) }, 1e-12)
  -- mindspore.nn.natural_exp_decay_lr(0.1, 0.9, 6, 2, 2, True), and the same without stairs
  check.near(rates(nn.natural_exp_decay_lr(0.1, 0.9, 6, 2, 2, true), 6),
    { 0.1, 0.1, 0.1, 0.1, 0.016529888822158657, 0.016529888822158657 }, 1e-12)
  check.near(rates(nn.natural_exp_decay_lr(0.1, 0.9, 6, 2, 2), 6)[3], 0.1 * math.exp(-0.9), 1e-12)
  check.near(rates(nn.inverse_decay_lr(1, 0.5, 3), 3), { 1, 1 / 1.5, 0.5 }, 1e-12)
end)

check.case("the highest rate of schedules that rise", function()
  check.equal(nn.polynomial_decay_lr(0.1, 0.4, 6).value, 0.4)
  check.near(nn.exponential_decay_lr(0.1, 2, 4).value, 0.8, 1e-12)
  check.equal(nn.exponential_decay_lr(0.1, 0.5, 4).value, 0.1)
end)

check.case("schedules that make no sense", function()
  check.fails_here("ascending", function() nn.piecewise_constant_lr({ 2, 2 }, { 1, 1 }) end)
  check.fails_here("2 milestones and 1 learning_rates", function() nn.piecewise_constant_lr({ 2, 3 }, { 1 }) end)
  check.fails_here("above 0, got -1", function() nn.cosine_decay_lr(0, -1, 3) end)
  check.fails_here("at least 2, got 1", function() nn.one_cycle_lr(0.1, 1) end)
  check.fails_here("has a warm-up already", function()
    nn.warmup_lr { learning_rate = nn.warmup_lr { learning_rate = 1, warmup_epoch = 1 }, warmup_epoch = 1 }
  end)
  check.fails_here("warmup_epoch * step_per_epoch: expected at most 2^53 steps", function()
    nn.warmup_lr { learning_rate = 1, warmup_epoch = 4e9, step_per_epoch = 4e9 }
  end)
  check.fails_here("steps count from 1, got 0", function() nn.step_decay_lr(1, 0.1, 2):at(0) end)
  check.fails_here("unknown schedule 'cosine_decay'", function() core.schedule_value { kind = "cosine_decay" } end)
end)

check.case("every schedule has help", function()
  local help = require "mslua.help"
  for _, info in ipairs(core.schedules()) do
    local text = help.describe(info.name, 100)
    for _, field in ipairs(info.fields) do
      if not text:find(field.name, 1, true) then error(info.name .. ": no help of " .. field.name) end
    end
  end
end)

check.done()
