--- ms.Parameter: a named value that training changes. The value lives in the session's store (core.parameter).
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local Initializer = require "mslua.initializer"

local M = {}

--- The name of a parameter that was given none: the field it is assigned to names it.
M.UNNAMED = "Parameter"

--- Whether a value is a parameter or a state.
function M.is(v) return core.kind(v) == "Parameter" end

args.kind("parameter", M.is, "a Parameter")
args.kind("tensor", function(v) return core.kind(v) == "Tensor" end, "a Tensor")

local fields = {
  { "default_input", "any", required = true, check = Initializer.problem },
  { "name", "string", M.UNNAMED },
  { "requires_grad", "boolean", true },
  { "saved", "boolean", true },
  { "layerwise_parallel", "boolean", false },
  { "parallel_optimizer", "boolean", true },
  { "comm_fusion", "integer", 1, min = 0 },
}
local bind = args.signature("Parameter", fields)

--- A value that training changes: `ms.Parameter(init, "w")`, `ms.Parameter(init, {name = "w", requires_grad = false})`.
--- `init` is an initializer, a Tensor or a list of numbers; without a name the parameter takes that of the cell's field
--- it is assigned to.
---@return Parameter
function M.Parameter(...)
  local spec = bind(...)
  local init = spec.default_input
  spec.default_input = nil
  if class.is(init, Initializer) then
    spec.init, spec.shape, spec.dtype, spec.zero_row = init.init, init.shape, init.dtype, init.zero_row
  elseif core.kind(init) == "Tensor" or type(init) == "number" or args.is_list(init) then
    spec.init = type(init) == "number" and core.tensor(init) or init
  else
    errors.fail("Parameter: expected ms.initializer(...), a Tensor or a list of numbers, got %s", errors.show(init))
  end
  return core.parameter(spec)
end

return M
