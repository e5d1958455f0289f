--- Binary cross entropy of probabilities.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local BCELoss = loss.Elementwise:extend "BCELoss"
local bind_bce = args.signature("BCELoss", {
  loss.element_weight, loss.reduction "mean",
})

--- -y log(p) - (1 - y) log(1 - p) for probabilities p, whose logarithms stop at that of 1e-12; NaN where p is not in 0
--- to 1. weight: of the elements. (weight, reduction = "mean")
function BCELoss:init(...)
  local a = bind_bce(...)
  self.weight, self.reduction = a.weight, a.reduction
end

function BCELoss:each(p, y)
  loss.check_weight("BCELoss", "weight", self.weight, p.shape)
  local dtype = p.dtype
  p, y = loss.wide(p), loss.wide(y)
  local value = -(y * ops.log(ops.maximum(p, 1e-12)) + (1 - y) * ops.log(ops.maximum(1 - p, 1e-12)))
  local probable = ops.logical_and(ops.greater_equal(p, 0), ops.less_equal(p, 1))
  value = ops.cast(ops.select(probable, value, 0 / 0), dtype)
  return self.weight and value * self.weight or value
end

return BCELoss
