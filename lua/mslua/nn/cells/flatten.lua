--- nn.Flatten: [n, ...] becomes [n, product of the rest].
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Flatten = Cell:extend "Flatten"

--- x [n, ...] gives [n, m], m the product of the other dimensions.
function Flatten:construct(x)
  local shape, rest = x.shape, 1
  for i = 2, #shape do rest = rest * shape[i] end
  return ops.reshape(x, { shape[1], rest })
end

return Flatten
