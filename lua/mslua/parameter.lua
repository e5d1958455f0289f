--- ms.Parameter: a named value that training changes. The value lives in the session's store (core.parameter).
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local Initializer = require "mslua.initializer"

local M = {}

--- The name of a parameter that was given none: the field it is assigned to names it.
M.UNNAMED = "Parameter"

--- Whether a value is a parameter or a state.
function M.is(v) return core.kind(v) == "Parameter" end

args.kind("parameter", M.is, "a Parameter")
args.kind("tensor", function(v) return core.kind(v) == "Tensor" end, "a Tensor")

local function takes(v)
  return class.is(v, Initializer) or core.kind(v) == "Tensor" or type(v) == "number" or args.is_list(v)
end
args.kind("first_value", takes, "ms.initializer(...), a Tensor, a number or a list of numbers", true)

local fields = {
  { "default_input", "first_value", required = true, check = Initializer.problem, doc = "the first value" },
  { "name", "string", M.UNNAMED,
    doc = "the name in checkpoints; default: the path of fields from the network to the parameter" },
  { "requires_grad", "boolean", true, doc = "true: training changes it; false: it stays as it is" },
  { "layerwise_parallel", "boolean", false,
    doc = "true: each data parallel rank has a value of its own, and ranks do not combine its gradient" },
  { "parallel_optimizer", "boolean", true,
    doc = "false: with enable_parallel_optimizer its optimizer state is not sharded" },
  { "comm_fusion", "integer", 1, min = 0,
    doc = "only gradients of parameters with the same number share a message between ranks; 0: a message of its own" },
  { "saved", "boolean", true, doc = "true: checkpoints hold its value" },
}
local bind = args.signature("Parameter", fields)

local instead  -- dtype? that matrices have whose initializer says float32

--- What make() gives, which makes parameters: those of two dimensions and more whose initializer says float32 have the
--- type `dtype`.
---@param dtype dtype
---@param make fun(): any
function M.in_type(dtype, make)
  local before = instead
  instead = dtype
  local ok, made = pcall(make)
  instead = before
  if not ok then error(made, 0) end
  return made
end

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
    if instead and #init.shape > 1 and spec.dtype == "float32" then spec.dtype = instead end
  else
    spec.init = type(init) == "number" and core.tensor(init) or init
  end
  return core.parameter(spec)
end

return M
