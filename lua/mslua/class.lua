--- Classes: `local Net = Base:extend "Net"`; `Net(...)` makes an instance and calls `init`.
local errors = require "mslua.errors"

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
  local sub = {}
  for key, v in pairs(self) do
    if type(key) == "string" and key:sub(1, 2) == "__" then sub[key] = v end
  end
  if rawget(self, "__index") == self then sub.__index = sub end
  sub.class_name, sub.super = name, self
  return setmetatable(sub, {
    __index = self,
    __call = function(class, ...) return class:new(...) end,
    __tostring = function() return "class " .. name end,
  })
end

--- Makes an instance; what `Net(...)` does.
function Class:new(...)
  local object = setmetatable({}, self)
  object:init(...)
  return object
end

function Class:init() end

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
