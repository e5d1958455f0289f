--- PyTorch's cross entropy of logits.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local CrossEntropyLoss = loss.Loss:extend "CrossEntropyLoss"
CrossEntropyLoss.of_classes = true  -- its logits have a number for each class
local bind_cross = args.signature("CrossEntropyLoss", {
  { "reduction", "string", "mean", choices = loss.reductions },
  { "ignore_index", "integer", -100 },
  { "label_smoothing", "number", 0, min = 0, max = 1 },
})

--- PyTorch's CrossEntropyLoss of ids: logits [.., classes], labels int32 [..]. A label ignore_index has no loss and
--- does not count in the mean; where no label counts, the mean is 0 and so is its gradient (in PyTorch both are NaN).
--- label_smoothing: the share of the label that is spread over all classes. (reduction = "mean", ignore_index = -100,
--- label_smoothing = 0)
function CrossEntropyLoss:init(...)
  local a = bind_cross(...)
  self.reduction, self.ignore_index, self.label_smoothing = a.reduction, a.ignore_index, a.label_smoothing
end

-- The losses of all labels, [n * ..], and 1 for each that counts.
function CrossEntropyLoss:each(logits, labels)
  logits, labels = loss.flat(logits, labels, true)
  local losses = (ops.sparse_softmax_cross_entropy(logits, labels, {
    ignore_index = self.ignore_index, label_smoothing = self.label_smoothing,
  }))
  local counts = ops.cast(ops.not_equal(labels, self.ignore_index), losses.dtype)
  return losses, counts
end

function CrossEntropyLoss:construct(logits, labels)
  local losses, counts = self:each(logits, labels)
  if self.reduction ~= "mean" then return self:reduce(losses) end
  return ops.reduce_sum(losses, { 1 }) / ops.maximum(ops.reduce_sum(counts, { 1 }), 1)
end

function CrossEntropyLoss:rows(logits, labels)
  local n, losses, counts = logits.shape[1], self:each(logits, labels)
  if losses.shape[1] == n then return losses end
  losses = ops.reduce_sum(ops.reshape(losses, { n, -1 }), { 2 })
  if self.reduction == "sum" then return losses end
  return losses / ops.maximum(ops.reduce_sum(ops.reshape(counts, { n, -1 }), { 2 }), 1)
end

return CrossEntropyLoss
