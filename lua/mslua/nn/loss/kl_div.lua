--- Kullback-Leibler divergence.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local KLDivLoss = loss.Elementwise:extend "KLDivLoss"
local bind = args.signature("KLDivLoss", {
  { "reduction", "string", "mean", choices = { "mean", "batchmean", "sum", "none" },
    doc = '"mean": the mean of the elements\' losses; "batchmean": their sum divided by the number of rows; "sum": '
      .. 'their sum; "none": the losses themselves' },
})

--- y (log(y) - x) of probabilities y and logarithms of probabilities x, 0 where y is 0; "mean" is over all elements,
--- "batchmean" the sum divided by the number of rows, the divergence itself. (reduction = "mean")
function KLDivLoss:init(...) self.reduction = bind(...).reduction end

function KLDivLoss:each(x, y)
  y = loss.label_of("KLDivLoss", x, y)
  x, y = loss.wide(x), loss.wide(y)
  -- The logarithm of 0 is left out: 0 times it is NaN.
  local held = ops.greater(y, 0)
  return ops.select(held, y * (ops.log(ops.select(held, y, 1)) - x), 0)
end

function KLDivLoss:rows(x, y)
  return loss.over_rows(self:each(x, y), self.reduction == "batchmean" and "sum" or self.reduction)
end

function KLDivLoss:construct(x, y)
  if self.reduction == "batchmean" then return ops.reduce_mean(self:rows(x, y), { 1 }) end
  return self:reduce(self:each(x, y))
end

return KLDivLoss
