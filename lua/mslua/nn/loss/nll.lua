--- Negative log likelihood.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local NLLLoss = loss.Loss:extend "NLLLoss"
local bind = args.signature("NLLLoss", {
  loss.class_weight, loss.ignore_index, loss.reduction "mean", loss.label_smoothing,
})

--- -weight[y] x[y] of logarithms of probabilities x, [.., classes], and ids y, int32 [..]; "mean" divides the sum by
--- the sum of the weights. A label ignore_index has no loss and no weight; where no label counts, the mean is 0.
--- weight: one number a class; label_smoothing: the share of the label that is spread over all classes. (weight,
--- ignore_index = -100, reduction = "mean", label_smoothing = 0)
function NLLLoss:init(...)
  local a = bind(...)
  self.weight, self.ignore_index, self.reduction, self.label_smoothing = a.weight, a.ignore_index, a.reduction,
    a.label_smoothing
end

-- The losses of all labels, [n * ..], and the weight of each in the mean. asked_as: the loss that is named in messages,
-- where another one uses this.
function NLLLoss:each(x, ids)
  local name, weight = self.asked_as or "NLLLoss", self.weight
  x, ids = loss.flat(name, x, ids, true)
  x = loss.wide(x)
  loss.check_class_weight(name, weight, x.shape[2])
  local counts = ops.not_equal(ids, self.ignore_index)
  local safe = ops.select(counts, ids, 0)
  local each = -loss.of_label(x, safe)
  local weights = ops.cast(counts, x.dtype)
  if weight then
    weight = ops.cast(weight, x.dtype)
    weights = weights * ops.gather(weight, safe, 1)
  end
  -- Of a label that does not count, x may be infinite.
  local losses = ops.select(counts, each * weights, 0)
  if self.label_smoothing > 0 then
    local spread = -ops.reduce_mean(weight and x * weight or x, { 2 })
    losses = losses * (1 - self.label_smoothing)
      + ops.select(counts, spread, 0) * self.label_smoothing
  end
  return losses, weights
end

function NLLLoss:construct(x, ids)
  local losses, weights = self:each(x, ids)
  if self.reduction ~= "mean" then return self:reduce(losses, loss.label_shape(x)) end
  local all = ops.reduce_sum(weights, { 1 })
  return ops.reduce_sum(losses, { 1 }) / ops.select(ops.greater(all, 0), all, 1)
end

function NLLLoss:rows(x, ids)
  local losses, weights = self:each(x, ids)
  return loss.weighted_rows(losses, weights, loss.rows_in(x), self.reduction)
end

return NLLLoss
