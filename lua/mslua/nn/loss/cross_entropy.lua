--- PyTorch's cross entropy of logits.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local NLLLoss = require "mslua.nn.loss.nll"
local ops = require "mslua.ops"

local CrossEntropyLoss = loss.Loss:extend "CrossEntropyLoss"
CrossEntropyLoss.of_classes = true  -- its logits have a number for each class
local bind_cross = args.signature("CrossEntropyLoss", {
  loss.reduction "mean", loss.ignore_index, loss.label_smoothing, loss.class_weight,
})

--- PyTorch's CrossEntropyLoss: logits [.., classes], and labels that are ids, int32 [..], or probabilities of the
--- classes, floats [.., classes]. An id that is ignore_index has no loss and does not count in the mean; where no label
--- counts, the mean is 0 and so is its gradient (in PyTorch both are NaN). label_smoothing: the share of the label that
--- is spread over all classes. weight: one number a class; "mean" of ids then divides by the sum of the labels'
--- weights. Data parallel ranks each divide by the sum of their own batch (docs/howto/data_parallel.md). (reduction =
--- "mean", ignore_index = -100, label_smoothing = 0, weight)
function CrossEntropyLoss:init(...)
  local a = bind_cross(...)
  self.reduction, self.ignore_index, self.label_smoothing = a.reduction, a.ignore_index, a.label_smoothing
  self.weight = a.weight
  if a.weight and #a.weight.shape ~= 1 then
    errors.fail("CrossEntropyLoss: weight: expected one number for each class, got %s", errors.show(a.weight))
  end
  self.weighted = a.weight and NLLLoss {
    weight = a.weight, reduction = a.reduction, ignore_index = a.ignore_index, label_smoothing = a.label_smoothing,
  }
  if self.weighted then self.weighted.asked_as = "CrossEntropyLoss" end
end

-- Logarithms of probabilities, for the loss with weights.
local function logs(logits, labels)
  loss.check_logits("CrossEntropyLoss", logits, labels)
  return ops.log_softmax(loss.wide(logits), -1)
end

-- The losses of all labels, [n * ..], and 1 for each that counts.
function CrossEntropyLoss:each(logits, labels)
  logits, labels = loss.flat("CrossEntropyLoss", logits, labels, true)
  local losses = (ops.sparse_softmax_cross_entropy(logits, labels, {
    ignore_index = self.ignore_index, label_smoothing = self.label_smoothing,
  }))
  local counts = ops.cast(ops.not_equal(labels, self.ignore_index), losses.dtype)
  return losses, counts
end

-- Whether labels are probabilities of the classes.
local function are_shares(logits, labels)
  return core.kind(logits) and core.kind(labels) and not loss.are_ids(logits, labels)
end

-- The losses of all rows of probabilities, [n * ..].
function CrossEntropyLoss:of_shares(logits, labels)
  if self.ignore_index ~= -100 then
    errors.fail("CrossEntropyLoss: ignore_index is %d, and the labels are probabilities of the classes: leave it out, "
      .. "or give ids of classes, [..] of int32 or int64", self.ignore_index)
  end
  logits, labels = loss.flat("CrossEntropyLoss", logits, labels, false)
  local classes, smoothing = logits.shape[2], self.label_smoothing
  loss.check_class_weight("CrossEntropyLoss", self.weight, classes)
  local dtype = logits.dtype
  logits = loss.wide(logits)
  labels = ops.cast(labels, logits.dtype)
  if smoothing > 0 then labels = labels * (1 - smoothing) + smoothing / classes end
  if self.weight then labels = labels * loss.wide(self.weight) end
  return ops.cast(ops.softmax_cross_entropy(logits, labels), dtype)
end

function CrossEntropyLoss:construct(logits, labels)
  if are_shares(logits, labels) then
    return self:reduce(self:of_shares(logits, labels), loss.label_shape(logits))
  end
  if self.weighted then return self.weighted:construct(logs(logits, labels), labels) end
  local losses, counts = self:each(logits, labels)
  if self.reduction ~= "mean" then return self:reduce(losses, loss.label_shape(logits)) end
  return ops.reduce_sum(losses, { 1 }) / ops.maximum(ops.reduce_sum(counts, { 1 }), 1)
end

function CrossEntropyLoss:rows(logits, labels)
  if are_shares(logits, labels) then
    return loss.over_rows(loss.split_rows(self:of_shares(logits, labels), loss.rows_in(logits)), self.reduction)
  end
  if self.weighted then return self.weighted:rows(logs(logits, labels), labels) end
  local losses, counts = self:each(logits, labels)
  return loss.weighted_rows(loss.wide(losses), loss.wide(counts), loss.rows_in(logits), self.reduction)
end

return CrossEntropyLoss
