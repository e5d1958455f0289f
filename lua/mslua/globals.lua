--- Global variables of a user's file: reading one that there is not is an error. A misspelled name would otherwise be
--- nil, and what it is given to would take its default.
local core = require "mslua.core"
local errors = require "mslua.errors"
local getinfo, getlocal, getupvalue = debug.getinfo, debug.getlocal, debug.getupvalue

local M = {}

-- Of other versions of Lua: files that run with several ask for them.
local of_versions = { _ENV = true, utf8 = true, bit32 = true, warn = true }

-- The variables that a function at `level` of the caller sees.
local function visible(level)
  local names, f = {}, getinfo(level + 1, "f").func
  local function add(name)
    if name and name:match "^[%a_]" then names[#names + 1] = name end
  end
  for i = 1, math.huge do
    local name = getlocal(level + 1, i)
    if not name then break end
    add(name)
  end
  for i = 1, math.huge do
    local name = getupvalue(f, i)
    if not name then break end
    add(name)
  end
  for _, name in ipairs(errors.names(_G)) do add(name) end
  return names
end

--- From now on this holds in the file and in those of its folder. Other files, a module of the system among them, read
--- nil. A prompt, which has names of its own, stays as it is.
---@param file string
function M.check_reads(file)
  if getmetatable(_G) then return end
  local source, folder = "@" .. file, "@" .. (file:match "^.*/" or "./")
  setmetatable(_G, {
    __index = function(_, name)
      local info = getinfo(2, "S")
      local users = info and (info.source == source or info.source:sub(1, #folder) == folder)
      if not users or of_versions[name] then return nil end
      name = tostring(name)
      errors.fail('there is no variable \'%s\'%s; rawget(_G, "%s") asks for a global that may be missing', name,
        core.did_you_mean(name, visible(2)), name)
    end,
  })
end

return M
