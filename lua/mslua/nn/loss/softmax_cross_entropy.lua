--- MindSpore's cross entropy of logits.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local SoftmaxCrossEntropyWithLogits = loss.Loss:extend "SoftmaxCrossEntropyWithLogits"
SoftmaxCrossEntropyWithLogits.of_classes = true  -- its logits have a number for each class
local bind_softmax = args.signature("SoftmaxCrossEntropyWithLogits", {
  { "sparse", "boolean", false, doc = "true: labels are ids, int32 [..]; false: rows of probabilities, [.., classes]" },
  loss.reduction "none",
})

--- -log softmax(logits)[label]. `sparse`: labels are ids, else rows of probabilities. (sparse = false, reduction =
--- "none")
function SoftmaxCrossEntropyWithLogits:init(...)
  local a = bind_softmax(...)
  self.sparse, self.reduction = a.sparse, a.reduction
end

-- Of each row of logits [.., classes]; labels are ids [..] or rows of probabilities.
local function cross_entropy(logits, labels, sparse)
  logits, labels = loss.flat("SoftmaxCrossEntropyWithLogits", logits, labels, sparse)
  return sparse and ops.sparse_softmax_cross_entropy(logits, labels) or ops.softmax_cross_entropy(logits, labels)
end

function SoftmaxCrossEntropyWithLogits:construct(logits, labels)
  return self:reduce(cross_entropy(logits, labels, self.sparse), loss.label_shape(logits))
end

function SoftmaxCrossEntropyWithLogits:rows(logits, labels)
  local losses = loss.split_rows(cross_entropy(logits, labels, self.sparse), loss.rows_in(logits))
  return loss.over_rows(losses, self.reduction)
end

return SoftmaxCrossEntropyWithLogits
