--- Patterns of Lua that users give.
local errors = require "mslua.errors"

local M = {}

--- Whether the pattern is found in a name. An error where it is no pattern: "optimizer: params".
---@param what string who has it, for the message
---@param name string
---@param pattern string
---@return boolean
function M.find(what, name, pattern)
  local ok, found = pcall(string.find, name, pattern)
  if not ok then errors.fail("%s: %q is no pattern of Lua: %s", what, pattern, (found:gsub("^.-:%d+: ", ""))) end
  return found ~= nil
end

return M
