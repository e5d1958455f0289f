--- nn.DropPath: zeros for whole rows with probability p in training; identity otherwise.
local args = require "mslua.args"
local core = require "mslua.core"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local DropPath = Cell:extend "DropPath"

local bind = args.signature("DropPath", {
  { "drop_prob", "number", 0, min = 0, below = 1, doc = "the probability that a row becomes zero, in training" },
})

--- Stochastic depth (Huang et al., 2016): sets a row of the batch, x [n, ..], to zero with probability drop_prob in
--- training and multiplies the other rows by 1 / (1 - drop_prob); in evaluation it gives its input. It stands at the
--- end of a residual branch: `x + self.drop_path(self.branch(x))`.
function DropPath:init(...) self.drop_prob = bind(...).drop_prob end

function DropPath:construct(x)
  if not core.training() or self.drop_prob == 0 then return x end
  local rows = { x.shape[1] }
  for i = 2, #x.shape do rows[i] = 1 end
  return x * ops.dropout(core.full(rows, 1, x.dtype), { p = self.drop_prob })
end

function DropPath:extra() return "drop_prob = " .. self.drop_prob end

return DropPath
