--- ms.grad and ms.value_and_grad: derivatives of functions and cells (mindspore.grad).
local args = require "mslua.args"
local core = require "mslua.core"

local M = {}

local fields = {
  { "fn", "function|cell", required = true, doc = "a function or a cell whose first result is a scalar" },
  { "grad_position", "integer|integers", min = 1,
    doc = "the arguments to derive by, from 1 (MindSpore's count from 0); default: the first, or none with weights" },
  { "weights", "list", doc = "parameters to derive by; default: none" },
  { "has_aux", "boolean", false,
    doc = "true: fn's further results are given too, in a list; they have no gradient" },
}

-- Positions count from 1; without weights the first argument is meant.
local function bound(bind, ...)
  local a = bind(...)
  local positions = a.grad_position
  if positions == nil then positions = a.weights and {} or 1 end
  local alone = type(positions) == "number"
  local f = core.value_and_grad(a.fn, alone and { positions } or positions, a.weights or {})
  return a, f, alone and 1 or #positions
end

-- The gradients by arguments, then those by weights, where they are asked for.
local function gradients(a, count, by_argument, by_weight)
  local alone = type(a.grad_position) ~= "table"
  local of_arguments = alone and by_argument[1] or by_argument
  if not a.weights then return of_arguments end
  if count == 0 then return by_weight end
  return of_arguments, by_weight
end

local bind_value = args.signature("value_and_grad", fields)

--- A function that gives fn's value and the gradients of its first result, a scalar. grad_position: one argument (from
--- 1), which gives one tensor, or a list, which gives a list. weights: a list of parameters, which gives a list. Of
--- both: value, by_argument, by_weight = ms.value_and_grad(fn, 1, weights)(x). has_aux: the value is a list of all of
--- fn's results. Each call calls fn, which may read variables and tensors that change; for a number that changes it is
--- compiled again. (fn, grad_position = 1, weights, has_aux = false)
function M.value_and_grad(...)
  local a, f, count = bound(bind_value, ...)
  return function(...)
    local values, by_argument, by_weight = f(...)
    return a.has_aux and values or values[1], gradients(a, count, by_argument, by_weight)
  end
end

local bind_grad = args.signature("grad", fields)

--- A function that gives the gradients of fn's first result, a scalar, as value_and_grad without the value. has_aux: a
--- list of fn's further results comes last: gradient, further = ms.grad(fn, 1, nil, true)(x).
function M.grad(...)
  local a, f, count = bound(bind_grad, ...)
  return function(...)
    local values, by_argument, by_weight = f(...)
    if not a.has_aux then return gradients(a, count, by_argument, by_weight) end
    table.remove(values, 1)
    local first, second = gradients(a, count, by_argument, by_weight)
    if second == nil then return first, values end
    return first, second, values
  end
end

return M
