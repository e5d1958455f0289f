--- The hinge loss of several classes, of which one is right.
local args = require "mslua.args"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local MultiMarginLoss = loss.Loss:extend "MultiMarginLoss"
local bind = args.signature("MultiMarginLoss", {
  { "p", "integer", 1, choices = { 1, 2 }, doc = "the power of each class's part" },
  { "margin", "number", 1, doc = "how much larger the number of the right class is to be than the others" },
  loss.reduction "mean", loss.class_weight,
})

--- sum over i ~= y of weight[y] max(0, margin - x[y] + x[i])^p / classes, of outputs x [n, classes] and ids of classes
--- y [n]. (p = 1, margin = 1, reduction = "mean", weight)
function MultiMarginLoss:init(...)
  local a = bind(...)
  self.p, self.margin, self.reduction, self.weight = a.p, a.margin, a.reduction, a.weight
end

function MultiMarginLoss:rows(x, ids)
  loss.check_logits("MultiMarginLoss", x, ids)
  if #x.shape ~= 2 then errors.fail("MultiMarginLoss: expected outputs [n, classes], got %s", errors.show(x.shape)) end
  local classes = x.shape[2]
  loss.check_class_weight("MultiMarginLoss", self.weight, classes)
  x, ids = loss.flat("MultiMarginLoss", loss.wide(x), ids, true)
  local over = ops.maximum(x - ops.expand_dims(loss.of_label(x, ids), 2) + self.margin, 0)
  if self.p == 2 then over = over * over end
  -- The right class is not compared with itself.
  over = ops.select(ops.cast(ops.one_hot(ids, classes), "bool"), 0, over)
  local rows = ops.reduce_sum(over, { 2 }) / classes
  return self.weight and rows * ops.gather(loss.wide(self.weight), ids) or rows
end

return MultiMarginLoss
