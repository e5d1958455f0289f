--- Functions of 16-bit floats in float32, where a value on the way to the result is beyond 16 bits.
local M = {}

local function is_narrow(x) return x.dtype == "float16" or x.dtype == "bfloat16" end

--- x, as float32 where it is a 16-bit float.
---@param x Tensor
---@return Tensor
function M.wide(x) return is_narrow(x) and x:astype "float32" or x end

--- f, which gets 16-bit floats as float32, and whose result is rounded once, to the type of its first argument.
--- Operands of different types stay as they are: f's operators refuse them.
---@param f fun(...): Tensor of tensors and numbers
---@return fun(...): Tensor
function M.widened(f)
  return function(x, ...)
    if not is_narrow(x) then return f(x, ...) end
    local dtype, wide = x.dtype, { M.wide(x) }
    for i = 1, select("#", ...) do
      local v = select(i, ...)
      if type(v) ~= "number" and v.dtype ~= dtype then return f(x, ...) end
      wide[i + 1] = type(v) == "number" and v or M.wide(v)
    end
    return f(unpack(wide)):astype(dtype)
  end
end

return M
