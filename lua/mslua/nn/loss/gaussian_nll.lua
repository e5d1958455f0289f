--- The negative log likelihood of numbers whose mean and variance a network gives.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local GaussianNLLLoss = loss.OfPair:extend "GaussianNLLLoss"
local bind = args.signature("GaussianNLLLoss", {
  { "full", "boolean", false, doc = "true: the constant log(2 pi) / 2 is added" },
  { "eps", "number", 1e-6, above = 0, doc = "the least variance: a smaller one counts as this" },
  loss.reduction "mean",
})

--- (log(var) + (x - y)^2 / var) / 2 of means x, labels y and variances var, of which the last axis may have size 1. A
--- network gives mean and variance in a table, {x, var}. The gradient reaches a variance below eps, too, as in PyTorch.
--- (full = false, eps = 1e-6, reduction = "mean")
function GaussianNLLLoss:init(...)
  local a = bind(...)
  self.full, self.eps, self.reduction = a.full, a.eps, a.reduction
end

function GaussianNLLLoss:each(x, var, label)
  if not core.kind(x) or label == nil or not core.kind(var) then
    errors.fail "GaussianNLLLoss: expected means, labels and variances: three tensors"
  end
  label = loss.label_of("GaussianNLLLoss", x, label)
  local one = x.shape
  one[#one] = 1
  if #var.shape ~= #x.shape or var.shape[#one] ~= 1 then one = x.shape end
  loss.check_shape("GaussianNLLLoss", var, one, x)
  x, label, var = loss.wide(x), loss.wide(label), loss.wide(var)
  var = var + ops.stop_gradient(ops.maximum(var, self.eps) - var)
  local value = (ops.log(var) + ops.square(x - label) / var) * 0.5
  return self.full and value + 0.5 * math.log(2 * math.pi) or value
end

--- (x, label, var), or ({x, var}, label).
function GaussianNLLLoss:construct(x, label, var)
  if var == nil then return loss.OfPair.construct(self, x, label) end
  return loss.OfPair.construct(self, x, var, label)
end

return GaussianNLLLoss
