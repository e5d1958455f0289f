--- nn.Conv1d: one-dimensional convolution of sequences [n, c, l].
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Conv1d = Cell:extend "Conv1d"

local bind = convolution.signature("Conv1d", 1)

--- A convolution of sequences [n, c, l]: `nn.Conv1d(40, 64, 3, {stride = 2, pad_mode = "pad", padding = 1})`.
--- As in MindSpore, pad_mode is "same" and there is no bias unless the call says so.
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
--- weight_init, bias_init
function Conv1d:init(...)
  local a = bind(...)
  convolution.check_padding("Conv1d", a)
  local sides = convolution.sides("Conv1d", a.padding, 1)[1]
  convolution.parameters(self, a, { a.out_channels, a.in_channels / a.group, a.kernel_size })
  self.op = ops.Conv2D {
    stride = { 1, a.stride }, pad_mode = a.pad_mode, padding = { 0, 0, sides[1], sides[2] },
    dilation = { 1, a.dilation }, group = a.group,
  }
  self.shown = ("%d -> %d, kernel %d, stride %d, %s"):format(a.in_channels, a.out_channels, a.kernel_size, a.stride,
    a.pad_mode)
end

--- x [n, in, l] gives [n, out, p].
function Conv1d:construct(x)
  convolution.check_input(self, x, { "n", "c", "l" })
  local shape, w = x.shape, self.weight.shape
  local y = self.op(ops.reshape(x, { shape[1], shape[2], 1, shape[3] }),
    ops.reshape(self.weight, { w[1], w[2], 1, w[3] }))
  shape = y.shape
  return convolution.with_bias(self, (ops.reshape(y, { shape[1], shape[2], shape[4] })))
end

function Conv1d:extra() return self.shown end

return Conv1d
