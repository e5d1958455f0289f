--- Parameters of which the ranks keep parts: how they are written into files.
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

--- Whether the ranks keep parts of one of the parameters. An error where another pipeline stage keeps one.
---@param parameters Parameter[]
---@return boolean
function M.any(parameters)
  local any = false
  for _, p in ipairs(parameters) do any = core.is_part(p) or any end
  return any
end

-- The first rank, from 0, that gives the same place as this one.
local function first_with(place, places)
  for rank, other in ipairs(places) do
    if other == place then return rank - 1 end
  end
end

--- Makes files of parameters: write(true) writes them, write(false) only reads the parameters. Where the ranks keep
--- parts of one, all ranks call this and read them in the same order, and of those that give the same place the first
--- writes. It returns when the files are there; what went wrong on one rank is an error on all.
---@param who string the function, for messages
---@param parameters Parameter[]
---@param place string the path that is written
---@param write fun(writes: boolean)
function M.write(who, parameters, place, write)
  if not M.any(parameters) then return write(true) end
  local writes = first_with(place, core.gather_texts(place, who)) == core.options.rank
  local good, problem = pcall(write, writes)
  local told, problems = pcall(core.gather_texts, good and "" or tostring(problem), who)
  if not good then error(problem, 0) end
  if not told then error(problems, 0) end
  for rank, text in ipairs(problems) do
    if text ~= "" then errors.fail("%s: rank %d: %s", who, rank - 1, text) end
  end
end

return M
