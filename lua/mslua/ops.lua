--- ms.ops: a function and a class for every operator.
local arity = require "mslua.arity"
local args = require "mslua.args"
local attention_mask = require "mslua.attention_mask"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local Cell = require "mslua.cell"
local keywords = require "mslua.keywords"
local namespace = require "mslua.namespace"
local strategy = require "mslua.strategy"
local within = require "mslua.within"

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
        errors.fail("%s: takes at most %s (%s)", self.class_name, errors.counted(#order, "argument"),
          table.concat(order, ", "))
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
  return core.op(self.name, { n = select("#", ...), instance = self.instance, ... }, self.attrs)
end

--- Dumps of graphs name the operator by the cell's field that holds it.
function Operator:_held_as(field) self.instance = field end

--- Sets the number of shards of each dimension of the inputs, and of the outputs:
--- `ops.MatMul():shard {{2, 4}, {4, 1}}`.
---@param in_strategy integer[][]
---@param out_strategy? integer[][]
---@return mslua.Operator self
function Operator:shard(...)
  class.check_self(self, Operator, "an operator", "ops.MatMul():shard {...}")
  local in_strategy, out_strategy = arity.take("shard", 2, ...)
  self.attrs._in_strategy = strategy_text(self, "inputs", in_strategy)
  strategy.holder = strategy.holder or self.class_name .. ":shard"
  if out_strategy ~= nil then self.attrs._out_strategy = strategy_text(self, "outputs", out_strategy) end
  return self
end

local known_attrs = { fusion = { "", "integer", min = 0 }, cross_batch = { "", "boolean" } }

--- An attribute for the compiler: "fusion" (an integer from 0; equal ones travel together), "cross_batch" (boolean).
---@param key string
---@param value boolean|integer
---@return mslua.Operator self
function Operator:add_prim_attr(...)
  class.check_self(self, Operator, "an operator", "ops.MatMul():add_prim_attr(key, value)")
  local key, value = arity.take("add_prim_attr", 2, ...)
  if type(key) ~= "string" or not known_attrs[key] then
    local names = errors.names(known_attrs)
    errors.fail("%s:add_prim_attr: expected %s, got %s%s", self.class_name, table.concat(names, " or "),
      errors.show(key), type(key) == "string" and core.did_you_mean(key, names) or "")
  end
  local problem = args.problem(known_attrs[key], value)
  if problem then errors.fail("%s:add_prim_attr: %s: %s", self.class_name, key, problem) end
  self.attrs["_" .. key] = value
  return self
end

function Operator:__tostring()
  local words = {}
  for _, key in ipairs(errors.names(self.attrs)) do words[#words + 1] = key .. " = " .. errors.show(self.attrs[key]) end
  return ("%s(%s)"):format(self.class_name, table.concat(words, ", "))
end

-- An attribute whose name is a keyword of Lua can be written with an underscore: end_, or ["end"].
local function with_keywords(info, f)
  local names = {}
  for _, attr in ipairs(info.attrs) do
    if keywords.set[attr.name] then names[#names + 1] = attr.name end
  end
  if #names == 0 then return f end
  return function(...)
    local n = select("#", ...)
    local list, last = { ... }, (select(n, ...))
    if type(last) == "table" and not getmetatable(last) and not args.is_list(last) then
      local named = {}
      for key, v in pairs(last) do named[key] = v end
      for _, key in ipairs(names) do
        local written = key .. "_"
        if named[key] ~= nil and named[written] ~= nil then
          errors.fail("%s: attribute '%s' is given twice, as '%s' too", info.class or info.name, key, written)
        end
        if named[written] ~= nil then named[key], named[written] = named[written], nil end
      end
      list[n] = named
    end
    return f(unpack(list, 1, n))
  end
end

-- Operators all of whose results are what they are called for. The function of another operator with several results
-- gives the first, for the rest are there for its gradient; `all` gives every one.
local called_for_all = { sort = true, top_k = true, cummax = true, cummin = true }

local Several = {
  __call = function(self, ...) return (self.all(...)) end,
  __tostring = function(self) return ("ops.%s: the first of %s; ops.%s.all gives all"):format(self.operator,
    table.concat(self.results, ", "), self.operator) end,
}

for _, info in ipairs(core.ops()) do
  if info.class then
    local made = Operator:extend(info.class)
    made.constructor_order = constructor_order[info.class]
    made.name, made.doc, made.__index = info.name, info.doc, made
    made.new = with_keywords(info, made.new)
    ops[info.class] = made
  end
  local f = with_keywords(info, core.functions[info.name])
  ops[info.name] = (#info.outputs == 1 or called_for_all[info.name]) and f
    or setmetatable({ all = f, operator = info.name, results = info.outputs }, Several)
end

-- The dimensions before the last two of both, with NumPy's rules of broadcasting; nil: they do not fit, or are equal.
local function common_leading(a, b)
  local list, rank, equal = {}, math.max(#a, #b) - 2, #a == #b
  for d = 1, rank do
    local i, j = d - rank + #a - 2, d - rank + #b - 2
    local m, n = i > 0 and a[i] or 1, j > 0 and b[j] or 1
    if m ~= n and m ~= 1 and n ~= 1 then return nil end
    equal = equal and m == n
    list[d] = m == 1 and n or m
  end
  return not equal and list or nil
end

local function joined(list, ...)
  local all = { unpack(list) }
  for i = 1, select("#", ...) do all[#all + 1] = (select(i, ...)) end
  return all
end

local multiply = ops.matmul

-- Products of the matrices in the last two dimensions, with different leading dimensions.
local function multiply_broadcast(x, w, ...)
  local a, b = x.shape, w.shape
  if #a < 2 or #b < 2 then return multiply(x, w, ...) end
  local leading = common_leading(a, b)
  if not leading then return multiply(x, w, ...) end
  local how = ...
  if type(how) == "table" then how = how.transpose_a end
  local matrices = 1
  for d = 1, #b - 2 do matrices = matrices * b[d] end
  if matrices ~= 1 or how then
    return multiply(ops.broadcast_to(x, joined(leading, a[#a - 1], a[#a])),
      ops.broadcast_to(w, joined(leading, b[#b - 1], b[#b])), ...)
  end
  -- A single w multiplies every row of x.
  local rows = 1
  for d = 1, #a - 1 do rows = rows * a[d] end
  if #b > 2 then w = ops.reshape(w, { b[#b - 1], b[#b] }) end
  local y = multiply(ops.reshape(x, { rows, a[#a] }), w, ...)
  return (ops.reshape(y, joined(leading, a[#a - 1], y.shape[2])))
end

-- As NumPy's matmul: leading dimensions are broadcast; a vector is a row on the left and a column on the right.
function ops.matmul(x, w, ...)
  if not core.kind(x) or not core.kind(w) then return multiply(x, w, ...) end
  local a, b = x.shape, w.shape
  local row, column = #a == 1, #b == 1
  if not row and not column or #a * #b == 0 or select("#", ...) > 0 then return multiply_broadcast(x, w, ...) end
  local across, down = a[#a], b[math.max(#b - 1, 1)]
  if across ~= down then
    errors.fail("MatMul: x is %s[%s] and w is %s[%s]: %d columns against %d rows", x.dtype, table.concat(a, ", "),
      w.dtype, table.concat(b, ", "), across, down)
  end
  if row then x = ops.expand_dims(x, 1) end
  if column then w = ops.expand_dims(w, 2) end
  local y = multiply_broadcast(x, w)
  if column then y = ops.squeeze(y, { -1 }) end
  if row then y = ops.squeeze(y, { column and -1 or -2 }) end
  return y
end

local attend = ops.scaled_dot_product_attention

local bind_attention = args.signature("scaled_dot_product_attention", {
  { "attn_mask", "any", doc = "bool, true for the keys that a query sees, or floats that are added to the scores; "
    .. "broadcasts to [.., h, t, s]" },
  { "key_lengths", "any", doc = "int32 [n], the number of keys of each row of q that count" },
  { "causal", "boolean", false, doc = "query i sees keys up to i + s - t" },
  { "scale", "number", 0, doc = "of the scores; 0: 1 / sqrt(d)" },
})

-- bool, true for the keys that the lengths of the rows count: [n, 1.., 1, s] of queries of `rank` dimensions.
local function counted(lengths, rank, s)
  local shape = { lengths.shape[1] }
  for d = 2, rank do shape[d] = 1 end
  return ops.less(ops.iota { size = s }, ops.reshape(lengths, shape))
end

--- softmax(scale * q k^T) v for queries q [.., h, t, d], keys k [.., g, s, d] and values v [.., g, s, e], of which each
--- head serves h / g heads of queries: y [.., h, t, e]. `causal`: the last query sees all keys, each one before it one
--- less. `attn_mask` broadcasts to [.., h, t, s]: bool, true for the keys that a query sees, or floats that are added
--- to the scores. `key_lengths` int32 [n]: of row i only so many keys count. `scale` 0: 1 / sqrt(d).
local function attention(_, q, k, v, ...)
  local how, second = ...
  local named = select("#", ...) == 1 and type(how) == "table" and not core.kind(how) and how or nil
  local heads_differ = core.kind(q) and core.kind(k) and #q.shape > 2 and #k.shape == #q.shape
    and q.shape[#q.shape - 2] ~= k.shape[#k.shape - 2]
  local masked = core.kind(how) or core.kind(second) or select("#", ...) > 2
    or named and (named.attn_mask ~= nil or named.key_lengths ~= nil)
  -- A boolean is causal, which comes first where there is no mask.
  if type(how) == "boolean" then return (heads_differ and ops.grouped_attention or attend)(q, k, v, ...) end
  if not heads_differ and not masked then return attend(q, k, v, ...) end
  local a = bind_attention(...)
  how = { causal = a.causal, scale = a.scale }
  local mask, lengths = a.attn_mask, a.key_lengths
  if lengths then
    if not core.kind(lengths) or #lengths.shape ~= 1 or lengths.shape[1] ~= q.shape[1] then
      errors.fail("scaled_dot_product_attention: key_lengths: expected int32 [%d], the number of keys of each row of q",
        q.shape[1])
    end
    local keys = k.shape[#k.shape - 1]
    lengths = within(ops, "scaled_dot_product_attention: key_lengths", lengths:astype "int32", 0, keys)
    local counts = counted(lengths, #q.shape, keys)
    if not mask then
      mask = counts
    elseif mask.dtype == "bool" then
      mask = ops.logical_and(mask, counts)
    else
      local t, sees = q.shape[#q.shape - 1], nil
      mask, sees = attention_mask.both(ops, mask, counts, a.causal and attention_mask.below(ops, t, keys))
      how.causal = false  -- the mask says so
      return ops.select(sees, ops.masked_attention(q, k, v, mask, how), 0)
    end
  end
  if not mask then return ops.grouped_attention(q, k, v, how) end
  return ops.masked_attention(q, k, v, mask, how)
end

ops.scaled_dot_product_attention = setmetatable({
  all = attend.all, operator = attend.operator, results = attend.results,
}, {
  __call = attention,
  __tostring = getmetatable(attend).__tostring,
  __index = getmetatable(attend).__index,
})

--- x times itself.
function ops.square(...)
  local x = arity.take("square", 1, ...)
  if x == nil then errors.fail "square: expected a tensor, got nil" end
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
require "mslua.activation_functions"(ops)
require "mslua.composed_functions"(ops)
require "mslua.padding"(ops)
require "mslua.grid_sample"(ops)
require "mslua.array_functions"(ops)
ops.Operator = Operator

------------------------------------------------------------------------------------- functions that are no operator

--- The shape as a list: `ops.shape(x)[2]` is Python's `[1]`.
---@return integer[]
function ops.shape(...)
  local x = arity.take("shape", 1, ...)
  if not core.kind(x) then errors.fail("shape: expected a tensor, got %s", errors.show(x)) end
  return x.shape
end

--- A tensor of no dimensions.
---@param value number
---@return Tensor
function ops.scalar_to_array(...) return core.tensor((arity.take("scalar_to_array", 1, ...))) end

--- Identity whose gradient is zero.
function ops.stop_gradient(...) return core.stop_gradient(...) end

local bind_clip = args.signature("clip_by_global_norm", {
  { "x", "list", required = true, doc = "tensors, such as gradients" },
  { "clip_norm", "number", 1, above = 0, doc = "the largest norm" },
})

--- The tensors of a list times min(1, clip_norm / norm), where norm is the L2 norm of all their elements together
--- (Pascanu et al., "On the difficulty of training recurrent neural networks", 2013):
--- `optimizer(ops.clip_by_global_norm(gradients, 1))`. A recipe has `train = { clip_norm = 1 }`. (x, clip_norm = 1)
function ops.clip_by_global_norm(...)
  local a, sum = bind_clip(...), nil
  for i, x in ipairs(a.x) do
    if type(x) ~= "userdata" or not x.dtype:find "float" then
      errors.fail("clip_by_global_norm: x: expected float tensors, got %s in place %d", errors.show(x), i)
    end
    local wide = x.dtype == "float64" and x or ops.cast(x, "float32")
    local squares = ops.reduce_sum(wide * wide)
    if sum and sum.dtype ~= squares.dtype then sum, squares = ops.cast(sum, "float64"), ops.cast(squares, "float64") end
    sum = sum and sum + squares or squares
  end
  if not sum then return {} end
  local factor, clipped = a.clip_norm / ops.maximum(ops.sqrt(sum), a.clip_norm), {}
  for i, x in ipairs(a.x) do
    local computed = x.dtype == "float64" and "float64" or "float32"
    clipped[i] = ops.cast(ops.cast(x, computed) * ops.cast(factor, computed), x.dtype)
  end
  return clipped
end

--- What reduction operators and collectives do with several values.
ops.ReduceOp = namespace.choices("ms.ops.ReduceOp", { SUM = "sum", PROD = "prod", MAX = "max", MIN = "min" })

return namespace.strict("ms.ops", ops)
