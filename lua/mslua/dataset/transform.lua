--- What map does to a column, as data: { kind = "resize", height =, width = } (core/data/dataset.h has the meaning).
local args = require "mslua.args"
local class = require "mslua.class"
local defined = require "mslua.defined"
local errors = require "mslua.errors"

local Transform = class.Object:extend "Transform"
Transform.__index = Transform

--- Makes a transform's class: `spec_of` turns bound arguments into the table that core.dataset takes.
---@param name string
---@param fields mslua.Field[]
---@param spec_of fun(a: table): table
---@param doc? string for help; nil: the comment above the call
---@return fun(...: any): table
function Transform.define(name, fields, spec_of, doc)
  local bind = args.signature(name, fields)
  if doc then defined.describe(bind, doc) end
  return function(...)
    local made = setmetatable({}, Transform)
    made.name, made.spec = name, spec_of(bind(...))
    return made
  end
end

function Transform:__tostring() return self.name end

--- A transform, or a list of them nested as wished, as a flat list of data.
---@param v any
---@param what string for messages
---@param into table
function Transform.collect(v, what, into)
  if class.is(v, Transform) then
    for _, spec in ipairs(v.spec.kind and { v.spec } or v.spec) do into[#into + 1] = spec end
  elseif args.is_list(v) then
    for _, item in ipairs(v) do Transform.collect(item, what, into) end
  else
    errors.fail("%s: expected a transform such as vision.Resize {224, 224}, got %s", what, errors.show(v))
  end
  return into
end

return Transform
