--- nn.Conv2d: two-dimensional convolution of images [n, c, h, w].
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Conv2d = Cell:extend "Conv2d"

local bind = convolution.signature("Conv2d", 2)

--- A convolution of images [n, c, h, w]: `nn.Conv2d(3, 64, 7, {stride = 2, pad_mode = "pad", padding = 3})`. As
--- in MindSpore, pad_mode is "same" and there is no bias unless the call says so.
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
--- weight_init, bias_init
function Conv2d:init(...)
  local a = bind(...)
  convolution.check_padding("Conv2d", a)
  convolution.sides("Conv2d", a.padding, 2)  -- checks it
  local function pair(name) return convolution.each("Conv2d: " .. name, a[name], 2) end
  local height, width = unpack(pair "kernel_size")
  convolution.parameters(self, a, { a.out_channels, a.in_channels / a.group, height, width })
  self.op = ops.Conv2D {
    stride = pair "stride", pad_mode = a.pad_mode,
    padding = type(a.padding) == "table" and a.padding or { a.padding },
    dilation = pair "dilation", group = a.group,
  }
  local shown = height == width and height or height .. "x" .. width
  self.shown = ("%d -> %d, kernel %s, stride %s, %s"):format(a.in_channels, a.out_channels, shown,
    pair "stride"[1], a.pad_mode)
end

--- x [n, in, h, w] gives [n, out, p, q].
function Conv2d:construct(x) return convolution.with_bias(self, self.op(x, self.weight)) end

function Conv2d:extra() return self.shown end

return Conv2d
