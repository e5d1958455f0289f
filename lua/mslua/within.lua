--- within(ops, what, x, least, most, where): x, whose elements are from `least` to `most`; an error where one is not.
--- The values of a network that is traced are not known: there gather, which checks its indices, gives them.
local core = require "mslua.core"
local errors = require "mslua.errors"

---@param ops table ms.ops
---@param what string begins the message
---@param x Value an integer tensor
---@param least integer
---@param most integer
---@param where? string follows the range
---@return Value
return function(ops, what, x, least, most, where)
  if core.is_tracing() then
    return ops.cast(ops.gather(ops.iota { size = most - least + 1, start = least }, x - least), x.dtype)
  end
  if x.size == 0 then return x end
  local low, high = ops.reduce_min(x):item(), ops.reduce_max(x):item()
  if low < least or high > most then
    errors.fail("%s: expected %d to %d%s, got %d", what, least, most, where or "", low < least and low or high)
  end
  return x
end
