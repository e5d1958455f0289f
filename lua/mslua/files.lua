--- What lies at a path.
local M = {}

--- Whether there is a file that can be read.
---@param path string
function M.is_file(path)
  local file = io.open(path, "rb")
  if not file then return false end
  local _, problem = file:read(0)
  file:close()
  return problem == nil
end

--- Whether there is a folder.
---@param path string
function M.is_folder(path)
  local file = io.open(path, "rb")
  if not file then return false end
  local _, problem = file:read(0)
  file:close()
  return problem ~= nil
end

return M
