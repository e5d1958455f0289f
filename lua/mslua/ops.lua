--- ms.ops: a function and a class for every operator.
local arity = require "mslua.arity"
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local Cell = require "mslua.cell"
local strategy = require "mslua.strategy"

local ops = {}

-------------------------------------------------------------------------------------------------------------- strategy

-- As the graph keeps it: "((2,4),(4,1))".
local function strategy_text(operator, what, given)
  local text, problem = strategy.text(what, given)
  if problem then errors.fail("%s:shard: %s", operator.class_name, problem) end
  return text
end

-------------------------------------------------------------------------------------------------------------- classes

--- Base class of the operators of ms.ops: `ops.MatMul {transpose_b = true}` keeps attributes, calling it computes.
---@class mslua.Operator
local Operator = class.Object:extend "Operator"
Operator.__index = Operator

-- Where MindSpore's constructor takes other attributes by position than the operator's first ones.
local constructor_order = {
  ReduceSum = { "keep_dims" }, ReduceMean = { "keep_dims" }, ReduceMax = { "keep_dims" }, ReduceMin = { "keep_dims" },
  ReduceProd = { "keep_dims" }, CumSum = { "exclusive", "reverse" },
}

function Operator:init(...)
  local given, order = { ... }, constructor_order[self.class_name]
  if order and #given > 0 and type(given[#given]) ~= "table" then
    local named = {}
    for i, v in ipairs(given) do
      if not order[i] then
        errors.fail("%s: takes at most %d arguments (%s)", self.class_name, #order, table.concat(order, ", "))
      end
      named[order[i]] = v
    end
    given = { named }
  end
  self.attrs = core.bind_attrs(self.name, given)
end

--- Calls the operator: operands, then the attributes that the constructor did not get.
function Operator:__call(...)
  if class.is((...), Cell) then
    errors.fail("%s: the first operand is a Cell: call operators with a dot, self.%s(x), not self:%s(x)",
      self.class_name, self.name, self.name)
  end
  return core.op(self.name, { n = select("#", ...), ... }, self.attrs)
end

--- Sets the number of shards of each dimension of the inputs, and of the outputs:
--- `ops.MatMul():shard {{2, 4}, {4, 1}}`.
---@param in_strategy integer[][]
---@param out_strategy? integer[][]
---@return mslua.Operator self
function Operator:shard(...)
  class.check_self(self, Operator, "an operator", "ops.MatMul():shard {...}")
  local in_strategy, out_strategy = arity.take("shard", 2, ...)
  self.attrs._in_strategy = strategy_text(self, "inputs", in_strategy)
  if out_strategy ~= nil then self.attrs._out_strategy = strategy_text(self, "outputs", out_strategy) end
  return self
end

local known_attrs = { fusion = { "", "integer", min = 0 }, cross_batch = { "", "boolean" } }

--- An attribute for the compiler: "fusion" (an integer from 0; equal ones travel together), "cross_batch" (boolean).
---@param key string
---@param value boolean|number|string
---@return mslua.Operator self
function Operator:add_prim_attr(...)
  class.check_self(self, Operator, "an operator", "ops.MatMul():add_prim_attr(key, value)")
  local key, value = arity.take("add_prim_attr", 2, ...)
  if type(key) ~= "string" or not key:match "^[%a_][%w_]*$" then
    errors.fail("%s:add_prim_attr: expected a name, got %s", self.class_name, errors.show(key))
  end
  local problem = args.problem(known_attrs[key] or { "", "boolean|number|string" }, value)
  if problem then errors.fail("%s:add_prim_attr: %s: %s", self.class_name, key, problem) end
  self.attrs["_" .. key] = value
  return self
end

function Operator:__tostring()
  local words = {}
  for _, key in ipairs(errors.names(self.attrs)) do words[#words + 1] = key .. " = " .. errors.show(self.attrs[key]) end
  return ("%s(%s)"):format(self.class_name, table.concat(words, ", "))
end

-- An attribute whose name is a keyword of Lua is written with an underscore: end_.
local function with_keywords(info, f)
  local keywords = {}
  for _, attr in ipairs(info.attrs) do
    if not loadstring("local " .. attr.name) then keywords[#keywords + 1] = attr.name end
  end
  if #keywords == 0 then return f end
  return function(...)
    local n = select("#", ...)
    local list, last = { ... }, (select(n, ...))
    if type(last) == "table" and not getmetatable(last) and not args.is_list(last) then
      local named = {}
      for key, v in pairs(last) do named[key] = v end
      for _, key in ipairs(keywords) do named[key], named[key .. "_"] = named[key .. "_"], nil end
      list[n] = named
    end
    return f(unpack(list, 1, n))
  end
end

-- The function of an operator with several results gives the first; `all` gives every one.
local Several = {
  __call = function(self, ...) return (self.all(...)) end,
  __tostring = function(self) return ("ops.%s: the first of %s; ops.%s.all gives all"):format(self.operator,
    table.concat(self.results, ", "), self.operator) end,
}

for _, info in ipairs(core.ops()) do
  if info.class then
    local made = Operator:extend(info.class)
    made.name, made.doc, made.__index = info.name, info.doc, made
    made.new = with_keywords(info, made.new)
    ops[info.class] = made
  end
  local f = with_keywords(info, core.functions[info.name])
  ops[info.name] = #info.outputs == 1 and f
    or setmetatable({ all = f, operator = info.name, results = info.outputs }, Several)
end

-- Matrices of the last two dimensions; a single w multiplies every row of x.
local multiply = ops.matmul
function ops.matmul(x, w, ...)
  if not core.kind(x) or not core.kind(w) or #x.shape < 3 or #w.shape ~= 2 then return multiply(x, w, ...) end
  local shape = x.shape
  local y = multiply(ops.reshape(x, { -1, shape[#shape] }), w, ...)
  shape[#shape] = y.shape[2]
  return (ops.reshape(y, shape))
end

--- x times itself.
function ops.square(...)
  local x = arity.take("square", 1, ...)
  return x * x
end

-- What MindSpore's tensors have as methods too: `x:exp()` is `ops.exp(x)`.
for _, name in ipairs { "abs", "exp", "log", "sqrt", "pow", "matmul", "maximum", "minimum", "clip", "sigmoid", "tanh",
  "sin", "cos", "softmax", "expand_dims", "squeeze" } do
  core.methods[name] = assert(ops[name], name)
end

-- The tutorials give on_value and off_value as tensors.
if rawget(ops, "OneHot") then
  function ops.OneHot:__call(...)
    local list, n = { ... }, select("#", ...)
    for i = 2, n do
      if core.kind(list[i]) == "Tensor" then list[i] = list[i]:item() end
    end
    return Operator.__call(self, unpack(list, 1, n))
  end
end

require "mslua.collective_ops"(ops, Operator)
ops.Operator = Operator

------------------------------------------------------------------------------------- functions that are no operator

--- The shape as a list: `ops.shape(x)[2]` is Python's `[1]`.
---@return integer[]
function ops.shape(...) return (arity.take("shape", 1, ...)).shape end

--- A tensor of no dimensions.
---@param value number
---@return Tensor
function ops.scalar_to_array(...) return core.tensor((arity.take("scalar_to_array", 1, ...))) end

--- Identity whose gradient is zero.
function ops.stop_gradient(...) return core.stop_gradient(...) end

--- What reduction operators and collectives do with several values.
ops.ReduceOp = { SUM = "sum", PROD = "prod", MAX = "max", MIN = "min" }

return require("mslua.namespace").strict("ms.ops", ops)
