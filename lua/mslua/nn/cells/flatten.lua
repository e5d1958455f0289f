--- nn.Flatten: [n, ...] becomes [n, product of the rest].
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Flatten = Cell:extend "Flatten"

--- x [n, ...] gives [n, m], m the product of the other dimensions.
function Flatten:construct(x)
  local shape, rest = x.shape, 1
  if #shape == 0 then errors.fail "Flatten: x: expected [n, ...], got a tensor without dimensions" end
  for i = 2, #shape do rest = rest * shape[i] end
  return ops.reshape(x, { shape[1], rest })
end

return Flatten
