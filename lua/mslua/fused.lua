--- Functions of tensors that are made of several operators, each of which would go through the memory of large tensors.
local core = require "mslua.core"

-- Elements from which on a function is compiled: to trace and to look up the graph takes 20 to 40 us, and 400 us more
-- for tensors of a new shape.
local LARGE = 2 ^ 17

--- `f`, which runs as one compiled graph where it gets a large tensor, and operator by operator otherwise. The graph
--- rounds less: what is between its operators stays in float32 for 16-bit tensors, and a product and its sum round
--- once.
---@generic F: function
---@param f F of tensors and numbers; gives tensors
---@return F
return function(f)
  local compiled
  return function(...)
    for i = 1, select("#", ...) do
      local v = select(i, ...)
      if core.kind(v) == "Tensor" and v.size >= LARGE and not core.is_tracing() then
        compiled = compiled or core.compiled(f)
        return unpack((compiled(...)))
      end
    end
    return f(...)
  end
end
