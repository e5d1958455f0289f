--- nn.Dropout1d, Dropout2d and Dropout3d: zeros for whole channels with probability p in training; identity otherwise.
local args = require "mslua.args"
local core = require "mslua.core"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local M = {}

for name, dims in pairs {
  Dropout1d = { "n", "c", "l" }, Dropout2d = { "n", "c", "h", "w" }, Dropout3d = { "n", "c", "d", "h", "w" },
} do
  local ChannelDropout = Cell:extend(name)
  local bind = args.signature(name, {
    { "p", "number", 0.5, min = 0, below = 1, doc = "the probability that a channel becomes zero, in training" },
  })
  ChannelDropout.doc = ("Sets whole channels of x [%s] to zero with probability p in training and multiplies the "
    .. "others by 1 / (1 - p) (Tompson et al., 2015); in evaluation it gives its input."):format(
    table.concat(dims, ", "))
  function ChannelDropout:init(...) self.p = bind(...).p end
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
