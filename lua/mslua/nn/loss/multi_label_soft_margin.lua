--- Binary cross entropy of several classes, of which any number may be right.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local MultiLabelSoftMarginLoss = loss.Loss:extend "MultiLabelSoftMarginLoss"
local bind = args.signature("MultiLabelSoftMarginLoss", { loss.class_weight, loss.reduction "mean" })

--- Of logits and labels of 0 and 1, [.., classes], the mean over the classes of BCEWithLogitsLoss, [..].
--- (weight, reduction = "mean")
function MultiLabelSoftMarginLoss:init(...)
  local a = bind(...)
  self.weight, self.reduction = a.weight, a.reduction
end

function MultiLabelSoftMarginLoss:each(x, y)
  y = loss.label_of("MultiLabelSoftMarginLoss", x, y)
  loss.check_logits("MultiLabelSoftMarginLoss", x, y)
  loss.check_class_weight("MultiLabelSoftMarginLoss", self.weight, x.shape[#x.shape])
  local value = (1 - y) * ops.softplus(x) + y * ops.softplus(-x)
  if self.weight then value = value * self.weight end
  return ops.reduce_mean(value, { #x.shape })
end

function MultiLabelSoftMarginLoss:construct(x, y) return self:reduce(self:each(x, y)) end
function MultiLabelSoftMarginLoss:rows(x, y) return loss.over_rows(self:each(x, y), self.reduction) end

return MultiLabelSoftMarginLoss
