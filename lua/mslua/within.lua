--- within(what, x, least, most, where): an error where an element of an integer tensor is not from `least` to `most`.
--- The values of a network that is traced are not known: its operators check them.
local core = require "mslua.core"
local errors = require "mslua.errors"

---@param what string begins the message
---@param x Value
---@param least integer
---@param most integer
---@param where? string follows the range
return function(what, x, least, most, where)
  if core.is_tracing() or core.kind(x) ~= "Tensor" or x.size == 0 then return end
  local low, high = x:min():item(), x:max():item()
  if low >= least and high <= most then return end
  errors.fail("%s: expected %d to %d%s, got %d", what, least, most, where or "", low < least and low or high)
end
