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

--- Binds the arguments of a convolution's class; `after_padding` is one more field. `along`: the kinds of a size along
--- the dimensions.
---@param name string
---@param after_padding? table
---@param along? string default "integer|integers"
---@return fun(...): table
function M.signature(name, after_padding, along)
  along = along or "integer|integers"
  local fields = {
    { "in_channels", "integer", required = true, min = 1 },
    { "out_channels", "integer", required = true, min = 1 },
    { "kernel_size", along, required = true, min = 1 },
    { "stride", along, 1, min = 1 },
    { "pad_mode", "string", "same", choices = { "same", "valid", "pad" } },
    { "padding", "integer|integers", 0, min = 0 },
    { "dilation", along, 1, min = 1 },
    { "group", "integer", 1, min = 1 },
    { "has_bias", "boolean", false },
    { "weight_init", "any", { "he_uniform", negative_slope = math.sqrt(5) } },
    { "bias_init", "any" },
  }
  if after_padding then table.insert(fields, 7, after_padding) end
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
