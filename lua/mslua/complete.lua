--- What the Tab key of the REPL offers. Reads tables as they are and calls nothing of the user's.
local core = require "mslua.core"
local keywords = require "mslua.keywords"

local M = {}

--- What a recipe puts into scope (verbs.scope): its names, and their values, which are made when they are named.
---@type {names: string[], get: fun(name: string): any}?
M.scope = nil

-- A global, or a name of the scope. A value that cannot be made has no fields.
local function global(name)
  local value = rawget(_G, name)
  if value ~= nil or not M.scope then return value end
  local made, found = pcall(M.scope.get, name)
  return made and found or nil
end

local function global_names()
  local names = {}
  for name in pairs(_G) do names[#names + 1] = name end
  for _, name in ipairs(M.scope and M.scope.names or {}) do names[#names + 1] = name end
  return names
end

-- What field access would find in `t` besides its own fields: the tables behind __index, and a Cell's fields.
local function each_table(t, visit)
  for _ = 1, 8 do
    if type(t) ~= "table" or visit(t) then return end
    local fields = rawget(t, "_fields")
    if type(fields) == "table" and visit(fields) then return end
    local meta = debug.getmetatable(t)
    local index = type(meta) == "table" and rawget(meta, "__index")
    -- A class whose __index is a function has its methods in itself.
    if type(index) == "function" then index = meta end
    if index == t then return end
    t = index
  end
end

local function field(t, name)
  local found
  each_table(t, function(each)
    found = rawget(each, name)
    return found ~= nil
  end)
  return found
end

local tensor_fields = { "shape", "dtype", "size" }
local parameter_fields = { "name", "value", "requires_grad", "saved", "layerwise_parallel", "parallel_optimizer",
  "comm_fusion", "init" }

-- What classes keep for the library.
local internal = { new = true, init = true, class_name = true, super = true, elsewhere = true, transparent = true }

-- The names that may follow the value, after "." or ":".
local function names_in(value, separator)
  local names = {}
  each_table(value, function(each)
    for key, v in pairs(each) do
      local named = type(key) == "string" and key:match "^%a[%w_]*$" and not internal[key]
      if named and (separator == "." or type(v) == "function") then
        names[#names + 1] = key
      end
    end
  end)
  local kind = core.kind(value)
  if kind == "Tensor" or kind == "Parameter" then
    for name in pairs(core.methods) do names[#names + 1] = name end
    if separator == "." then
      for _, name in ipairs(tensor_fields) do names[#names + 1] = name end
    end
    if separator == "." and kind == "Parameter" then
      for _, name in ipairs(parameter_fields) do names[#names + 1] = name end
    end
  elseif type(value) == "string" and separator == ":" then
    for name in pairs(string) do names[#names + 1] = name end
  end
  return names
end

local function matching(names, prefix)
  local found, seen = {}, {}
  for _, name in ipairs(names) do
    if name:sub(1, #prefix) == prefix and not seen[name] then
      seen[name], found[#found + 1] = true, name
    end
  end
  table.sort(found)
  return found
end

local function operators()
  local names, ops = {}, require "mslua.ops"
  for _, op in ipairs(core.ops()) do
    if rawget(ops, op.name) then names[#names + 1] = op.name end
  end
  return names
end

-- Whether the text ends inside a string.
local function in_string(text)
  local quote
  for c in text:gmatch "." do
    if quote == c then quote = nil elseif not quote and (c == '"' or c == "'") then quote = c end
  end
  return quote ~= nil
end

--- How many bytes before the cursor the words stand in for, and the words.
---@param before string the line up to the cursor
---@param commands string[] ".pause", ...
---@param parameters string[] paths
---@return integer length, string[] words
function M.complete(before, commands, parameters)
  local command = before:match "^%s*(%.%w*)$"
  if command then return #command, matching(commands, command) end
  if before:match "^%s*%.%w" or in_string(before) then
    local path = before:match "[%w_%./#]*$"
    return #path, matching(parameters, path)
  end
  local asked = before:match "^%s*%?([%w_]*)$"
  if asked then
    local names = global_names()
    for _, name in ipairs(operators()) do names[#names + 1] = name end
    return #asked, matching(names, asked)
  end
  local path, separator, prefix = before:match "([%a_][%w_%.]*)([.:])([%w_]*)$"
  if not path then
    prefix = before:match "[%w_]*$"
    local names = global_names()
    for _, name in ipairs(keywords.list) do names[#names + 1] = name end
    return #prefix, prefix == "" and {} or matching(names, prefix)
  end
  local value
  for part in path:gmatch "[^.]+" do
    if value == nil then value = global(part) else value = field(value, part) end
    if value == nil then return #prefix, {} end
  end
  return #prefix, matching(names_in(value, separator), prefix)
end

return M
