--- nn.Conv3d: three-dimensional convolution of volumes [n, c, d, h, w].
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Conv3d = Cell:extend "Conv3d"

local bind = convolution.signature("Conv3d", 3)

--- A convolution of volumes [n, c, d, h, w]: `nn.Conv3d(3, 16, 3, {stride = 2, pad_mode = "pad", padding = 1})`.
--- As in MindSpore, pad_mode is "same" and there is no bias unless the call says so. It is computed as a convolution of
--- images: the planes under the kernel's depth become channels of one image, which takes kd times the memory of x.
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
--- weight_init, bias_init
function Conv3d:init(...)
  local a = bind(...)
  convolution.check_padding("Conv3d", a)
  local kernel, stride, dilation = convolution.each("Conv3d: kernel_size", a.kernel_size, 3),
    convolution.each("Conv3d: stride", a.stride, 3), convolution.each("Conv3d: dilation", a.dilation, 3)
  local sides = convolution.sides("Conv3d", a.padding, 3)
  convolution.parameters(self, a, { a.out_channels, a.in_channels / a.group, kernel[1], kernel[2], kernel[3] })
  self.depth = { kernel = kernel[1], stride = stride[1], dilation = dilation[1], sides = sides[1],
    pad_mode = a.pad_mode }
  self.op = ops.Conv2D {
    stride = { stride[2], stride[3] }, pad_mode = a.pad_mode,
    padding = { sides[2][1], sides[2][2], sides[3][1], sides[3][2] }, dilation = { dilation[2], dilation[3] },
    group = a.group,
  }
  self.shown = ("%d -> %d, kernel %s, stride %s, %s"):format(a.in_channels, a.out_channels,
    table.concat(kernel, "x"), table.concat(stride, "x"), a.pad_mode)
end

-- The padding before and after `size` planes, and how many windows there are.
local function places_along(self, size)
  local d = self.depth
  local extent, before, after = d.dilation * (d.kernel - 1) + 1, 0, 0
  if d.pad_mode == "pad" then
    before, after = unpack(d.sides)
  elseif d.pad_mode == "same" then
    local missing = math.max(0, (math.ceil(size / d.stride) - 1) * d.stride + extent - size)
    before = math.floor(missing / 2)
    after = missing - before
  end
  local places = math.floor((size + before + after - extent) / d.stride) + 1
  if places < 1 then
    errors.fail("Conv3d: a kernel of depth %d does not fit into %d planes with this padding and dilation", d.kernel,
      size)
  end
  return before, after, places
end

-- x [n, d, c, h, w] as the images [n * places, c * kernel, h, w]: each plane's channels beside those of its neighbours
-- under the kernel.
local function images(self, x, before, after, places)
  local d, shape = self.depth, x.shape
  if before + after > 0 then x = ops.pad(x, { low = { 0, before, 0, 0, 0 }, high = { 0, after, 0, 0, 0 } }) end
  local taps = {}
  for k = 0, d.kernel - 1 do
    local first = k * d.dilation + 1
    local tap = ops.strided_slice(x, { 1, first }, { shape[1] + 1, first + (places - 1) * d.stride + 1 },
      { 1, d.stride })
    taps[k + 1] = ops.reshape(tap, { shape[1], places, shape[3], 1, shape[4], shape[5] })
  end
  local all = d.kernel == 1 and taps[1] or ops.concat(taps, { axis = 4 })
  return (ops.reshape(all, { shape[1] * places, shape[3] * d.kernel, shape[4], shape[5] }))
end

--- x [n, in, d, h, w] gives [n, out, o, p, q].
function Conv3d:construct(x)
  convolution.check_input(self, x, { "n", "c", "d", "h", "w" })
  local w, before, after, places = self.weight.shape, places_along(self, x.shape[3])
  local planes = images(self, ops.transpose(x, { 1, 3, 2, 4, 5 }), before, after, places)
  local y = self.op(planes, ops.reshape(self.weight, { w[1], w[2] * w[3], w[4], w[5] }))
  local shape = y.shape
  y = ops.transpose(ops.reshape(y, { x.shape[1], places, shape[2], shape[3], shape[4] }), { 1, 3, 2, 4, 5 })
  return convolution.with_bias(self, y)
end

function Conv3d:extra() return self.shown end

return Conv3d
