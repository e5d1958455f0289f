--- Whether two inputs are in the wanted order.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local MarginRankingLoss = loss.OfPair:extend "MarginRankingLoss"
local bind = args.signature("MarginRankingLoss", {
  { "margin", "number", 0, doc = "how much larger the larger input is to be" },
  loss.reduction "mean",
})

--- max(0, -y (x1 - x2) + margin) of two tensors of one shape and labels y of that shape: 1 where x1 is to be the larger
--- one, -1 where x2 is. A network gives both in a table, {x1, x2}. (margin = 0, reduction = "mean")
function MarginRankingLoss:init(...)
  local a = bind(...)
  self.margin, self.reduction = a.margin, a.reduction
end

function MarginRankingLoss:each(x1, x2, label)
  if not core.kind(x1) or not core.kind(x2) or label == nil then
    errors.fail "MarginRankingLoss: expected two tensors, and a label of 1 or -1 for each of their elements"
  end
  loss.check_shape("MarginRankingLoss", x2, x1.shape, x1)
  label = loss.wide(loss.label_of("MarginRankingLoss", x1, label))
  return ops.maximum(label * (loss.wide(x2) - loss.wide(x1)) + self.margin, 0)
end

return MarginRankingLoss
