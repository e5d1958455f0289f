--- nn.Dropout: zeros with probability p in training, the rest scaled by 1 / (1 - p); identity otherwise.
local args = require "mslua.args"
local core = require "mslua.core"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Dropout = Cell:extend "Dropout"

local bind = args.signature("Dropout", {
  { "p", "number", 0.5, min = 0, below = 1, doc = "the probability that an element becomes zero, in training" },
})

--- Sets elements to zero with probability p in training and multiplies the others by 1 / (1 - p); in evaluation it
--- gives its input: `nn.Dropout { p = 0.1 }`.
function Dropout:init(...) self.p = bind(...).p end

function Dropout:construct(x)
  if not core.training() or self.p == 0 then return x end
  return (ops.dropout(x, { p = self.p }))
end

function Dropout:extra() return "p = " .. self.p end

return Dropout
