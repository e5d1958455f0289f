--- notice(text): one line on stderr, on rank 0 only, once for each text.
local core = require "mslua.core"

local said = {}

---@param text string
return function(text)
  if said[text] or core.options.rank ~= 0 then return end
  said[text] = true
  io.stderr:write("mslua: " .. text .. "\n")
end
