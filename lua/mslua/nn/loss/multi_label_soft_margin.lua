--- Binary cross entropy of several classes, of which any number may be right.
local args = require "mslua.args"
local BCEWithLogitsLoss = require "mslua.nn.loss.bce_with_logits"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local MultiLabelSoftMarginLoss = BCEWithLogitsLoss:extend "MultiLabelSoftMarginLoss"
local bind = args.signature("MultiLabelSoftMarginLoss", { loss.class_weight, loss.reduction "mean" })

--- Of logits and labels of 0 and 1, [.., classes], the mean over the classes of BCEWithLogitsLoss, [..].
--- (weight, reduction = "mean")
function MultiLabelSoftMarginLoss:init(...)
  local a = bind(...)
  self.weight, self.reduction = a.weight, a.reduction
end

function MultiLabelSoftMarginLoss:each(x, y)
  loss.check_logits("MultiLabelSoftMarginLoss", x, y)
  loss.check_class_weight("MultiLabelSoftMarginLoss", self.weight, x.shape[#x.shape])
  return ops.reduce_mean(BCEWithLogitsLoss.each(self, x, y), { #x.shape })
end

return MultiLabelSoftMarginLoss
