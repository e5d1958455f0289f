--- nn.MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, AdaptiveMaxPool2d: windows over images [n, c, h, w], and the same over
--- sequences [n, c, l] (1d) and volumes [n, c, d, h, w] (3d).
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

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

-- The arguments of windows along `dims` dimensions; `mean`: of AvgPool.
local function fields_of(dims, mean)
  local along, each = dims == 1 and "integer" or "integer|integers", convolution.per_dimension(dims)
  return {
    { "kernel_size", along, 1, min = 1, doc = "the window's size" .. each },
    { "stride", along, nil, min = 1,
      doc = "elements from one window to the next" .. each
        .. "; default: kernel_size, as in PyTorch (in MindSpore 1)" },
    { "pad_mode", "string", "valid", choices = { "valid", "same", "pad" },
      doc = '"valid": only windows inside x; "same": ceil(size / stride) windows; "pad": `padding` on each side' },
    { "padding", "integer|integers", 0, min = 0,
      doc = convolution.padding_doc(dims, mean and "zeros" or "positions that never win") },
    { "ceil_mode", "boolean", false,
      doc = "the last window may reach over the end, as long as it begins in x or in the padding before it; not with "
        .. 'pad_mode "same"' },
    mean and { "count_include_pad", "boolean", true, doc = "true: the zeros of `padding` count in the mean" } or nil,
  }
end

-- As PyTorch's, and unlike MindSpore's (1), the stride defaults to the kernel size.
local function init(self, a, operator)
  local name = self.class_name
  convolution.check_padding(name, a)
  -- These check how many numbers there are.
  convolution.sides(name, a.padding, 2)
  convolution.each(name .. ": kernel_size", a.kernel_size, 2)
  convolution.each(name .. ": stride", a.stride or a.kernel_size, 2)
  self.kernel_size, self.stride = list(a.kernel_size), list(a.stride or a.kernel_size)
  self.pad_mode, self.padding, self.ceil_mode = a.pad_mode, list(a.padding), a.ceil_mode
  if a.ceil_mode and a.pad_mode == "same" then
    errors.fail('%s: ceil_mode: pad_mode "same" has ceil(size / stride) windows as it is: leave ceil_mode out',
      name)
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
local bind_max = args.signature("MaxPool2d", fields_of(2))

--- The largest element under each window of images [n, c, h, w]. (kernel_size, stride = kernel_size, pad_mode =
--- "valid", padding = 0, ceil_mode)
function M.MaxPool2d:init(...) init(self, bind_max(...), "MaxPool") end

function M.MaxPool2d:construct(x)
  if not self.ceil_mode or #x.shape ~= 4 then return self.op(x) end
  return (placed(self, x))(x)
end

M.MaxPool2d.extra = extra

M.AvgPool2d = Cell:extend "AvgPool2d"
local bind_average = args.signature("AvgPool2d", fields_of(2, true))

--- The mean under each window of images [n, c, h, w]. What a window of ceil_mode covers behind the padding does not
--- count. (kernel_size, stride = kernel_size, pad_mode = "valid", padding = 0, ceil_mode, count_include_pad = true)
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

-- Arguments of windows over sequences, as those of images of one row.
local function of_sequences(name, a)
  local sides = convolution.sides(name, a.padding, 1)[1]
  convolution.check_padding(name, a)
  a.kernel_size, a.stride = { 1, a.kernel_size }, { 1, a.stride or a.kernel_size }
  a.padding = { 0, 0, sides[1], sides[2] }
  return a
end

-- What a cell over images makes of x [n, c, l].
local function over_sequences(self, construct, x)
  convolution.check_rank(self.class_name, x, { "n", "c", "l" })
  local shape = x.shape
  shape = { shape[1], shape[2], 1, shape[3] }
  local y = construct(self, ops.reshape(x, shape))
  shape = y.shape
  return (ops.reshape(y, { shape[1], shape[2], shape[4] }))
end

local function extra_of_sequences(self)
  return ("kernel %d, stride %d"):format(self.kernel_size[2], self.stride[2])
end

M.MaxPool1d = M.MaxPool2d:extend "MaxPool1d"
local bind_max1 = args.signature("MaxPool1d", fields_of(1))

--- The largest element under each window of sequences [n, c, l]. (kernel_size, stride = kernel_size, pad_mode =
--- "valid", padding = 0, ceil_mode)
function M.MaxPool1d:init(...) init(self, of_sequences("MaxPool1d", bind_max1(...)), "MaxPool") end
function M.MaxPool1d:construct(x) return over_sequences(self, M.MaxPool2d.construct, x) end
M.MaxPool1d.extra = extra_of_sequences

M.AvgPool1d = M.AvgPool2d:extend "AvgPool1d"
local bind_average1 = args.signature("AvgPool1d", fields_of(1, true))

--- The mean under each window of sequences [n, c, l]. What a window of ceil_mode covers behind the padding does not
--- count. (kernel_size, stride = kernel_size, pad_mode = "valid", padding = 0, ceil_mode, count_include_pad = true)
function M.AvgPool1d:init(...)
  local a = bind_average1(...)
  init(self, of_sequences("AvgPool1d", a), "AvgPool")
  self.count_include_pad = a.count_include_pad
end
function M.AvgPool1d:construct(x) return over_sequences(self, M.AvgPool2d.construct, x) end
M.AvgPool1d.extra = extra_of_sequences

-- Windows over volumes: first over the planes' height and width, then over the depth. Maxima of maxima and means of
-- means of windows are those of the whole windows.
local function init_volumes(self, a, Pool)
  local name = self.class_name
  convolution.check_padding(name, a)
  local kernel = convolution.each(name .. ": kernel_size", a.kernel_size, 3)
  local stride = a.stride and convolution.each(name .. ": stride", a.stride, 3) or kernel
  local p = convolution.sides(name, a.padding, 3)
  local function pool(size, step, padding)
    return Pool {
      kernel_size = size, stride = step, pad_mode = a.pad_mode, padding = padding, ceil_mode = a.ceil_mode,
      count_include_pad = a.count_include_pad,
    }
  end
  -- Not as fields: they are no cells of the network.
  rawset(self, "planes",
    pool({ kernel[2], kernel[3] }, { stride[2], stride[3] }, { p[2][1], p[2][2], p[3][1], p[3][2] }))
  rawset(self, "depth", pool({ kernel[1], 1 }, { stride[1], 1 }, { p[1][1], p[1][2], 0, 0 }))
  self.kernel_size, self.stride = kernel, stride
end

local function over_volumes(self, x)
  convolution.check_rank(self.class_name, x, { "n", "c", "d", "h", "w" })
  local n, c, d, h, w = unpack(x.shape)
  local y = self.planes(ops.reshape(x, { n, c * d, h, w }))
  local p, q = y.shape[3], y.shape[4]
  y = self.depth(ops.reshape(y, { n, c, d, p * q }))
  return (ops.reshape(y, { n, c, y.shape[3], p, q }))
end

M.MaxPool3d = Cell:extend "MaxPool3d"
local bind_max3 = args.signature("MaxPool3d", fields_of(3))

--- The largest element under each window of volumes [n, c, d, h, w]. (kernel_size, stride = kernel_size, pad_mode =
--- "valid", padding = 0, ceil_mode)
function M.MaxPool3d:init(...) init_volumes(self, bind_max3(...), M.MaxPool2d) end
M.MaxPool3d.construct = over_volumes
M.MaxPool3d.extra = extra

M.AvgPool3d = Cell:extend "AvgPool3d"
local bind_average3 = args.signature("AvgPool3d", fields_of(3, true))

--- The mean under each window of volumes [n, c, d, h, w]. What a window of ceil_mode covers behind the padding does
--- not count. (kernel_size, stride = kernel_size, pad_mode = "valid", padding = 0, ceil_mode, count_include_pad = true)
function M.AvgPool3d:init(...) init_volumes(self, bind_average3(...), M.AvgPool2d) end
M.AvgPool3d.construct = over_volumes
M.AvgPool3d.extra = extra

-- Sizes of results: -1 stands for the input's.
local function check_sizes(v)
  local sizes = list(v)
  local fits = #sizes == 1 or #sizes == 2
  for _, size in ipairs(sizes) do fits = fits and (size == -1 or size >= 1) end
  if not fits then
    return ("expected one or two sizes of at least 1, or -1 for the input's, got %s"):format(errors.show(v))
  end
end
local image_size = { "output_size", "integer|integers", required = true, check = check_sizes,
  doc = "the result's size: one number or {height, width}; -1 keeps the input's" }
local sequence_size = { "output_size", "integer", required = true, min = 1, doc = "the result's length" }

local function over_pieces(self, x, operator)
  local sizes = pair(self.output_size)
  for d = 1, 2 do
    if sizes[d] == -1 then sizes[d] = x.shape[d + 2] end
  end
  local height, width = x.shape[3] / sizes[1], x.shape[4] / sizes[2]
  if operator == ops.adaptive_max_pool2d and height % 1 == 0 and width % 1 == 0 and height * width > 0 then
    return (ops.max_pool2d(x, { kernel_size = { height, width }, stride = { height, width } }))
  end
  return operator(x, { output_size = sizes })
end
local function extra_of_sizes(self) return table.concat(self.output_size, "x") end

for name, operator in pairs { AdaptiveAvgPool = "adaptive_avg_pool2d", AdaptiveMaxPool = "adaptive_max_pool2d" } do
  local what = operator:find "max" and "The largest elements" or "Means"
  local name2, name1 = name .. "2d", name .. "1d"
  local Images, Sequences = Cell:extend(name2), Cell:extend(name1)
  local bind2, bind1 = args.signature(name2, { image_size }), args.signature(name1, { sequence_size })

  Images.doc = what .. " of windows that give images of output_size, {height, width} or one number for both, whatever "
    .. "their size was; -1 keeps the input's size. Where the sizes do not divide, windows differ by one and overlap, "
    .. "as PyTorch's."
  function Images:init(...) self.output_size = list(bind2(...).output_size) end
  function Images:construct(x)
    convolution.check_rank(name2, x, { "n", "c", "h", "w" })
    return over_pieces(self, x, ops[operator])
  end
  Images.extra = extra_of_sizes

  Sequences.doc = what .. " of windows that give sequences [n, c, output_size] of [n, c, l], whatever l is."
  function Sequences:init(...) self.output_size = { 1, bind1(...).output_size } end
  function Sequences:construct(x)
    return over_sequences(self, function(_, images) return over_pieces(self, images, ops[operator]) end, x)
  end
  function Sequences:extra() return tostring(self.output_size[2]) end
  M[name2], M[name1] = Images, Sequences
end

return M
