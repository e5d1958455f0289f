--- Cross entropy that counts what is classified well for less.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local FocalLoss = loss.Loss:extend "FocalLoss"
local bind = args.signature("FocalLoss", {
  loss.class_weight,
  { "gamma", "number", 2, min = 0, doc = "the exponent of 1 - p: the greater, the less does an easy label count" },
  loss.reduction "mean",
})

--- -weight[y] (1 - p)^gamma log(p) of p = softmax(logits)[y] (Lin et al., 2017), for logits [.., classes] and ids y,
--- int32 [..]. Labels of the logits' shape are shares of the classes: the loss is of each element, times its share.
--- weight: one number a class. (weight, gamma = 2, reduction = "mean")
function FocalLoss:init(...)
  local a = bind(...)
  self.weight, self.gamma, self.reduction = a.weight, a.gamma, a.reduction
end

-- The losses of all labels, [n * ..], or of all elements; and the shape of those that are not reduced.
function FocalLoss:each(logits, labels)
  loss.check_logits("FocalLoss", logits, labels)
  local sparse, weight = loss.are_ids(logits, labels), self.weight
  local shape = sparse and loss.label_shape(logits) or logits.shape
  logits, labels = loss.flat("FocalLoss", loss.wide(logits), labels, sparse)
  loss.check_class_weight("FocalLoss", weight, logits.shape[2])
  weight = weight and ops.cast(weight, logits.dtype)
  local log_p = ops.log_softmax(logits, -1)
  if sparse then
    log_p = loss.of_label(log_p, labels)
    weight = weight and ops.gather(weight, labels, 1)
  end
  local each = -log_p
  -- 1 - p, with all its digits near p = 1; above 0, where the power has a derivative.
  if self.gamma > 0 then each = each * ops.maximum(-ops.expm1(log_p), 1e-30) ^ self.gamma end
  if not sparse then each = each * ops.cast(labels, logits.dtype) end
  return weight and each * weight or each, shape
end

function FocalLoss:construct(logits, labels) return self:reduce(self:each(logits, labels)) end

function FocalLoss:rows(logits, labels)
  local each = self:each(logits, labels)
  return loss.over_rows(loss.split_rows(each, loss.rows_in(logits)), self.reduction)
end

return FocalLoss
