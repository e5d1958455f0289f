--- Whether a distance is small where it should be.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local HingeEmbeddingLoss = loss.Elementwise:extend "HingeEmbeddingLoss"
local bind = args.signature("HingeEmbeddingLoss", {
  { "margin", "number", 1, doc = "distances with label -1 have no loss from this one on" },
  loss.reduction "mean",
})

--- The output x, a distance, where the label is 1, max(0, margin - x) where it is -1; NaN for another label.
--- (margin = 1, reduction = "mean")
function HingeEmbeddingLoss:init(...)
  local a = bind(...)
  self.margin, self.reduction = a.margin, a.reduction
end

function HingeEmbeddingLoss:each(output, label)
  return loss.by_sign(label, output, ops.maximum(self.margin - output, 0))
end

return HingeEmbeddingLoss
