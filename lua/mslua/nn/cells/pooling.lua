--- nn.MaxPool2d, AvgPool2d, AdaptiveAvgPool2d: windows over images [n, c, h, w].
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local M = {}

local function list(v) return type(v) == "table" and v or { v } end

-- The windows along a dimension of `size`, as PyTorch places them: their number, the padding before and behind it, and
-- `extra`, what the last window reaches over that (ceil_mode).
local function windows(size, kernel, stride, first, last)
  local rest = size + first + last - kernel
  local places = math.floor(rest / stride) + 1
  if rest % stride ~= 0 and places * stride < size + first then places = places + 1 end
  return { first = first, last = last, extra = math.max(0, (places - 1) * stride - rest), places = places }
end

-- The kernel's elements for each element of a window that counts: [1, 1, p, q]. `padded`: those of the padding do too.
local function shares(size, along, kernel, stride, padded)
  local function covered(d, i)
    local begin = i * stride[d] - along[d].first
    local low, high = padded and -along[d].first or 0, size[d] + (padded and along[d].last or 0)
    return math.min(begin + kernel[d], high) - math.max(begin, low)
  end
  local flat = {}
  for i = 0, along[1].places - 1 do
    for j = 0, along[2].places - 1 do flat[#flat + 1] = kernel[1] * kernel[2] / covered(1, i) / covered(2, j) end
  end
  return core.tensor(flat, "float64", { 1, 1, along[1].places, along[2].places })
end

local function pair(v) return { v[1], v[2] or v[1] } end

-- The padding as {top, bottom, left, right}.
local function sides(padding)
  if #padding == 4 then return padding end
  local p = pair(padding)
  return { p[1], p[1], p[2], p[2] }
end

local parameters = {
  { "kernel_size", "integer|integers", 1, min = 1 },
  { "stride", "integer|integers", nil, min = 1 },
  { "pad_mode", "string", "valid", choices = { "valid", "same", "pad" } },
  { "padding", "integer|integers", 0, min = 0 },
  { "ceil_mode", "boolean", false },
}

-- As PyTorch's, and unlike MindSpore's (1), the stride defaults to the kernel size.
local function init(self, a, operator)
  self.kernel_size, self.stride = list(a.kernel_size), list(a.stride or a.kernel_size)
  self.pad_mode, self.padding, self.ceil_mode = a.pad_mode, list(a.padding), a.ceil_mode
  if a.ceil_mode and a.pad_mode == "same" then
    errors.fail('%s: ceil_mode: pad_mode "same" has ceil(size / stride) windows as it is: leave ceil_mode out',
      self.class_name)
  end
  self.operator = ops[operator]
  self.op = self.operator {
    kernel_size = self.kernel_size, stride = self.stride, pad_mode = a.pad_mode, padding = self.padding,
    count_include_pad = a.count_include_pad,
  }
end

-- The operator with the padding that makes the last windows whole, and the windows along height and width.
local function placed(self, x)
  local padding = self.pad_mode == "pad" and sides(self.padding) or { 0, 0, 0, 0 }
  local kernel, stride, along = pair(self.kernel_size), pair(self.stride), {}
  for d = 1, 2 do
    along[d] = windows(x.shape[d + 2], kernel[d], stride[d], padding[2 * d - 1], padding[2 * d])
  end
  local op = self.op
  if along[1].extra + along[2].extra > 0 then
    op = self.operator {
      kernel_size = kernel, stride = stride, pad_mode = "pad",
      padding = { padding[1], padding[2] + along[1].extra, padding[3], padding[4] + along[2].extra },
    }
  end
  return op, along, kernel, stride
end

local function extra(self)
  return ("kernel %s, stride %s"):format(table.concat(self.kernel_size, "x"), table.concat(self.stride, "x"))
end

M.MaxPool2d = Cell:extend "MaxPool2d"
local bind_max = args.signature("MaxPool2d", parameters)

--- The largest element under each window. ceil_mode: the last window may reach over the end, as long as it begins in
--- the image or the padding before it. (kernel_size, stride = kernel_size, pad_mode = "valid", padding = 0, ceil_mode)
function M.MaxPool2d:init(...) init(self, bind_max(...), "MaxPool") end

function M.MaxPool2d:construct(x)
  if not self.ceil_mode or #x.shape ~= 4 then return self.op(x) end
  return (placed(self, x))(x)
end

M.MaxPool2d.extra = extra

M.AvgPool2d = Cell:extend "AvgPool2d"
local bind_average = args.signature("AvgPool2d", { parameters[1], parameters[2], parameters[3], parameters[4],
  parameters[5], { "count_include_pad", "boolean", true } })

--- The mean under each window. ceil_mode: as of nn.MaxPool2d; what lies behind the padding does not count.
--- count_include_pad: the zeros of `padding` count. (kernel_size, stride = kernel_size, pad_mode = "valid",
--- padding = 0, ceil_mode, count_include_pad = true)
function M.AvgPool2d:init(...)
  local a = bind_average(...)
  init(self, a, "AvgPool")
  self.count_include_pad = a.count_include_pad
end

function M.AvgPool2d:construct(x)
  if not self.ceil_mode or #x.shape ~= 4 then return self.op(x) end
  local op, along, kernel, stride = placed(self, x)
  if op == self.op then return op(x) end
  local size = { x.shape[3], x.shape[4] }
  return op(x) * ops.cast(shares(size, along, kernel, stride, self.count_include_pad), x.dtype)
end

M.AvgPool2d.extra = extra

M.AdaptiveAvgPool2d = Cell:extend "AdaptiveAvgPool2d"
local bind_adaptive = args.signature("AdaptiveAvgPool2d",
  { { "output_size", "integer|integers", required = true, min = 1 } })

--- Means that give images of `output_size`, whatever their size was; sizes must divide.
function M.AdaptiveAvgPool2d:init(...)
  self.output_size = list(bind_adaptive(...).output_size)
end

function M.AdaptiveAvgPool2d:construct(x) return ops.adaptive_avg_pool2d(x, { output_size = self.output_size }) end

function M.AdaptiveAvgPool2d:extra() return table.concat(self.output_size, "x") end

return M
