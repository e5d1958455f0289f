--- nn.Conv2d: two-dimensional convolution of images [n, c, h, w].
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Conv2d = Cell:extend "Conv2d"

local bind = args.signature("Conv2d", {
  { "in_channels", "integer", required = true, min = 1 },
  { "out_channels", "integer", required = true, min = 1 },
  { "kernel_size", "integer|integers", required = true, min = 1 },
  { "stride", "integer|integers", 1, min = 1 },
  { "pad_mode", "string", "same", choices = { "same", "valid", "pad" } },
  { "padding", "integer|integers", 0, min = 0 },
  { "dilation", "integer|integers", 1, min = 1 },
  { "group", "integer", 1, min = 1 },
  { "has_bias", "boolean", false },
  { "weight_init", "any", { "he_uniform", negative_slope = math.sqrt(5) } },
  { "bias_init", "any" },
})

local function pair(v)
  if type(v) == "table" then return v[1], v[2] or v[1] end
  return v, v
end

--- `nn.Conv2d(3, 64, 7, {stride = 2, pad_mode = "pad", padding = 3})`. pad_mode: "same" gives ceil(size / stride),
--- "valid" takes no padding, "pad" takes `padding` (one number, {height, width} or {top, bottom, left, right}). weight
--- [out, in / group, kh, kw] begins uniform in +-1/sqrt(fan in) (MindSpore 2); no bias unless has_bias.
---@param ... any in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
--- weight_init, bias_init
function Conv2d:init(...)
  local a = bind(...)
  if a.in_channels % a.group ~= 0 or a.out_channels % a.group ~= 0 then
    errors.fail("Conv2d: group = %d does not divide %d and %d channels", a.group, a.in_channels, a.out_channels)
  end
  local height, width = pair(a.kernel_size)
  local fan_in = a.in_channels / a.group * height * width
  self:parameter("weight", { a.out_channels, a.in_channels / a.group, height, width }, a.weight_init)
  if a.has_bias then
    self:parameter("bias", { a.out_channels }, a.bias_init or { "uniform", scale = 1 / math.sqrt(fan_in) })
  end
  self.op = ops.Conv2D {
    stride = { pair(a.stride) }, pad_mode = a.pad_mode,
    padding = type(a.padding) == "table" and a.padding or { a.padding },
    dilation = { pair(a.dilation) }, group = a.group,
  }
  local shown = height == width and height or height .. "x" .. width
  self.shown = ("%d -> %d, kernel %s, stride %s, %s"):format(a.in_channels, a.out_channels, shown, (pair(a.stride)),
    a.pad_mode)
end

--- x [n, in, h, w] gives [n, out, p, q].
function Conv2d:construct(x)
  local y = self.op(x, self.weight)
  return self.bias and y + ops.reshape(self.bias, { 1, -1, 1, 1 }) or y
end

function Conv2d:extra() return self.shown end

return Conv2d
