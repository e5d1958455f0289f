--- nn.Flatten: [n, ...] becomes [n, product of the rest].
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Flatten = Cell:extend "Flatten"

--- x [n, ...] gives [n, m], m the product of the other dimensions.
function Flatten:construct(x) return ops.reshape(x, { x.shape[1], -1 }) end

return Flatten
