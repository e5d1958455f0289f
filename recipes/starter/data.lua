-- The data of recipe.lua. `?ms.dataset` in the REPL lists the kinds of datasets: put yours in the place of points().
local ms = require "mslua"
local ops = ms.ops

local M = {}

-- `count` random points of a square: x float32 [2]; label int32 [], 1 inside a circle. The same name gives the same
-- points again.
function M.points(name, count)
  local x = ms.rand({ count, 2 }, ms.float32, name) * 2 - 1
  local label = ops.cast(ops.less((x * x):sum(2), 0.6), ms.int32)
  return ms.dataset.NumpySlicesDataset({ x, label }, { column_names = { "x", "label" } })
end

return M
