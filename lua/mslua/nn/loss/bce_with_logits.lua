--- Binary cross entropy of logits.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local BCEWithLogitsLoss = loss.Elementwise:extend "BCEWithLogitsLoss"
local bind_bce_logits = args.signature("BCEWithLogitsLoss", {
  loss.reduction "mean", loss.element_weight,
  { "pos_weight", "tensor",
    doc = "[classes], the factor of each class's part for the label 1, -y log(sigmoid(x)); default: 1 each" },
})

--- BCELoss of sigmoid(x) for any x. weight: of the elements; pos_weight: of the positive part of each class. (reduction
--- = "mean", weight, pos_weight)
function BCEWithLogitsLoss:init(...)
  local a = bind_bce_logits(...)
  self.reduction, self.weight, self.pos_weight = a.reduction, a.weight, a.pos_weight
end

function BCEWithLogitsLoss:each(x, y)
  loss.check_weight("BCEWithLogitsLoss", "weight", self.weight, x.shape)
  loss.check_weight("BCEWithLogitsLoss", "pos_weight", self.pos_weight, x.shape)
  -- -log(sigmoid(x)) and -log(1 - sigmoid(x)). Where y is 0 or 1, one of the terms is 0, and the gradient of the other,
  -- -sigmoid(-x) or sigmoid(x), has all its digits however small it is.
  local positive, negative = ops.softplus(-x), ops.softplus(x)
  if self.pos_weight then positive = positive * self.pos_weight end
  local value = (1 - y) * negative + y * positive
  return self.weight and value * self.weight or value
end

return BCEWithLogitsLoss
