--- Whether two vectors point the same way.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local CosineEmbeddingLoss = loss.Loss:extend "CosineEmbeddingLoss"
local bind = args.signature("CosineEmbeddingLoss", {
  { "margin", "number", 0, min = -1, max = 1, doc = "vectors with label -1 have no loss up to this cosine" },
  loss.reduction "mean",
})

--- 1 - cos(a, b) where the label is 1, max(0, cos(a, b) - margin) where it is -1, of vectors a and b, [n, size], and
--- labels [n]. A network gives both vectors in a table. (margin = 0, reduction = "mean")
function CosineEmbeddingLoss:init(...)
  local a = bind(...)
  self.margin, self.reduction = a.margin, a.reduction
end

local EXPECTED = "CosineEmbeddingLoss: expected two tensors and a label of 1 or -1 for each row"

-- Of vectors along the last dimension. As in PyTorch, 1e-12 beside the squares: vectors of 0 have a cosine.
local function cosine(a, b)
  local axis = { #a.shape }
  local squares = (ops.reduce_sum(a * a, axis) + 1e-12) * (ops.reduce_sum(b * b, axis) + 1e-12)
  return ops.reduce_sum(a * b, axis) / ops.sqrt(squares)
end

function CosineEmbeddingLoss:each(a, b, label)
  if not core.kind(a) or not core.kind(b) or not label then
    errors.fail(EXPECTED)
  end
  loss.check_shape("CosineEmbeddingLoss", b, a.shape, a)
  local rows = a.shape
  rows[#rows] = nil
  loss.check_shape("CosineEmbeddingLoss", label, rows, a)
  local cos = cosine(loss.wide(a), loss.wide(b))
  return ops.select(ops.greater(label, 0), 1 - cos, ops.maximum(cos - self.margin, 0))
end

--- (a, b, label), or ({a, b}, label).
function CosineEmbeddingLoss:construct(a, b, label)
  if label == nil and type(a) == "table" then a, b, label = a[1], a[2], b end
  return self:reduce(self:each(a, b, label))
end

function CosineEmbeddingLoss:rows(output, label)
  if type(output) ~= "table" then errors.fail(EXPECTED) end
  return loss.over_rows(self:each(output[1], output[2], label), self.reduction)
end

return CosineEmbeddingLoss
