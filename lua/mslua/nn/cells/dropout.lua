--- nn.Dropout: zeros with probability p in training, the rest scaled by 1 / (1 - p); identity otherwise. nn.Dropout1d,
--- Dropout2d and Dropout3d do it to whole channels.
local args = require "mslua.args"
local core = require "mslua.core"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local M = {}

M.Dropout = Cell:extend "Dropout"

local bind = args.signature("Dropout", { { "p", "number", 0.5, min = 0, below = 1 } })

--- Sets elements to zero with probability p in training and multiplies the others by 1 / (1 - p); in evaluation it
--- gives its input: `nn.Dropout { p = 0.1 }`.
function M.Dropout:init(...) self.p = bind(...).p end

function M.Dropout:construct(x)
  if not core.training() or self.p == 0 then return x end
  return (ops.dropout(x, { p = self.p }))
end

function M.Dropout:extra() return "p = " .. self.p end

for name, dims in pairs {
  Dropout1d = { "n", "c", "l" }, Dropout2d = { "n", "c", "h", "w" }, Dropout3d = { "n", "c", "d", "h", "w" },
} do
  local ChannelDropout = Cell:extend(name)
  local bind_channels = args.signature(name, { { "p", "number", 0.5, min = 0, below = 1 } })
  ChannelDropout.doc = ("Sets whole channels of x [%s] to zero with probability p in training and multiplies the "
    .. "others by 1 / (1 - p) (Tompson et al., 2015); in evaluation it gives its input."):format(
    table.concat(dims, ", "))
  function ChannelDropout:init(...) self.p = bind_channels(...).p end
  function ChannelDropout:construct(x)
    convolution.check_rank(name, x, dims)
    if not core.training() or self.p == 0 then return x end
    local channels = { x.shape[1], x.shape[2] }
    for d = 3, #dims do channels[d] = 1 end
    return x * ops.dropout(core.full(channels, 1, x.dtype), { p = self.p })
  end
  function ChannelDropout:extra() return "p = " .. self.p end
  M[name] = ChannelDropout
end

return M
