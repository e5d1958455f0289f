--- `mslua lr-find R`: trains a few steps with a growing learning rate and says where the loss falls (Smith, "Cyclical
--- Learning Rates for Training Neural Networks", 2017).
local core = require "mslua.core"
local literal = require "mslua.literal"

local M = {}

local FROM, TO = 1e-6, 10
local SMOOTHING = 0.9  -- of the exponential mean of the losses
local DIVERGED = 4     -- times the least smoothed loss
local LEAST = 10       -- points before the least smoothed loss that a suggestion needs
local SIDE = 5         -- points that a level and a fall need
local CERTAIN = 4.5    -- a fall, in its standard errors; of 300 curves of noise none had such a one

--- The learning rate of a step, from 0: a geometric series from FROM to TO.
---@param step integer
---@param steps integer
---@return number
function M.rate(step, steps) return FROM * (TO / FROM) ^ (step / math.max(1, steps - 1)) end

-- Fits the losses up to point `last`: a level, and from the point `knee` on a straight line. Gives the sum of squares
-- that is left, and the line's slope in its standard errors.
local function fit(points, last, knee)
  local n, x_sum, y_sum, xx, xy, yy = last, 0, 0, 0, 0, 0
  for i = 1, n do
    local x, y = math.max(0, i - knee), points[i].loss
    x_sum, y_sum, xx, xy, yy = x_sum + x, y_sum + y, xx + x * x, xy + x * y, yy + y * y
  end
  xx, xy, yy = xx - x_sum * x_sum / n, xy - x_sum * y_sum / n, yy - y_sum * y_sum / n
  local slope = xy / xx
  local left = math.max(0, yy - slope * xy)
  return left, slope / math.sqrt(left / (n - 3) / xx)
end

--- The middle of the losses' fall, by the logarithm of the rate. The fall ends at the least smoothed loss, and begins
--- where a level with a straight line behind it fits the losses best.
---@param points {lr: number, loss: number, smoothed: number}[]
---@return number? lr nil: the losses do not fall by more than their noise
function M.middle(points)
  local last = LEAST
  if #points < LEAST then return nil end
  for i = LEAST, #points do
    if points[i].smoothed < points[last].smoothed then last = i end
  end
  local least, knee, certain = math.huge, nil, 0
  for i = SIDE, last - SIDE do
    local left, errors = fit(points, last, i)
    if left < least and errors < 0 then least, knee, certain = left, i, -errors end
  end
  return certain > CERTAIN and math.sqrt(points[knee].lr * points[last].lr) or nil
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
  spec.check_loss = false  -- rates end where the loss does
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
  local lr = M.middle(points)
  if core.options.json then
    print(('{"suggested": %s}'):format(lr and literal.json_number(lr) or "null"))
  elseif lr then
    print(("suggested learning rate: %.2g (the middle of the loss's fall)"):format(lr))
  else
    print "no suggestion: at no learning rate does the loss fall by more than its noise; give more steps (--steps)"
  end
  return 0
end

return M
