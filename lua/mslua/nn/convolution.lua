--- What nn.Conv2d and nn.Conv2dTranspose share: their arguments, their bias.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"

local M = {}

--- Height and width: of one number or of {height, width}.
---@param v integer|integer[]
---@return integer[]
function M.pair(v)
  if type(v) == "table" then return { v[1], v[2] or v[1] } end
  return { v, v }
end

--- Binds the arguments of a convolution's class; `after_padding` is one more field.
---@param name string
---@param after_padding? table
---@return fun(...): table
function M.signature(name, after_padding)
  local fields = {
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
    local fan_in = shape[2] * shape[3] * shape[4]
    cell:parameter("bias", { a.out_channels }, a.bias_init or { "uniform", scale = 1 / math.sqrt(fan_in) })
  end
end

--- Images y [n, out, h, w] with the cell's bias.
function M.with_bias(cell, y) return cell.bias and y + ops.reshape(cell.bias, { 1, -1, 1, 1 }) or y end

return M
