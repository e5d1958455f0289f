--- nn.Conv2dTranspose: the transpose of a convolution, from small images to large ones.
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Conv2dTranspose = Cell:extend "Conv2dTranspose"

local bind = convolution.signature("Conv2dTranspose", 2, true)

--- The transpose of a convolution, from small images to large ones: `nn.Conv2dTranspose(64, 32, 2, {stride = 2})`.
--- As in MindSpore, pad_mode is "same" and there is no bias unless the call says so.
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, output_padding, dilation, group,
--- has_bias, weight_init, bias_init
function Conv2dTranspose:init(...)
  local a = bind(...)
  local function pair(name) return convolution.each("Conv2dTranspose: " .. name, a[name], 2) end
  local kernel = pair "kernel_size"
  self:prepare(a, kernel, pair "stride", pair "dilation", convolution.sides("Conv2dTranspose", a.padding, 2),
    pair "output_padding")
  convolution.parameters(self, a, { a.in_channels, a.out_channels / a.group, kernel[1], kernel[2] })
  self.shown = ("%d -> %d, kernel %dx%d, stride %dx%d, %s"):format(a.in_channels, a.out_channels, kernel[1],
    kernel[2], self.stride[1], self.stride[2], a.pad_mode)
end

--- Keeps the geometry along height and width; `more` is output_padding.
---@package
function Conv2dTranspose:prepare(a, kernel, stride, dilation, sides, more)
  convolution.check_padding(self.class_name, a)
  self.kernel, self.stride, self.dilation, self.padding, self.more = kernel, stride, dilation, sides, more
  self.pad_mode, self.group = a.pad_mode, a.group
  for d = 1, 2 do
    if more[d] > 0 and (a.pad_mode ~= "pad" or more[d] >= stride[d]) then
      errors.fail("%s: output_padding: expected less than the stride, with pad_mode = \"pad\", got %d",
        self.class_name, more[d])
    end
  end
end

-- The size of the result along dimension d, 1 for the height.
local function size_of(self, d, size)
  local stride, extent = self.stride[d], self.dilation[d] * (self.kernel[d] - 1) + 1
  if self.pad_mode == "same" then return size * stride end
  if self.pad_mode == "valid" then return size * stride + math.max(extent - stride, 0) end
  return (size - 1) * stride + extent - self.padding[d][1] - self.padding[d][2] + self.more[d]
end

--- The images of x [n, in, h, w] and weight [in, out / group, kh, kw], without the bias.
---@package
function Conv2dTranspose:images(x, weight)
  local shape, p = x.shape, self.padding
  local size = { size_of(self, 1, shape[3]), size_of(self, 2, shape[4]) }
  if size[1] < 1 or size[2] < 1 then
    errors.fail("%s: of images of size {%d, %d} the result would have size {%d, %d}, expected at least 1: the padding "
      .. "takes away all of it", self.class_name, shape[3], shape[4], size[1], size[2])
  end
  return ops.conv2d_grad_input(x, weight, {
    input_size = size, stride = self.stride,
    pad_mode = self.pad_mode, padding = self.pad_mode == "pad" and { p[1][1], p[1][2], p[2][1], p[2][2] } or { 0 },
    dilation = self.dilation, group = self.group,
  })
end

--- x [n, in, h, w] gives [n, out, p, q].
function Conv2dTranspose:construct(x)
  convolution.check_input(self, x, { "n", "c", "h", "w" })
  return convolution.with_bias(self, self:images(x, self.weight))
end

function Conv2dTranspose:extra() return self.shown end

return Conv2dTranspose
