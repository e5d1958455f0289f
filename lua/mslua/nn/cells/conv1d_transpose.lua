--- nn.Conv1dTranspose: the transpose of a convolution, from short sequences to long ones.
local ops = require "mslua.ops"
local convolution = require "mslua.nn.convolution"
local Conv2dTranspose = require "mslua.nn.cells.conv2d_transpose"

local Conv1dTranspose = Conv2dTranspose:extend "Conv1dTranspose"

local bind = convolution.signature("Conv1dTranspose", 1, true)

--- The transpose of a convolution, from short sequences [n, c, l] to long ones: `nn.Conv1dTranspose(64, 32, 4,
--- {stride = 2})`. As in MindSpore, pad_mode is "same" and there is no bias unless the call says so.
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, output_padding, dilation, group,
--- has_bias, weight_init, bias_init
function Conv1dTranspose:init(...)
  local a = bind(...)
  self:prepare(a, { 1, a.kernel_size }, { 1, a.stride }, { 1, a.dilation },
    { { 0, 0 }, convolution.sides("Conv1dTranspose", a.padding, 1)[1] }, { 0, a.output_padding })
  convolution.parameters(self, a, { a.in_channels, a.out_channels / a.group, a.kernel_size })
  self.shown = ("%d -> %d, kernel %d, stride %d, %s"):format(a.in_channels, a.out_channels, a.kernel_size, a.stride,
    a.pad_mode)
end

--- x [n, in, l] gives [n, out, p].
function Conv1dTranspose:construct(x)
  convolution.check_input(self, x, { "n", "c", "l" })
  local shape, w = x.shape, self.weight.shape
  local y = self:images(ops.reshape(x, { shape[1], shape[2], 1, shape[3] }),
    ops.reshape(self.weight, { w[1], w[2], 1, w[3] }))
  shape = y.shape
  return convolution.with_bias(self, (ops.reshape(y, { shape[1], shape[2], shape[4] })))
end

return Conv1dTranspose
