--- Losses: cells of (output of the network, label). `rows` gives one number a row, what evaluation sums.
local args = require "mslua.args"
local class = require "mslua.class"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local M = {}

--- Base of losses: a subclass defines `rows(output, label)`, the loss of each row, [n].
local Loss = Cell:extend "Loss"
M.Loss = Loss

local reductions = { "mean", "sum", "none" }

function Loss:reduce(rows)
  if self.reduction == "none" then return rows end
  local axes = {}
  for i = 1, #rows.shape do axes[i] = i end
  return self.reduction == "sum" and ops.reduce_sum(rows, axes) or ops.reduce_mean(rows, axes)
end

function Loss:construct(output, label) return self:reduce(self:rows(output, label)) end
function Loss:extra() return self.reduction end

args.kind("loss", function(v) return class.is(v, Cell) or type(v) == "function" end, "a loss cell or function")

-- 16-bit floats as float32: squares and logarithms that 16 bits cannot hold, and small numbers beside them.
local function wide(x)
  return (x.dtype == "float16" or x.dtype == "bfloat16") and ops.cast(x, "float32") or x
end

-- Losses of single elements: a subclass defines each(output, label), of the output's shape.
local Elementwise = Loss:extend "ElementwiseLoss"

-- Of each row the mean over its elements, or their sum, as the reduction says.
function Elementwise:rows(output, label)
  local each, axes = self:each(output, label), {}
  for i = 2, #each.shape do axes[i - 1] = i end
  if #axes == 0 then return each end
  return self.reduction == "sum" and ops.reduce_sum(each, axes) or ops.reduce_mean(each, axes)
end

function Elementwise:construct(output, label) return self:reduce(self:each(output, label)) end

M.MSELoss = Elementwise:extend "MSELoss"
local bind_mse = args.signature("MSELoss", { { "reduction", "string", "mean", choices = reductions } })

--- Squared difference, averaged. (reduction = "mean")
function M.MSELoss:init(...) self.reduction = bind_mse(...).reduction end

function M.MSELoss:each(output, label)
  local difference = wide(output) - wide(label)
  return difference * difference
end

--- Elementwise with reduction "none", as MindSpore's.
function M.MSELoss:construct(output, label)
  return ops.mse_loss(output, label, { reduction = self.reduction })
end

-- Logits [.., classes] and labels, ids [..] or rows of probabilities, as [n, classes] and [n] or [n, classes].
local function flat(logits, labels, sparse)
  local shape = logits.shape
  if #shape <= 2 then return logits, labels end
  return ops.reshape(logits, { -1, shape[#shape] }), ops.reshape(labels, sparse and { -1 } or { -1, shape[#shape] })
end

-- Cross entropy of each row of logits [.., classes]; labels are ids [..] or rows of probabilities.
local function cross_entropy(logits, labels, sparse)
  logits, labels = flat(logits, labels, sparse)
  return sparse and ops.sparse_softmax_cross_entropy(logits, labels) or ops.softmax_cross_entropy(logits, labels)
end

-- The mean, or the sum, of what belongs to each row of the batch: [n * t] of [n, t, classes] gives [n].
local function by_row(losses, n, reduction)
  if losses.shape[1] == n then return losses end
  losses = ops.reshape(losses, { n, -1 })
  return reduction == "sum" and ops.reduce_sum(losses, { 2 }) or ops.reduce_mean(losses, { 2 })
end

M.L1Loss = Elementwise:extend "L1Loss"
local bind_l1 = args.signature("L1Loss", { { "reduction", "string", "mean", choices = reductions } })

--- Absolute difference, averaged. (reduction = "mean")
function M.L1Loss:init(...) self.reduction = bind_l1(...).reduction end
function M.L1Loss:each(output, label) return ops.abs(output - label) end

M.SmoothL1Loss = Elementwise:extend "SmoothL1Loss"
local bind_smooth = args.signature("SmoothL1Loss", {
  { "beta", "number", 1, above = 0 }, { "reduction", "string", "none", choices = reductions },
})

--- d^2 / (2 beta) where the absolute difference d is below beta, d - beta / 2 elsewhere. (beta = 1, reduction = "none")
function M.SmoothL1Loss:init(...)
  local a = bind_smooth(...)
  self.beta, self.reduction = a.beta, a.reduction
end

function M.SmoothL1Loss:each(output, label)
  local d = ops.abs(output - label)
  return ops.select(ops.less(d, self.beta), d * (d * (0.5 / self.beta)), d - 0.5 * self.beta)
end

M.BCELoss = Elementwise:extend "BCELoss"
local bind_bce = args.signature("BCELoss", {
  { "weight", "tensor" }, { "reduction", "string", "mean", choices = reductions },
})

--- -y log(p) - (1 - y) log(1 - p) for probabilities p, whose logarithms stop at that of 1e-12. weight: of the elements.
--- (weight, reduction = "mean")
function M.BCELoss:init(...)
  local a = bind_bce(...)
  self.weight, self.reduction = a.weight, a.reduction
end

function M.BCELoss:each(p, y)
  local dtype = p.dtype
  p, y = wide(p), wide(y)
  local loss = -(y * ops.log(ops.maximum(p, 1e-12)) + (1 - y) * ops.log(ops.maximum(1 - p, 1e-12)))
  loss = ops.cast(loss, dtype)
  return self.weight and loss * self.weight or loss
end

M.BCEWithLogitsLoss = Elementwise:extend "BCEWithLogitsLoss"
local bind_bce_logits = args.signature("BCEWithLogitsLoss", {
  { "reduction", "string", "mean", choices = reductions }, { "weight", "tensor" }, { "pos_weight", "tensor" },
})

--- BCELoss of sigmoid(x) for any x. weight: of the elements; pos_weight: of the positive part of each class. (reduction
--- = "mean", weight, pos_weight)
function M.BCEWithLogitsLoss:init(...)
  local a = bind_bce_logits(...)
  self.reduction, self.weight, self.pos_weight = a.reduction, a.weight, a.pos_weight
end

function M.BCEWithLogitsLoss:each(x, y)
  -- -log(sigmoid(x)) and -log(1 - sigmoid(x)). Where y is 0 or 1, one of the terms is 0, and the gradient of the other,
  -- -sigmoid(-x) or sigmoid(x), has all its digits however small it is.
  local positive, negative = ops.softplus(-x), ops.softplus(x)
  if self.pos_weight then positive = positive * self.pos_weight end
  local loss = (1 - y) * negative + y * positive
  return self.weight and loss * self.weight or loss
end

M.SoftmaxCrossEntropyWithLogits = Loss:extend "SoftmaxCrossEntropyWithLogits"
local bind_softmax = args.signature("SoftmaxCrossEntropyWithLogits", {
  { "sparse", "boolean", false }, { "reduction", "string", "none", choices = reductions },
})

--- -log softmax(logits)[label]. `sparse`: labels are ids, else rows of probabilities. (sparse = false, reduction =
--- "none")
function M.SoftmaxCrossEntropyWithLogits:init(...)
  local a = bind_softmax(...)
  self.sparse, self.reduction = a.sparse, a.reduction
end

function M.SoftmaxCrossEntropyWithLogits:construct(logits, labels)
  return self:reduce(cross_entropy(logits, labels, self.sparse))
end

function M.SoftmaxCrossEntropyWithLogits:rows(logits, labels)
  return by_row(cross_entropy(logits, labels, self.sparse), logits.shape[1], self.reduction)
end

M.CrossEntropyLoss = Loss:extend "CrossEntropyLoss"
local bind_cross = args.signature("CrossEntropyLoss", {
  { "reduction", "string", "mean", choices = reductions },
  { "ignore_index", "integer", -100 },
  { "label_smoothing", "number", 0, min = 0, max = 1 },
})

--- PyTorch's CrossEntropyLoss of ids: logits [.., classes], labels int32 [..]. A label ignore_index has no loss and
--- does not count in the mean; where no label counts, the mean is 0 and so is its gradient (in PyTorch both are NaN).
--- label_smoothing: the share of the label that is spread over all classes. (reduction = "mean", ignore_index = -100,
--- label_smoothing = 0)
function M.CrossEntropyLoss:init(...)
  local a = bind_cross(...)
  self.reduction, self.ignore_index, self.label_smoothing = a.reduction, a.ignore_index, a.label_smoothing
end

-- The losses of all labels, [n * ..], and 1 for each that counts.
function M.CrossEntropyLoss:each(logits, labels)
  logits, labels = flat(logits, labels, true)
  local losses = (ops.sparse_softmax_cross_entropy(logits, labels, { ignore_index = self.ignore_index }))
  local counts = ops.cast(ops.not_equal(labels, self.ignore_index), losses.dtype)
  if self.label_smoothing > 0 then
    local spread = ops.reduce_mean(ops.log_softmax(ops.cast(logits, losses.dtype), -1), { 2 })
    losses = losses * (1 - self.label_smoothing) - spread * counts * self.label_smoothing
  end
  return losses, counts
end

function M.CrossEntropyLoss:construct(logits, labels)
  local losses, counts = self:each(logits, labels)
  if self.reduction ~= "mean" then return self:reduce(losses) end
  return ops.reduce_sum(losses, { 1 }) / ops.maximum(ops.reduce_sum(counts, { 1 }), 1)
end

function M.CrossEntropyLoss:rows(logits, labels)
  local n, losses, counts = logits.shape[1], self:each(logits, labels)
  if losses.shape[1] == n then return losses end
  losses = ops.reduce_sum(ops.reshape(losses, { n, -1 }), { 2 })
  if self.reduction == "sum" then return losses end
  return losses / ops.maximum(ops.reduce_sum(ops.reshape(counts, { n, -1 }), { 2 }), 1)
end

return M
