--- Words for error messages; core.fail puts the recipe's file and line in front.
local core = require "mslua.core"

local M = {}

--- Raises the formatted message at the recipe's line.
---@type fun(format: string, ...: any)
M.fail = core.fail

--- "recipe.lua:12", where the recipe sets the key at `path`, {"train", "epochs"}; set by ms.recipe.
---@type fun(path: string[]): string?
M.place = function() return nil end

--- Raises the formatted message at the user's line; when the recipe's file has run, at that of its key at `path`.
---@param path string[]
---@param format string
function M.fail_at(path, format, ...)
  local place = not core.where() and M.place(path)
  if place then error(place .. ": " .. format:format(...), 0) end
  core.fail(format, ...)
end

--- The same, at the key even while a line of the user's runs: of what the network is traced for.
---@param path string[]
---@param format string
function M.fail_at_key(path, format, ...)
  local place = M.place(path)
  if place then error(place .. ": " .. format:format(...), 0) end
  core.fail(format, ...)
end

--- f(...); an error in it that names no line gets `place`, "recipe.lua:12", in front.
---@param place? string
---@param f function
function M.at(place, f, ...)
  if not place then return f(...) end
  local results = { pcall(f, ...) }
  if results[1] then return unpack(results, 2) end
  local problem = results[2]
  if type(problem) == "string" and not problem:find "^[^\n]-:%d+: " then problem = place .. ": " .. problem end
  error(problem, 0)
end

-- Of an object or a class; modules have no unknown names, and no class.
local function class_name_of(t)
  local known, name = pcall(function() return t.class_name end)
  return known and name or nil
end

--- How a value is shown in a message: strings quoted, lists written out, tensors by their type, classes with how
--- instances are made, the rest by its kind.
---@param value any
---@return string
function M.show(value)
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) == "function" then return "a function" end
  if core.kind(value) == "Tensor" then return ("%s[%s]"):format(value.dtype, table.concat(value.shape, ", ")) end
  if type(value) ~= "table" or getmetatable(value) then
    if type(value) == "table" and rawget(value, "super") and rawget(value, "class_name") then
      return ("the class %s; %s(...) makes an instance of it"):format(value.class_name, value.class_name)
    end
    local text = tostring(value)
    if type(value) ~= "table" or not text:find "\n" and not text:find "^table: 0x" then return text end
    return class_name_of(value) or "a table"
  end
  local items = {}
  for i = 1, table.maxn(value) do
    if i > 8 then
      items[i] = "..."
      break
    end
    items[i] = M.show(value[i])  -- nil before another element as well
  end
  for _, key in ipairs(M.names(value)) do items[#items + 1] = key .. " = " .. M.show(value[key]) end
  return "{" .. table.concat(items, ", ") .. "}"
end

--- "1 value", "2 values", of a noun whose plural ends in s.
---@param n integer
---@param noun string
---@return string
function M.counted(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

--- The string keys of a table, sorted.
---@param t table
---@return string[]
function M.names(t)
  local names = {}
  for key in pairs(t) do
    if type(key) == "string" then names[#names + 1] = key end
  end
  table.sort(names)
  return names
end

return M
