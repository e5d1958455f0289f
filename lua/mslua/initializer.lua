--- ms.initializer: how a parameter's first values are drawn, with their shape (mindspore.common.initializer).
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"

local Initializer = class.Object:extend "Initializer"

--- What the first values of a cell's parameter are drawn by; the cell knows their shape.
args.kind("initializer", function(v)
  return type(v) == "string" or type(v) == "number" or type(v) == "table" and not getmetatable(v)
    or core.kind(v) ~= nil
end, "an initializer: its name, a table, a number or a Tensor", true)

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
  { "init", "initializer", required = true, check = Initializer.problem,
    doc = 'the rule: "zeros", "ones", "constant", "identity", "normal", "uniform", "truncated_normal", '
      .. '"xavier_uniform", "xavier_normal", "he_uniform", "he_normal", or MindSpore\'s spelling of one, "HeNormal"; a '
      .. 'table of the rule and its numbers, {"normal", sigma = 0.02}; one number for all elements; a list or a '
      .. "Tensor of the shape" },
  { "shape", "integers", required = true, doc = "the shape of the values" },
  { "dtype", "string", "float32", choices = errors.names(dtypes), doc = "the type of the values" },
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
