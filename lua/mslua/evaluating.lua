-- Calls f(...) while all cells evaluate, whatever set_train has said of them.
local core = require "mslua.core"

local function finish(before, ok, ...)
  core.force_training(before)
  if not ok then error((...), 0) end
  return ...
end

return function(f, ...)
  return finish(core.force_training(false), pcall(f, ...))
end
