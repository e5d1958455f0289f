--- The negative log likelihood of counts.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local PoissonNLLLoss = loss.Elementwise:extend "PoissonNLLLoss"
local bind = args.signature("PoissonNLLLoss", {
  { "log_input", "boolean", true, doc = "true: the output is the logarithm of the expected count; false: the count" },
  { "full", "boolean", false, doc = "true: the part that depends on the label alone is added, as Stirling's formula" },
  { "eps", "number", 1e-8, above = 0, doc = "added to an expected count, with log_input = false" },
  loss.reduction "mean",
})

--- exp(x) - y x, or x - y log(x + eps) with log_input = false, of outputs x and counts y, which follow a Poisson
--- distribution. full: y log(y) - y + log(2 pi y) / 2 is added where y is above 1. (log_input = true, full = false,
--- eps = 1e-8, reduction = "mean")
function PoissonNLLLoss:init(...)
  local a = bind(...)
  self.log_input, self.full, self.eps, self.reduction = a.log_input, a.full, a.eps, a.reduction
end

function PoissonNLLLoss:each(x, y)
  x, y = loss.wide(x), loss.wide(y)
  local value = self.log_input and ops.exp(x) - y * x or x - y * ops.log(x + self.eps)
  if not self.full then return value end
  local many = ops.greater(y, 1)
  local count = ops.select(many, y, 1)
  local stirling = count * ops.log(count) - count + ops.log(count * (2 * math.pi)) * 0.5
  return value + ops.select(many, stirling, 0)
end

return PoissonNLLLoss
