--- `mslua lr-find R`: trains a few steps with a growing learning rate and says where the loss falls fastest (Smith,
--- "Cyclical Learning Rates for Training Neural Networks", 2017).
local core = require "mslua.core"
local literal = require "mslua.literal"

local M = {}

local FROM, TO = 1e-6, 10
local SMOOTHING = 0.9  -- of the exponential mean of the losses
local DIVERGED = 4     -- times the least smoothed loss
local LEAST = 10       -- points that a suggestion needs

--- The learning rate of a step, from 0: a geometric series from FROM to TO.
---@param step integer
---@param steps integer
---@return number
function M.rate(step, steps) return FROM * (TO / FROM) ^ (step / math.max(1, steps - 1)) end

--- The point of the curve where the smoothed loss falls fastest by the logarithm of the rate, over five points.
---@param points {lr: number, smoothed: number}[]
---@return number? lr nil: it falls nowhere
function M.steepest(points)
  local best, found = 0, nil
  for i = 3, #points - 2 do
    local a, b = points[i - 2], points[i + 2]
    local slope = (b.smoothed - a.smoothed) / math.log(b.lr / a.lr)
    if slope < best then best, found = slope, points[i].lr end
  end
  return found
end

local function print_points(points)
  for _, p in ipairs(points) do
    if core.options.json then
      print(('{"lr": %s, "loss": %s, "smoothed": %s}'):format(literal.json_number(p.lr), literal.json_number(p.loss),
        literal.json_number(p.smoothed)))
    end
  end
  if core.options.json then return end
  local rows = math.min(20, #points)
  for row = 1, rows do
    local p = points[math.floor((row - 1) * (#points - 1) / math.max(1, rows - 1) + 1.5)] or points[#points]
    print(("lr %-10.3g loss %.6g"):format(p.lr, p.smoothed))
  end
end

--- Runs the steps of a training's description and prints the curve; gives the exit code.
---@param spec table core.trainer's
---@param steps integer
---@return integer
function M.run(spec, steps)
  local points, mean, least = {}, 0, math.huge
  spec.schedule, spec.max_steps = nil, steps
  spec.lr_function = function(step) return M.rate(step - 1, steps) end
  spec.hooks.step_end = function(context)
    local loss = context.loss
    if loss ~= loss or loss == math.huge then return context.stop() end
    mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
    local smoothed = mean / (1 - SMOOTHING ^ (#points + 1))
    least = math.min(least, smoothed)
    points[#points + 1] = { lr = M.rate(context.global_step - 1, steps), loss = loss, smoothed = smoothed }
    if #points > LEAST and smoothed > DIVERGED * math.abs(least) then context.stop() end
  end
  core.trainer(spec):run()
  print_points(points)
  local lr = #points >= LEAST and M.steepest(points) or nil
  if core.options.json then
    print(('{"suggested": %s}'):format(lr and literal.json_number(lr) or "null"))
  elseif lr then
    print(("suggested learning rate: %.2g (where the loss falls fastest)"):format(lr))
  else
    print "no suggestion: the loss falls nowhere; give more steps (--steps)"
  end
  return 0
end

return M
