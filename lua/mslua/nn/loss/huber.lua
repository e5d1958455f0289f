--- Squared error of small differences, absolute error of large ones.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local HuberLoss = loss.Elementwise:extend "HuberLoss"
local bind = args.signature("HuberLoss", {
  loss.reduction "mean",
  { "delta", "number", 1, above = 0, doc = "the largest difference whose square counts" },
})

--- d^2 / 2 where the absolute difference d is at most delta, delta (d - delta / 2) elsewhere. (reduction = "mean",
--- delta = 1)
function HuberLoss:init(...)
  local a = bind(...)
  self.reduction, self.delta = a.reduction, a.delta
end

function HuberLoss:each(output, label)
  local d = ops.abs(loss.wide(output) - loss.wide(label))
  local near = ops.less_equal(d, self.delta)
  local small = ops.select(near, d, 0) -- so that an infinite difference has no square, whose slope would be NaN
  return ops.select(near, small * small * 0.5, (d - 0.5 * self.delta) * self.delta)
end

return HuberLoss
