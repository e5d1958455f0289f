--- Classes: `local Net = Base:extend "Net"`; `Net(...)` makes an instance and calls `init`.
local arity = require "mslua.arity"
local core = require "mslua.core"
local defined = require "mslua.defined"
local errors = require "mslua.errors"
local namespace = require "mslua.namespace"

local M = {}

---@class mslua.Class
---@field class_name string
---@field super table

local Class = {}
Class.__index = Class
Class.class_name = "Object"

--- A subclass. Metamethods (`__tostring`, `__call`, `__index`, `__newindex`) are inherited.
---@param name string
---@return table
function Class:extend(name)
  if type(self) ~= "table" then
    errors.fail('extend: expected a class before the colon, got %s: nn.Cell:extend "Net"', errors.show(self))
  elseif type(name) ~= "string" then
    errors.fail('extend: expected a name, got %s: nn.Cell:extend "Net"', errors.show(name))
  end
  local sub = {}
  for key, v in pairs(self) do
    if type(key) == "string" and key:sub(1, 2) == "__" then sub[key] = v end
  end
  if rawget(self, "__index") == self then sub.__index = sub end
  sub.class_name, sub.super = name, self
  defined.mark(sub)
  return setmetatable(sub, {
    __index = self,
    __call = function(class, ...) return class:new(...) end,
    __tostring = function() return "class " .. name end,
  })
end

--- Makes an instance; what `Net(...)` does.
function Class:new(...)
  namespace.check_dot(self.class_name, ...)
  arity.check(self.class_name, nil, self.init, 1, ...)
  local object = setmetatable({}, self)
  object:init(...)
  return object
end

function Class:init() end

--- A cell holds the object in this field.
---@param field string
---@package
function Class:_held_as(field) end

-- The object that was last asked for a field that it lacks, and the field.
local missed = setmetatable({}, { __mode = "v" })

--- An `__index` of objects that is asked for by M.explain_call: the field of the object's class.
function M.lookup(self, key)
  local v = getmetatable(self)[key]
  if v == nil then missed.object, missed.key = self, key end
  return v
end

local function is_callable(v)
  return type(v) == "function" or (type(v) == "table" and not rawget(v, "super") and (getmetatable(v) or {}).__call)
end

-- The names of an object's methods; with `fields` also of the cells and operators in a cell's fields.
local function callables(object, fields)
  local names, class = {}, getmetatable(object)
  local function add(from)
    for name, v in pairs(from) do
      if type(name) == "string" and not name:find "^_" and is_callable(v) then names[name] = true end
    end
  end
  if fields then add(rawget(object, "_fields") or {}) end
  while class and class ~= Class do
    add(class)
    class = rawget(class, "super")
  end
  names.init, names.new = nil, nil
  return errors.names(names)
end

local tensor_fields = { ndim = true, shape = true, dtype = true, size = true }

-- Lua's message of a field of nothing, "... attempt to index field 'weight' (a nil value)", where an object lacks it.
local function explain_index(message)
  local key, object = message:match "attempt to index %a+ '([%w_]+)' %(a nil value%)$", missed.object
  local fields = object ~= nil and missed.key == key and rawget(object, "_fields")
  if not fields then return message end
  local known = errors.names(fields)
  if #known == 0 then return message end
  return ("%s: %s has no field '%s'%s; it has %s"):format(message, object.class_name, key,
    core.did_you_mean(key, known), table.concat(known, ", "))
end

--- Lua's message of a call of nothing, "... attempt to call method 'clone' (a nil value)", with what the object has
--- instead; the message itself where that is not known.
---@param message string
---@return string
function M.explain_call(message)
  local field = message:match "attempt to call method '(%a+)' %(a %a+ value%)$"
  if tensor_fields[field] then return ("%s: it is a field of a tensor: x.%s"):format(message, field) end
  if message:match "number expected, got userdata%)$" then
    return message .. ": of a tensor with one element x:item() is the number"
  end
  if message:match "^mslua/nn/[%w_/]+%.lua:%d+: attempt to index local '%a+' %(a nil value%)$" then
    return message .. ": call a cell as self.fc(x), not self.fc.construct(x)"
  end
  if message:match "attempt to index [^\n]+ %(a nil value%)$" then return explain_index(message) end
  local kind, key = message:match "attempt to call (%a+) '([%w_]+)' %(a nil value%)$"
  local object = missed.object
  if object == nil or missed.key ~= key or (kind ~= "method" and kind ~= "field") then return message end
  local known = callables(object, kind == "field")
  local elsewhere = getmetatable(object).elsewhere or {}
  local hint = elsewhere[key] and ": " .. elsewhere[key] or core.did_you_mean(key, known)
  if hint == "" then hint = ("; it has %s"):format(table.concat(known, ", ")) end
  return ("%s: %s has no %s '%s'%s"):format(message, object.class_name, kind, key, hint)
end

--- Whether `object` is an instance of `class` or of a class extended from it.
---@param object any
---@param class table
---@return boolean
function M.is(object, class)
  local found = type(object) == "table" and getmetatable(object) or nil
  while type(found) == "table" do
    if found == class then return true end
    found = rawget(found, "super")
  end
  return false
end

--- Whether `class` was extended, in one or more steps, from `base`.
---@param class table
---@param base table
---@return boolean
function M.extends(class, base)
  local found = rawget(class, "super")
  while type(found) == "table" and found ~= base do found = rawget(found, "super") end
  return found == base
end

--- Raises unless `self` is an instance of `class`: a method was called with a dot, as in Python.
---@param self any
---@param class table
---@param what string "a Cell"
---@param call string "net:trainable_params()"
function M.check_self(self, class, what, call)
  if not M.is(self, class) then
    errors.fail("%s: expected %s before the colon, got %s: %s", call:match ":([%w_]+)", what, errors.show(self), call)
  end
end

M.Object = Class
return M
