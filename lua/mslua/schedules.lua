--- Learning rates that change: objects that hold numbers only and are evaluated in C++ (core/train/schedule.h has the
--- formulas). MindSpore's functions of one value an epoch give one a step when step_per_epoch is left out.
local args = require "mslua.args"
local class = require "mslua.class"
local errors = require "mslua.errors"

local M = {}

---@class mslua.Schedule
---@field kind "constant"|"step"|"piecewise"|"cosine"|"polynomial"|"one_cycle"|"table"
---@field value number the highest rate
local Schedule = class.Object:extend "Schedule"
Schedule.__index = Schedule
M.Schedule = Schedule

function Schedule:init(fields)
  for key, v in pairs(fields) do self[key] = v end
end

function Schedule:__tostring()
  local copy = {}
  for key, v in pairs(self) do copy[key] = v end
  return "schedule" .. errors.show(copy)
end

args.kind("schedule", function(v) return class.is(v, Schedule) end, "a schedule such as nn.cosine_decay_lr {...}")

local function largest(list)
  local most = -math.huge
  for _, v in ipairs(list) do most = math.max(most, v) end
  return most
end

--- A number, a list of one number a step, or a schedule, as a schedule.
---@return mslua.Schedule
function M.of(rate)
  if type(rate) == "number" then return Schedule { kind = "constant", value = rate } end
  if args.is_list(rate) then return Schedule { kind = "table", rates = rate, value = largest(rate) } end
  return rate
end

local rate = { above = 0 }
local function field(name, kinds, default, limits)
  local f = { name, kinds, default, required = default == nil }
  for key, v in pairs(limits or {}) do f[key] = v end
  return f
end

-- The schedule itself, or MindSpore's steps: the value at epoch e for each of its steps.
local function by_epoch(a, schedule, value_at)
  if a.step_per_epoch == 1 then return Schedule(schedule) end
  local rates = {}
  for step = 0, a.total_step - 1 do rates[step + 1] = value_at(math.floor(step / a.step_per_epoch)) end
  return Schedule { kind = "table", rates = rates, value = schedule.value }
end

local bind_cosine = args.signature("cosine_decay_lr", {
  field("min_lr", "number", nil, { min = 0 }), field("max_lr", "number", nil, rate),
  field("total_step", "integer", nil, { min = 1 }), field("step_per_epoch", "integer", 1, { min = 1 }),
  { "decay_epoch", "integer", min = 1 },
})

--- min_lr + (max_lr - min_lr) (1 + cos(pi e / decay_epoch)) / 2 at epoch e, which is the step when step_per_epoch is 1.
---@param ... any min_lr, max_lr, total_step, step_per_epoch = 1, decay_epoch = all
---@return mslua.Schedule
function M.cosine_decay_lr(...)
  local a = bind_cosine(...)
  local decay = a.decay_epoch or math.ceil(a.total_step / a.step_per_epoch)
  return by_epoch(a, { kind = "cosine", value = a.max_lr, low = a.min_lr, total = decay }, function(e)
    return a.min_lr + (a.max_lr - a.min_lr) * (1 + math.cos(math.pi * math.min(e, decay) / decay)) / 2
  end)
end

local bind_polynomial = args.signature("polynomial_decay_lr", {
  field("learning_rate", "number", nil, rate), field("end_learning_rate", "number", nil, { min = 0 }),
  field("total_step", "integer", nil, { min = 1 }), field("step_per_epoch", "integer", 1, { min = 1 }),
  { "decay_epoch", "integer", min = 1 }, field("power", "number", 1, { above = 0 }),
})

--- (learning_rate - end_learning_rate) (1 - e / decay_epoch)^power + end_learning_rate.
---@param ... any learning_rate, end_learning_rate, total_step, step_per_epoch = 1, decay_epoch = all, power = 1
---@return mslua.Schedule
function M.polynomial_decay_lr(...)
  local a = bind_polynomial(...)
  local decay, low = a.decay_epoch or math.ceil(a.total_step / a.step_per_epoch), a.end_learning_rate
  local data = { kind = "polynomial", value = a.learning_rate, low = low, total = decay, power = a.power }
  return by_epoch(a, data, function(e)
    return (a.learning_rate - low) * (1 - math.min(e, decay) / decay) ^ a.power + low
  end)
end

-- MindSpore's three decays by an exponent or a quotient: `value_at(a, e)` of e = epoch / decay_epoch, rounded down with
-- is_stair.
local function decay(name, value_at)
  local bind = args.signature(name, {
    field("learning_rate", "number", nil, rate), field("decay_rate", "number", nil, rate),
    field("total_step", "integer", nil, { min = 1 }), field("step_per_epoch", "integer", 1, { min = 1 }),
    field("decay_epoch", "integer", 1, { min = 1 }), { "is_stair", "boolean", false },
  })
  return function(...)
    local a = bind(...)
    local rates = {}
    for step = 0, a.total_step - 1 do
      local e = math.floor(step / a.step_per_epoch) / a.decay_epoch
      rates[step + 1] = a.learning_rate * value_at(a.decay_rate, a.is_stair and math.floor(e) or e)
    end
    return M.of(rates)
  end
end

--- learning_rate * decay_rate^(e / decay_epoch) at epoch e, which is the step when step_per_epoch is 1; after
--- total_step steps the last one stays. (learning_rate, decay_rate, total_step, step_per_epoch = 1, decay_epoch = 1,
--- is_stair = false)
M.exponential_decay_lr = decay("exponential_decay_lr", function(r, e) return r ^ e end)
--- exponential_decay_lr with exp(-decay_rate * e / decay_epoch).
M.natural_exp_decay_lr = decay("natural_exp_decay_lr", function(r, e) return math.exp(-r * e) end)
--- exponential_decay_lr with 1 / (1 + decay_rate * e / decay_epoch).
M.inverse_decay_lr = decay("inverse_decay_lr", function(r, e) return 1 / (1 + r * e) end)

local bind_step = args.signature("step_decay_lr", {
  field("learning_rate", "number", nil, rate), field("decay_rate", "number", nil, rate),
  field("period", "integer", nil, { min = 1, unit = "steps" }),
})

--- learning_rate * decay_rate^floor(step / period).
---@return mslua.Schedule
function M.step_decay_lr(...)
  local a = bind_step(...)
  return Schedule { kind = "step", value = a.learning_rate, rate = a.decay_rate, period = a.period }
end

local bind_piecewise = args.signature("piecewise_constant_lr", {
  { "milestone", "integers", required = true, min = 1 }, { "learning_rates", "numbers", required = true, above = 0 },
})

--- learning_rates[i] up to step milestone[i]; the last one stays.
---@return mslua.Schedule
function M.piecewise_constant_lr(...)
  local a = bind_piecewise(...)
  if #a.milestone ~= #a.learning_rates or #a.milestone == 0 then
    errors.fail("piecewise_constant_lr: %d milestones and %d learning_rates: one each", #a.milestone, #a.learning_rates)
  end
  for i = 2, #a.milestone do
    if a.milestone[i] <= a.milestone[i - 1] then
      errors.fail("piecewise_constant_lr: milestone: expected ascending steps, got %s", errors.show(a.milestone))
    end
  end
  return Schedule {
    kind = "piecewise", milestones = a.milestone, rates = a.learning_rates, value = largest(a.learning_rates),
  }
end

local bind_one_cycle = args.signature("one_cycle_lr", {
  field("max_lr", "number", nil, rate), field("total_step", "integer", nil, { min = 2 }),
  field("pct_start", "number", 0.3, { above = 0, below = 1 }), field("div_factor", "number", 25, { above = 0 }),
  field("final_div_factor", "number", 1e4, { above = 0 }),
})

--- PyTorch's OneCycleLR with cosine annealing: max_lr / div_factor up to max_lr in pct_start of the steps, then down to
--- max_lr / (div_factor * final_div_factor).
---@return mslua.Schedule
function M.one_cycle_lr(...)
  local a = bind_one_cycle(...)
  return Schedule {
    kind = "one_cycle", value = a.max_lr, total = a.total_step, pct = a.pct_start, div = a.div_factor,
    final_div = a.final_div_factor,
  }
end

local bind_warmup = args.signature("warmup_lr", {
  { "learning_rate", "number|schedule", required = true, above = 0 },
  { "total_step", "integer", min = 1 }, field("step_per_epoch", "integer", 1, { min = 1 }),
  field("warmup_epoch", "integer", nil, { min = 1 }), field("warmup_from", "number", 0, { min = 0 }),
})

--- Rises linearly from warmup_from over warmup_epoch epochs (steps, when step_per_epoch is 1), then continues with
--- learning_rate, a number or another schedule, whose own steps begin there. Of n steps, step i (from 0) has the rate
--- warmup_from + (learning_rate - warmup_from) (i + 1) / n: the first is above warmup_from, the last is learning_rate.
---@param ... any learning_rate, total_step, step_per_epoch = 1, warmup_epoch, warmup_from = 0
---@return mslua.Schedule
function M.warmup_lr(...)
  local a = bind_warmup(...)
  local after = M.of(a.learning_rate)
  if after.warmup_steps then errors.fail "warmup_lr: learning_rate has a warm-up already" end
  local fields = {}
  for key, v in pairs(after) do fields[key] = v end
  fields.warmup_steps, fields.warmup_from = a.warmup_epoch * a.step_per_epoch, a.warmup_from
  return Schedule(fields)
end

return M
