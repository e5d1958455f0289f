--- Masks of attention that say in two ways which keys a query sees.
local M = {}

--- Whether query i of t sees key j of s with `causal`: bool [t, s].
---@param ops table ms.ops
---@param t integer
---@param s integer
---@return Tensor
function M.below(ops, t, s)
  return ops.less_equal(ops.reshape(ops.iota { size = s }, { 1, s }),
    ops.reshape(ops.iota { size = t, start = s - t }, { t, 1 }))
end

--- Floats that are added to the scores and bools, true for the keys that a query sees, as floats; and which queries see
--- a key at all, [.., t, 1]. A key that one of both hides gets no weight. The floats of a query that sees no key are 0:
--- its result is to be zeros.
---@param ops table ms.ops
---@param mask Tensor floats that broadcast to [.., t, s]
---@param seen Tensor bool
---@param below? Tensor bool [t, s], the keys that `causal` lets a query see
---@return Tensor floats
---@return Tensor bool
function M.both(ops, mask, seen, below)
  local added = ops.select(seen, mask, -math.huge)
  if below then added = ops.select(below, added, -math.huge) end
  local sees = ops.not_equal(ops.reduce_max(added, { -1 }, { keep_dims = true }), -math.huge)
  return ops.select(sees, added, 0), sees
end

return M
