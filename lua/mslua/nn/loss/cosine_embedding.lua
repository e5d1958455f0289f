--- Whether two vectors point the same way.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local CosineEmbeddingLoss = loss.OfPair:extend "CosineEmbeddingLoss"
local bind = args.signature("CosineEmbeddingLoss", {
  { "margin", "number", 0, min = -1, max = 1, doc = "vectors with label -1 have no loss up to this cosine" },
  loss.reduction "mean",
})

--- 1 - cos(a, b) where the label is 1, max(0, cos(a, b) - margin) where it is -1, of vectors a and b, [n, size], and
--- labels [n]; NaN for another label. A network gives both vectors in a table. (margin = 0, reduction = "mean")
function CosineEmbeddingLoss:init(...)
  local a = bind(...)
  self.margin, self.reduction = a.margin, a.reduction
end

-- Of vectors along the last dimension. As in PyTorch, 1e-12 beside the squares: vectors of 0 have a cosine.
local function cosine(a, b)
  local axis = { #a.shape }
  local squares = (ops.reduce_sum(a * a, axis) + 1e-12) * (ops.reduce_sum(b * b, axis) + 1e-12)
  return ops.reduce_sum(a * b, axis) / ops.sqrt(squares)
end

function CosineEmbeddingLoss:each(a, b, label)
  if not core.kind(a) or not core.kind(b) or not label then
    errors.fail "CosineEmbeddingLoss: expected two tensors and a label of 1 or -1 for each row"
  end
  loss.check_shape("CosineEmbeddingLoss", b, a.shape, a)
  local rows = a.shape
  rows[#rows] = nil
  loss.check_shape("CosineEmbeddingLoss", label, rows, a)
  local cos = cosine(loss.wide(a), loss.wide(b))
  return loss.by_sign(label, 1 - cos, ops.maximum(cos - self.margin, 0))
end

return CosineEmbeddingLoss
