--- A group of settings with defaults: what set_context, set_auto_parallel_context and set_ps_context share.
local args = require "mslua.args"
local errors = require "mslua.errors"
local notice = require "mslua.notice"

local M = {}

---@class mslua.Settings
---@field name string "auto_parallel_context", in messages
---@field fields mslua.Field[]
---@field given table<string, any> what was set, by key

--- A group. A field with `merges = true` is a table whose keys are set one by one: those that are left out keep their
--- values. `aliases` are older names: key -> { new key, notice }. `moved` are keys of other tables: key -> hint.
---@param name string
---@param fields mslua.Field[]
---@param aliases? table<string, string>
---@param moved? table<string, string>
---@return mslua.Settings
function M.new(name, fields, aliases, moved)
  return { name = name, fields = fields, aliases = aliases or {}, moved = moved or {}, given = {} }
end

local function key_error(group, setter, key)
  if group.moved[key] then errors.fail("%s: %s", setter, group.moved[key]) end
  errors.fail("%s: %s", setter, args.unknown_key(tostring(key), args.names_of(group.fields)))
end

local function field_of(group, key)
  for _, field in ipairs(group.fields) do
    if field[1] == key then return field end
  end
end

--- The values of keys, merged with what was given before where a key merges; an error where one is not legal.
---@param group mslua.Settings
---@param ... any one table of named values
---@return table<string, any> values by key
function M.check(group, ...)
  local setter, values = "set_" .. group.name, ...
  if select("#", ...) ~= 1 or type(values) ~= "table" or values[1] ~= nil then
    errors.fail("%s: expected one table of named values, e.g. ms.%s { %s = ... }", setter, setter, group.fields[1][1])
  end
  local checked = {}
  for _, name in ipairs(errors.names(values)) do
    local key = name
    if group.aliases[name] then
      key = group.aliases[name]
      notice(("%s: %s is deprecated, use %s"):format(setter, name, key))
    end
    local field = field_of(group, key) or key_error(group, setter, key)
    local problem = args.problem(field, values[name])
    if problem then errors.fail("%s: %s: %s", setter, key, problem) end
    if field.fields then
      args.check(field.fields, values[name], function(what) errors.fail("%s: %s: %s", setter, key, what) end)
    end
    local value = values[name]
    if field.merges then
      local merged = {}
      for k, v in pairs(group.given[key] or {}) do merged[k] = v end
      for k, v in pairs(value) do merged[k] = v end
      value = merged
    end
    checked[key] = value
  end
  return checked
end

--- Sets keys: all of them, or none where one is an error.
---@param group mslua.Settings
---@param ... any one table of named values
function M.set(group, ...)
  for key, v in pairs(M.check(group, ...)) do group.given[key] = v end
end

--- The value of a key, set or default.
---@param group mslua.Settings
---@param key string
---@return any
function M.get(group, key)
  local name = group.aliases[key] or key
  local field = field_of(group, name)
  if not field then key_error(group, "get_" .. group.name, name) end
  local v = group.given[name]
  if v == nil then v = field[3] end
  return v
end

--- Every key back to its default.
---@param group mslua.Settings
function M.reset(group) group.given = {} end

return M
