--- What lies at a path, and writing several files at once.
local core = require "mslua.core"

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

--- Puts several files into a folder together: write(path) writes them into the temporary folder `path`. When it fails,
--- as on a full disk, the folder stays as it was.
---@param folder string it is there
---@param write fun(path: string)
function M.fill(folder, write)
  local files, path = core.open_files(folder)
  local good, problem = pcall(write, path)
  core.close_files(files, good)
  if not good then error(problem, 0) end
end

return M
