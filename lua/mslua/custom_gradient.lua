--- Cells with a method bprop, which gives the gradients of construct's arguments: `function Net:bprop(x, y, out, dout)
--- return dx, dy end`.
local arity = require "mslua.arity"
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

local function pack(...) return { n = select("#", ...), ... } end

local function is_tensor(v)
  local kind = core.kind(v)
  return kind == "Value" or kind == "Tensor" or kind == "Parameter"
end
local function is_float(v) return is_tensor(v) and v.dtype:find "float" ~= nil end

local function label(construct, i)
  local name = arity.parameter_name(construct, i + 1)
  return name and ("%s (argument %d)"):format(name, i) or ("argument %d"):format(i)
end

-- How many values bprop gets before out and dout: construct's parameters, also those that the call leaves out.
local function count_arguments(self, given)
  if type(self.bprop) ~= "function" then
    errors.fail("%s: bprop is %s, expected a method", self.class_name, errors.show(self.bprop))
  end
  local takes, gets = arity.parameters(self.construct) - 1, arity.parameters(self.bprop) - 1
  local count = takes == math.huge and given or math.max(takes, given)
  if gets ~= math.huge and gets ~= count + 2 then
    local names = {}
    for i = 1, count do names[i] = arity.parameter_name(self.construct, i + 1) or "x" .. i end
    errors.fail("%s: bprop takes %s, expected %d: function %s:bprop(%s) gets what construct gets, what it "
      .. "returned, and the gradient of that", self.class_name, errors.counted(gets, "argument"), count + 2,
      self.class_name, table.concat(names, ", ") .. (count > 0 and ", " or "") .. "out, dout")
  end
  return count
end

-- What bprop returned, as a list that has false where there is no gradient; for the arguments at `places` alone.
local function checked(self, arguments, count, places, given)
  local name = self.class_name
  if given.n == 1 and type(given[1]) == "table" and not getmetatable(given[1]) then
    errors.fail("%s: bprop returns a table, expected a gradient for each argument: return dx, dy", name)
  end
  local last = places[#places] or 0
  if given.n > count or given.n < last then
    errors.fail("%s: bprop returns %d value%s, expected %d: a gradient for each argument of construct, nil for those "
      .. "that have none", name, given.n, given.n == 1 and "" or "s", count)
  end
  local list = {}
  for k, i in ipairs(places) do
    if given[i] ~= nil and not is_tensor(given[i]) then
      errors.fail("%s: bprop returns %s as the gradient of %s, expected a tensor like it, or nil for a zero gradient",
        name, errors.show(given[i]), label(self.construct, i))
    end
    list[k] = given[i] or false
  end
  for i = 1, given.n do
    if given[i] ~= nil and not is_float(arguments[i]) then
      errors.fail("%s: bprop returns a gradient of %s, which is %s: only float tensors have one; return nil there",
        name, label(self.construct, i), is_tensor(arguments[i]) and arguments[i].dtype or errors.show(arguments[i]))
    end
  end
  return list
end

--- self:construct(...), whose gradients are what self:bprop returns.
---@param self Cell
function M.construct(self, ...)
  local count = count_arguments(self, select("#", ...))
  local arguments, inside, places, inputs, labels = { ... }, { ... }, {}, {}, {}
  for i = 1, count do
    if is_float(arguments[i]) then
      arguments[i], inside[i] = core.detach(arguments[i])
      places[#places + 1], inputs[#inputs + 1], labels[#labels + 1] = i, arguments[i], label(self.construct, i)
    end
  end
  local first = core.traced_nodes()
  local results = pack(self:construct(unpack(inside, 1, count)))
  local outputs, at = {}, {}  -- the results that have gradients, and which they are
  for i = 1, results.n do
    if not is_tensor(results[i]) then
      errors.fail("%s: construct returns %s, expected a tensor: a cell with bprop returns each of its tensors as a "
        .. "result of its own", self.class_name, errors.show(results[i]))
    end
    if is_float(results[i]) then outputs[#outputs + 1], at[#at + 1] = results[i], i end
  end
  if not outputs[1] then return unpack(results, 1, results.n) end
  local function backward(...)
    local dout, given = {}, { ... }
    for k, i in ipairs(at) do dout[i] = given[k] end
    local list = { unpack(arguments, 1, count) }
    list[count + 1], list[count + 2] = { unpack(results, 1, results.n) }, dout
    if results.n == 1 then list[count + 1], list[count + 2] = results[1], dout[1] end
    return checked(self, arguments, count, places, pack(self:bprop(unpack(list, 1, count + 2))))
  end
  local detached = core.set_gradient(self.class_name, first, inputs, labels, outputs, backward)
  for k, i in ipairs(at) do results[i] = detached[k] end
  return unpack(results, 1, results.n)
end

return M
