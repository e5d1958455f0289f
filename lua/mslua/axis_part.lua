--- A part of an axis.

---@param ops table ms.ops
---@param x Tensor
---@param axis integer from 1
---@param first integer the first element of the part, from 1
---@param last integer the last one
---@return Tensor x with only these elements along the axis
return function(ops, x, axis, first, last)
  local begin, stop = {}, {}
  for d, size in ipairs(x.shape) do begin[d], stop[d] = 1, size + 1 end
  begin[axis], stop[axis] = first, last + 1
  return (ops.strided_slice(x, begin, stop))
end
