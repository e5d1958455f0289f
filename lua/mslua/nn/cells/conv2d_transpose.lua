--- nn.Conv2dTranspose: the transpose of a convolution, from small images to large ones.
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Conv2dTranspose = Cell:extend "Conv2dTranspose"

local bind = convolution.signature("Conv2dTranspose", { "output_padding", "integer|integers", 0, min = 0 })
local pair = convolution.pair

-- Before and after each dimension: from one number, {height, width} or {top, bottom, left, right}.
local function sides(padding)
  local p = type(padding) == "table" and padding or { padding }
  if #p == 1 then return { { p[1], p[1] }, { p[1], p[1] } } end
  if #p == 2 then return { { p[1], p[1] }, { p[2], p[2] } } end
  if #p ~= 4 then errors.fail("Conv2dTranspose: padding: expected 1, 2 or 4 numbers, got %s", errors.show(p)) end
  return { { p[1], p[2] }, { p[3], p[4] } }
end

--- The transpose of a convolution, from small images to large ones: `nn.Conv2dTranspose(64, 32, 2, {stride = 2})`.
--- pad_mode: "same" gives size * stride, "valid" takes no padding, "pad" removes `padding` and adds output_padding,
--- which is less than the stride, at the bottom and right. weight [in, out / group, kh, kw].
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, output_padding, dilation, group,
--- has_bias, weight_init, bias_init
function Conv2dTranspose:init(...)
  local a = bind(...)
  self.kernel, self.stride, self.dilation = pair(a.kernel_size), pair(a.stride), pair(a.dilation)
  self.pad_mode, self.padding, self.more, self.group = a.pad_mode, sides(a.padding), pair(a.output_padding), a.group
  for _, side in ipairs { self.padding[1][1], self.padding[1][2], self.padding[2][1], self.padding[2][2] } do
    if side > 0 and a.pad_mode ~= "pad" then
      errors.fail("Conv2dTranspose: padding is %s but pad_mode is '%s': say pad_mode = 'pad'", errors.show(a.padding),
        a.pad_mode)
    end
  end
  for d = 1, 2 do
    if self.more[d] > 0 and (a.pad_mode ~= "pad" or self.more[d] >= self.stride[d]) then
      errors.fail("Conv2dTranspose: output_padding: expected less than the stride, with pad_mode = \"pad\", got %d",
        self.more[d])
    end
  end
  convolution.parameters(self, a,
    { a.in_channels, a.out_channels / a.group, self.kernel[1], self.kernel[2] })
  self.shown = ("%d -> %d, kernel %dx%d, stride %dx%d, %s"):format(a.in_channels, a.out_channels, self.kernel[1],
    self.kernel[2], self.stride[1], self.stride[2], a.pad_mode)
end

-- The size of the result along dimension d, 1 for the height.
local function size_of(self, d, size)
  local stride, extent = self.stride[d], self.dilation[d] * (self.kernel[d] - 1) + 1
  if self.pad_mode == "same" then return size * stride end
  if self.pad_mode == "valid" then return size * stride + math.max(extent - stride, 0) end
  return (size - 1) * stride + extent - self.padding[d][1] - self.padding[d][2] + self.more[d]
end

--- x [n, in, h, w] gives [n, out, p, q].
function Conv2dTranspose:construct(x)
  local shape, p = x.shape, self.padding
  local y = ops.conv2d_grad_input(x, self.weight, {
    input_size = { size_of(self, 1, shape[3]), size_of(self, 2, shape[4]) }, stride = self.stride,
    pad_mode = self.pad_mode, padding = self.pad_mode == "pad" and { p[1][1], p[1][2], p[2][1], p[2][2] } or { 0 },
    dilation = self.dilation, group = self.group,
  })
  return convolution.with_bias(self, y)
end

function Conv2dTranspose:extra() return self.shown end

return Conv2dTranspose
