--- What `x.shape` gives: a list of numbers that prints as {2, 3} and is equal to another shape of the same numbers.
local core = require "mslua.core"

local Shape = core.shape_metatable

Shape.__metatable = false  -- a shape is a plain list to callers of getmetatable

function Shape.__tostring(shape) return "{" .. table.concat(shape, ", ") .. "}" end

function Shape.__concat(a, b) return tostring(a) .. tostring(b) end

function Shape.__eq(a, b)
  if #a ~= #b then return false end
  for i, size in ipairs(a) do
    if b[i] ~= size then return false end
  end
  return true
end

return Shape
