--- ops.pad with other padding than one value: made of slices of x that are put around it.
local args = require "mslua.args"
local axis_part = require "mslua.axis_part"
local errors = require "mslua.errors"

local modes = {
  { "constant", "value; with `interior` also between elements" },
  { "reflect", "x mirrored at its first and last element, which are not repeated" },
  { "symmetric", "x mirrored at its edges: the first and last element are repeated" },
  { "replicate", "the first or last element" },
  { "circular", "the elements of the other end" },
}
local names, texts = {}, {}
for i, mode in ipairs(modes) do names[i], texts[i] = mode[1], ('"%s": %s'):format(mode[1], mode[2]) end

local bind = args.signature("pad", {
  { "x", "operand", required = true, doc = "the tensor" },
  { "low", "integers", {}, min = 0, doc = "elements before each dimension; none: 0" },
  { "high", "integers", {}, min = 0, doc = "elements after each dimension; none: 0" },
  { "interior", "integers", {}, min = 0, doc = 'elements between two neighbours; none: 0; mode "constant" only' },
  { "value", "number", 0, doc = 'what the padding is, mode "constant" only' },
  { "mode", "string", "constant", choices = names,
    doc = "what the padding is. " .. table.concat(texts, "; ") },
})

--- Gives ms.ops.pad its modes.
---@param ops table ms.ops under construction
return function(ops)
  local pad = ops.pad

  local function part(...) return axis_part(ops, ...) end

  -- What stands before and after an axis of `size` elements, for each mode.
  local around = {
    reflect = function(x, axis, size, low, high)
      return low > 0 and ops.reverse(part(x, axis, 2, low + 1), { axis }),
        high > 0 and ops.reverse(part(x, axis, size - high, size - 1), { axis })
    end,
    symmetric = function(x, axis, size, low, high)
      return low > 0 and ops.reverse(part(x, axis, 1, low), { axis }),
        high > 0 and ops.reverse(part(x, axis, size - high + 1, size), { axis })
    end,
    replicate = function(x, axis, size, low, high)
      local function copies(at, count)
        local shape = x.shape
        shape[axis] = count
        return ops.broadcast_to(part(x, axis, at, at), shape)
      end
      return low > 0 and copies(1, low), high > 0 and copies(size, high)
    end,
    circular = function(x, axis, size, low, high)
      return low > 0 and part(x, axis, size - low + 1, size), high > 0 and part(x, axis, 1, high)
    end,
  }

  -- The most elements that a mode can put at one end of an axis.
  local function most(mode, size)
    if mode == "replicate" then return size > 0 and math.huge or 0 end
    return mode == "reflect" and math.max(size - 1, 0) or size
  end

  local function pad_axis(x, axis, mode, low, high)
    if low == 0 and high == 0 then return x end
    local size = x.shape[axis]
    if math.max(low, high) > most(mode, size) then
      errors.fail('pad: mode "%s" can put at most %d elements at each end of axis %d of x, %s; got low %d, high %d',
        mode, most(mode, size), axis, errors.show(x.shape), low, high)
    end
    local before, after = around[mode](x, axis, size, low, high)
    local parts = { x }
    if before then table.insert(parts, 1, before) end
    if after then parts[#parts + 1] = after end
    return (ops.concat(parts, axis))
  end

  --- x [..] with elements around it: dimension d gets low[d] before, high[d] after. Mode "constant" (the default) takes
  --- `value` for them, and puts interior[d] between two elements. "reflect" is the mode of PyTorch's ReflectionPad and
  --- MindSpore's REFLECT, "symmetric" that of MindSpore's SYMMETRIC, "replicate" and "circular" are PyTorch's.
  --- (x, low, high, interior, value = 0, mode = "constant")
  function ops.pad(...)
    local _, list = ...
    if select("#", ...) == 2 and type(list) == "table" and list[1] ~= nil then
      errors.fail("pad: expected low and high, lists of a number for each dimension, or their names, got one list %s: "
        .. "pad(x, low, high) or pad(x, { low = .., high = .. }); MindSpore's and PyTorch's { 1, 2 } of a matrix is "
        .. "low = { 0, 1 }, high = { 0, 2 }", errors.show(list))
    end
    local a = bind(...)
    if a.mode == "constant" then return pad(a.x, a.low, a.high, a.interior, a.value) end
    if #a.interior > 0 or a.value ~= 0 then
      errors.fail('pad: interior and value are for mode "constant": leave them out with mode "%s"', a.mode)
    end
    local rank = #a.x.shape
    for name, list in pairs { low = a.low, high = a.high } do
      if #list > 0 and #list ~= rank then
        errors.fail("pad: %s: expected %d numbers, one for each dimension of x, %s; got %s", name, rank,
          errors.show(a.x.shape), errors.show(list))
      end
    end
    local x = a.x
    for axis = 1, rank do x = pad_axis(x, axis, a.mode, a.low[axis] or 0, a.high[axis] or 0) end
    return x
  end
end
