--- Absolute error, squared near 0.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local SmoothL1Loss = loss.Elementwise:extend "SmoothL1Loss"
local bind_smooth = args.signature("SmoothL1Loss", {
  { "beta", "number", 1, above = 0, doc = "the difference from which on the loss is linear" }, loss.reduction "none",
})

--- d^2 / (2 beta) where the absolute difference d is below beta, d - beta / 2 elsewhere. (beta = 1, reduction = "none")
function SmoothL1Loss:init(...)
  local a = bind_smooth(...)
  self.beta, self.reduction = a.beta, a.reduction
end

function SmoothL1Loss:each(output, label)
  local d = ops.abs(output - label)
  local near = ops.less(d, self.beta)
  local small = ops.select(near, d, 0) -- so that an infinite difference has no square, whose slope would be NaN
  return ops.select(near, small * (small * (0.5 / self.beta)), d - 0.5 * self.beta)
end

return SmoothL1Loss
