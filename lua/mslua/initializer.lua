--- ms.initializer: how a parameter's first values are drawn, with their shape (mindspore.common.initializer).
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"

local Initializer = class.Object:extend "Initializer"

--- What is wrong with a rule: its name (MindSpore's spellings too: "XavierUniform", "Zero"), a table
--- { "normal", sigma = 0.02 }, a number, a list or a Tensor.
---@param init any
---@return string? problem
---@package
function Initializer.problem(init)
  local name = init
  if type(init) == "table" and not getmetatable(init) and type(init[1]) == "string" then name = init[1] end
  return type(name) == "string" and core.initializer_problem(name) or nil
end

local bind = args.signature("initializer", {
  { "init", "any", required = true, check = Initializer.problem },
  { "shape", "integers", required = true },
  { "dtype", "string", "float32", choices = errors.names(dtypes) },
})

--- How a parameter's first values are drawn, with their shape: `ms.initializer("normal", {32, 16})`. init may be a
--- table with the rule's numbers: `{"normal", sigma = 0.02}`.
function Initializer:new(...)
  return setmetatable(bind(...), self)
end

function Initializer:__tostring()
  return ("initializer(%s, %s)"):format(errors.show(self.init), errors.show(self.shape))
end
Initializer.__index = Initializer

return Initializer
