--- What convolutions share: their arguments, their bias.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"

local M = {}

--- Height and width, or what else is in a row: one number for all of them or a list of n.
---@param name string of the class and the argument, for messages: "Conv3d: stride"
---@param v integer|integer[]
---@param n integer
---@return integer[]
function M.each(name, v, n)
  local list, each = type(v) == "table" and v or { v }, {}
  if #list ~= 1 and #list ~= n then errors.fail("%s: expected one number or %d, got %s", name, n, errors.show(v)) end
  for i = 1, n do each[i] = list[i] or list[1] end
  return each
end

--- Before and after each of n dimensions: of one number, of one number a dimension, or of two.
---@param name string of the class
---@param padding integer|integer[]
---@param n integer
---@return integer[][] {{before, after}, ...}
function M.sides(name, padding, n)
  local p, sides = type(padding) == "table" and padding or { padding }, {}
  if #p ~= 1 and #p ~= n and #p ~= 2 * n then
    local counts = n == 1 and "1 or 2" or ("1, %d or %d"):format(n, 2 * n)
    errors.fail("%s: padding: expected %s numbers, got %s", name, counts, errors.show(p))
  end
  for d = 1, n do
    if #p == 2 * n then
      sides[d] = { p[2 * d - 1], p[2 * d] }
    else
      sides[d] = { p[d] or p[1], p[d] or p[1] }
    end
  end
  return sides
end

--- Fails where a padding is given that pad_mode does not take.
---@param name string of the class
---@param a table pad_mode, padding
function M.check_padding(name, a)
  for _, n in ipairs(type(a.padding) == "table" and a.padding or { a.padding }) do
    if n > 0 and a.pad_mode ~= "pad" then
      errors.fail("%s: padding is %s but pad_mode is '%s': say pad_mode = 'pad'", name, errors.show(a.padding),
        a.pad_mode)
    end
  end
end

--- Fails unless x has as many dimensions as `dims` names.
---@param name string of the class
---@param x Tensor
---@param dims string[] {"n", "c", "l"}
function M.check_rank(name, x, dims)
  if #x.shape ~= #dims then
    errors.fail("%s: x: expected [%s], got %s", name, table.concat(dims, ", "), errors.show(x.shape))
  end
end

--- The same of a convolution's x, and of its channels.
---@param cell Cell
---@param x Value
---@param dims string[] {"n", "c", "h", "w"}
function M.check_input(cell, x, dims)
  M.check_rank(cell.class_name, x, dims)
  if x.shape[2] ~= cell.in_channels then
    errors.fail("%s: x: expected %d channels, the second dimension, got %s", cell.class_name, cell.in_channels,
      errors.show(x.shape))
  end
end

local PER_DIMENSION = { "", ": one number or {height, width}", ": one number or {depth, height, width}" }
local PER_SIDE = { "one number or {before, after}", "one number, {height, width} or {top, bottom, left, right}",
  "one number, {depth, height, width} or {head, tail, top, bottom, left, right}" }

--- What the numbers of a key are that has one for each dimension that a window moves along.
---@param dims integer 1 for sequences, 2 for images, 3 for volumes
---@return string ": one number or {height, width}"; empty for one dimension
function M.per_dimension(dims) return PER_DIMENSION[dims] end

--- The meaning of `padding` for windows along `dims` dimensions.
---@param dims integer
---@param what string that there are on each side: "zeros"
---@return string
function M.padding_doc(dims, what)
  return ('%s on each side, with pad_mode "pad" only: %s'):format(what, PER_SIDE[dims])
end

local WEIGHTS = { "[%s, k]", "[%s, kh, kw]", "[%s, kd, kh, kw]" }

--- Binds the arguments of a convolution's class.
---@param name string
---@param dims integer 1 for sequences, 2 for images, 3 for volumes
---@param transposed? boolean the class is the transpose of a convolution
---@return fun(...): table
function M.signature(name, dims, transposed)
  local along, each = dims == 1 and "integer" or "integer|integers", PER_DIMENSION[dims]
  local weight = WEIGHTS[dims]:format(transposed and "in, out / group" or "out, in / group")
  local fields = {
    { "in_channels", "integer", required = true, min = 1, doc = "channels of x; a multiple of group" },
    { "out_channels", "integer", required = true, min = 1, doc = "channels of the result; a multiple of group" },
    { "kernel_size", along, required = true, min = 1, doc = "the kernel's size" .. each },
    { "stride", along, 1, min = 1,
      doc = (transposed and "elements of the result from one element of x to the next"
        or "elements of x from one position of the kernel to the next") .. each },
    { "pad_mode", "string", "same", choices = { "same", "valid", "pad" },
      doc = transposed and '"same": the result has size * stride elements; "valid": nothing is removed, and a '
        .. "stride above the kernel's extent leaves as much behind the last element as between two; \"pad\": "
        .. "`padding` elements are removed on each side, as in PyTorch"
        or '"same": zeros around x so that the result has ceil(size / stride) elements; "valid": no zeros; "pad": '
        .. "`padding` zeros on each side, as in PyTorch" },
    { "padding", "integer|integers", 0, min = 0,
      doc = M.padding_doc(dims, transposed and "elements of the result that are removed" or "zeros") },
    { "dilation", along, 1, min = 1, doc = "elements from one element of the kernel to the next" .. each },
    { "group", "integer", 1, min = 1,
      doc = "groups of channels that are convolved separately; it divides in_channels and out_channels" },
    { "has_bias", "boolean", false, doc = "a bias [out] is added; PyTorch's default is true" },
    { "weight_init", "initializer", { "he_uniform", negative_slope = math.sqrt(5) },
      doc = ("the initial weight %s; default: uniform in +-1/sqrt(fan in), as in MindSpore 2"):format(weight) },
    { "bias_init", "initializer", doc = "the initial bias [out]; default: uniform in +-1/sqrt(fan in)" },
  }
  if transposed then
    table.insert(fields, 7, { "output_padding", along, 0, min = 0,
      doc = 'elements added at the end of the result, less than the stride, with pad_mode "pad" only' .. each })
  end
  local bind = args.signature(name, fields)
  return function(...)
    local a = bind(...)
    if a.in_channels % a.group ~= 0 or a.out_channels % a.group ~= 0 then
      errors.fail("%s: group = %d does not divide %d and %d channels", name, a.group, a.in_channels, a.out_channels)
    end
    return a
  end
end

--- The weight of that shape and, when it is asked for, the bias, which begins uniform in +-1/sqrt(fan in).
---@param cell Cell
---@param a table what the signature gave
---@param shape integer[] [.., .. / group, kh, kw]
function M.parameters(cell, a, shape)
  cell.in_channels = a.in_channels
  cell:parameter("weight", shape, a.weight_init)
  if a.has_bias then
    local fan_in = 1
    for d = 2, #shape do fan_in = fan_in * shape[d] end
    cell:parameter("bias", { a.out_channels }, a.bias_init or { "uniform", scale = 1 / math.sqrt(fan_in) })
  end
end

--- y [n, out, ..] with the cell's bias.
function M.with_bias(cell, y)
  if not cell.bias then return y end
  local shape = { 1, -1 }
  for d = 3, #y.shape do shape[d] = 1 end
  return y + ops.reshape(cell.bias, shape)
end

return M
