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

M.MSELoss = Loss:extend "MSELoss"
local bind_mse = args.signature("MSELoss", { { "reduction", "string", "mean", choices = reductions } })

--- Squared difference, averaged. (reduction = "mean")
function M.MSELoss:init(...) self.reduction = bind_mse(...).reduction end

function M.MSELoss:rows(output, label)
  local difference, axes = output - label, {}
  for i = 2, #output.shape do axes[i - 1] = i end
  local squares = difference * difference
  return #axes == 0 and squares or ops.reduce_mean(squares, axes)
end

--- Elementwise with reduction "none", as MindSpore's.
function M.MSELoss:construct(output, label)
  return ops.mse_loss(output, label, { reduction = self.reduction })
end

-- Cross entropy of each row of logits [.., classes]; labels are ids [..] or rows of probabilities.
local function cross_entropy(logits, labels, sparse)
  local shape = logits.shape
  if #shape > 2 then
    logits = ops.reshape(logits, { -1, shape[#shape] })
    labels = ops.reshape(labels, sparse and { -1 } or { -1, shape[#shape] })
  end
  return sparse and ops.sparse_softmax_cross_entropy(logits, labels) or ops.softmax_cross_entropy(logits, labels)
end

-- The mean of what belongs to each row of the batch: [n * t] of [n, t, classes] gives [n].
local function by_row(losses, n)
  if losses.shape[1] == n then return losses end
  return ops.reduce_mean(ops.reshape(losses, { n, -1 }), { 2 })
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
  return by_row(cross_entropy(logits, labels, self.sparse), logits.shape[1])
end

M.CrossEntropyLoss = M.SoftmaxCrossEntropyWithLogits:extend "CrossEntropyLoss"
local bind_cross = args.signature("CrossEntropyLoss", { { "reduction", "string", "mean", choices = reductions } })

--- The same over ids, averaged: PyTorch's CrossEntropyLoss. Logits [.., classes], labels int32 [..]. (reduction =
--- "mean")
function M.CrossEntropyLoss:init(...) self.sparse, self.reduction = true, bind_cross(...).reduction end

return M
