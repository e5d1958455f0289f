--- Recurrent cells: nn.LSTM GRU RNN over sequences, nn.LSTMCell GRUCell RNNCell for one step. Their weights have
--- PyTorch's names and shapes.
-- Letters of shapes: t steps, n sequences, i numbers a step, h numbers of a state, g numbers of all gates.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local Dropout = require "mslua.nn.cells.dropout"

local M = {}

---@class mslua.RecurrentKind
---@field gates integer blocks of h rows in the weights
---@field states integer how many states there are: h, and c of an LSTM
---@field operator string
---@field doc string the formulas
---@type table<string, mslua.RecurrentKind>
local kinds = {
  LSTM = {
    gates = 4, states = 2, operator = "lstm",
    doc = "long short-term memory (Hochreiter and Schmidhuber, 1997): gates i, f, g, o; c = f c + i g, h = o tanh(c)",
  },
  GRU = {
    gates = 3, states = 1, operator = "gru",
    doc = "gated recurrent units (Cho et al., 2014): gates r, z, n; n = tanh(x_n + r (w h + b)_n), h = (1 - z) n + z h",
  },
  RNN = {
    gates = 1, states = 1, operator = "rnn",
    doc = "Elman's recurrent units: h = tanh(w x + b + w h + b), or relu of it",
  },
}

local nonlinearity = { "nonlinearity", "string", "tanh", choices = { "tanh", "relu" },
  doc = "the function of the sum" }

-- A zero, or another number, of this shape.
local function filled(value, shape, dtype) return ops.broadcast_to(core.tensor(value):astype(dtype), shape) end

-- The weights of one direction of one layer, as parameters of `cell` whose names end in `suffix`.
local function make_weights(cell, kind, input_size, hidden_size, has_bias, suffix)
  local g, init = kind.gates * hidden_size, { "uniform", scale = 1 / math.sqrt(hidden_size) }
  cell:parameter("weight_ih" .. suffix, { g, input_size }, init)
  cell:parameter("weight_hh" .. suffix, { g, hidden_size }, init)
  if not has_bias then return end
  cell:parameter("bias_ih" .. suffix, { g }, init)
  cell:parameter("bias_hh" .. suffix, { g }, init)
end

-- x [t, n, i] through one direction of one layer: y [t, n, h], then the last states.
local function run(cell, kind, suffix, x, states, lengths, reverse)
  local weight, bias_ih, bias = cell["weight_hh" .. suffix], cell["bias_ih" .. suffix], cell["bias_hh" .. suffix]
  local gates = ops.matmul(x, cell["weight_ih" .. suffix], { transpose_b = true })
  if not bias then
    bias = filled(0, { weight.shape[1] }, x.dtype)
  elseif kind.operator == "gru" then
    gates = gates + bias_ih
  else
    bias = bias_ih + bias
  end
  local operands = { gates, weight, bias, states[1] }
  if kind.states == 2 then operands[5] = states[2] end
  operands[#operands + 1] = lengths
  operands[#operands + 1] = { reverse = reverse, nonlinearity = cell.nonlinearity }
  return ops[kind.operator].all(unpack(operands))
end

local function check_tensor(name, what, x, shape)
  local fits = core.kind(x) and #x.shape == #shape
  for d = 1, fits and #shape or 0 do fits = fits and (shape[d] == x.shape[d] or type(shape[d]) == "string") end
  if fits then return end
  errors.fail("%s: %s: expected [%s], got %s", name, what, table.concat(shape, ", "),
    core.kind(x) and errors.show(x.shape) or errors.show(x))
end

-- The states that a call begins with, each [.., n, h]: those given, or zeros.
local function first_states(self, given, shape, dtype)
  local count = self.kind.states
  if given == nil then
    local zeros = filled(0, shape, dtype)
    return { zeros, count == 2 and zeros or nil }
  end
  local states = count == 1 and { given } or given
  if type(states) ~= "table" or core.kind(states) or #states ~= count then
    errors.fail("%s: hx: expected %s, got %s", self.class_name, count == 2 and "the states {h, c}" or "the state h",
      errors.show(given))
  end
  for s, state in ipairs(states) do check_tensor(self.class_name, s == 1 and "hx" or "hx: c", state, shape) end
  return states
end

------------------------------------------------------------------------------------------------------------ sequences

local Layers = Cell:extend "RecurrentLayers"
Layers._takes_any = true  -- it says which shape it expects

local function suffix_of(layer, direction) return ("_l%d%s"):format(layer - 1, direction == 2 and "_reverse" or "") end

function Layers:_make(a)
  self.input_size, self.hidden_size, self.num_layers = a.input_size, a.hidden_size, a.num_layers
  self.batch_first, self.directions = a.batch_first, a.bidirectional and 2 or 1
  self.nonlinearity = a.nonlinearity
  if a.dropout > 0 and a.num_layers == 1 then
    errors.fail("%s: dropout = %g acts between layers: it needs num_layers of 2 or more, got 1", self.class_name,
      a.dropout)
  end
  for layer = 1, a.num_layers do
    for direction = 1, self.directions do
      make_weights(self, self.kind, layer == 1 and a.input_size or self.directions * a.hidden_size, a.hidden_size,
        a.has_bias, suffix_of(layer, direction))
    end
  end
  self.dropout = Dropout { p = a.dropout }
end

-- State number `index` of all layers and directions.
local function pick(index, whole)
  local n, h = whole.shape[2], whole.shape[3]
  return ops.reshape(ops.strided_slice(whole, { index, 1, 1 }, { index + 1, n + 1, h + 1 }), { n, h })
end

-- x [t, n, i] with 0 behind the last step of each row: the gradients of the weights are products with all of x, and
-- NaN times 0 is NaN.
local function without_padding(x, seq_length)
  local steps = ops.reshape(ops.iota { size = x.shape[1] }, { -1, 1, 1 })
  return ops.select(ops.less(steps, ops.cast(ops.reshape(seq_length, { 1, -1, 1 }), "int32")), x, 0)
end

function Layers:construct(x, hx, seq_length)
  local kind, name = self.kind, self.class_name
  check_tensor(name, "x", x, self.batch_first and { "n", "t", self.input_size } or { "t", "n", self.input_size })
  if self.batch_first then x = ops.transpose(x, { 2, 1, 3 }) end
  local t, n = x.shape[1], x.shape[2]
  local states = first_states(self, hx, { self.num_layers * self.directions, n, self.hidden_size }, x.dtype)
  if seq_length ~= nil then
    check_tensor(name, "seq_length", seq_length, { n })
    x = without_padding(x, seq_length)
  end
  local lengths = seq_length or filled(t, { n }, "int32")
  local last = {}
  for layer = 1, self.num_layers do
    if layer > 1 then x = self.dropout(x) end
    local sides = {}
    for direction = 1, self.directions do
      local index, own = #last + 1, {}
      for s = 1, kind.states do own[s] = pick(index, states[s]) end
      local y, h, c = run(self, kind, suffix_of(layer, direction), x, own, lengths, direction == 2)
      sides[direction], last[index] = y, { h, c }
    end
    x = #sides == 1 and sides[1] or ops.concat(sides, 3)
  end
  local ends = {}
  for s = 1, kind.states do
    local parts = {}
    for i, state in ipairs(last) do parts[i] = state[s] end
    ends[s] = ops.stack(parts, { axis = 1 })
  end
  if self.batch_first then x = ops.transpose(x, { 2, 1, 3 }) end
  return x, kind.states == 2 and ends or ends[1]
end

function Layers:extra()
  return ("%d -> %d, %d layers%s"):format(self.input_size, self.hidden_size, self.num_layers,
    self.directions == 2 and ", both directions" or "")
end

----------------------------------------------------------------------------------------------------------- single steps

local Step = Cell:extend "RecurrentStep"
Step._takes_any = true

function Step:_make(a)
  self.input_size, self.hidden_size, self.nonlinearity = a.input_size, a.hidden_size, a.nonlinearity
  make_weights(self, self.kind, a.input_size, a.hidden_size, a.has_bias, "")
end

function Step:construct(x, hx)
  check_tensor(self.class_name, "x", x, { "n", self.input_size })
  local n = x.shape[1]
  local states = first_states(self, hx, { n, self.hidden_size }, x.dtype)
  local _, h, c = run(self, self.kind, "", ops.reshape(x, { 1, n, self.input_size }), states,
    filled(1, { n }, "int32"), false)
  if self.kind.states == 2 then return h, c end
  return h
end

function Step:extra() return ("%d -> %d"):format(self.input_size, self.hidden_size) end

--------------------------------------------------------------------------------------------------------------- classes

for name, kind in pairs(kinds) do
  local sizes = { { "input_size", "integer", required = true, min = 1, doc = "size of one step of x" },
    { "hidden_size", "integer", required = true, min = 1, doc = "size of the state" } }
  local has_bias = { "has_bias", "boolean", true, doc = "there are biases bias_ih and bias_hh" }
  local layers = { sizes[1], sizes[2], { "num_layers", "integer", 1, min = 1,
    doc = "layers, each of which reads the results of the one before it" } }
  if name == "RNN" then layers[#layers + 1] = nonlinearity end
  for _, field in ipairs { has_bias,
    { "batch_first", "boolean", false, doc = "true: x and y are [n, t, ..]; false: [t, n, ..]" },
    { "dropout", "number", 0, min = 0, below = 1,
      doc = "the probability of a zero between layers, in training; above 0 it needs num_layers of 2 or more" },
    { "bidirectional", "boolean", false,
      doc = "each layer also reads the steps from the last to the first; y has 2 hidden_size numbers a step" } } do
    layers[#layers + 1] = field
  end
  local bind_layers = args.signature(name, layers)
  local Sequence = Layers:extend(name)
  Sequence.kind = kind
  local state = kind.states == 2 and "the states {h, c}" or "the state h"
  Sequence.doc = ("Layers of %s. x [t, n, input_size], or [n, t, input_size] with batch_first, gives y of hidden_size "
    .. "numbers a step (twice as many of both directions), and %s after the last step, each [layers x directions, n, "
    .. "hidden_size]: what the next call may begin with. seq_length int32 [n]: steps of each row; y is 0 after them, "
    .. "and what x has there does not matter. dropout: between layers. Called with (x, hx, seq_length)."):format(
      kind.doc, state)
  function Sequence:init(...) self:_make(bind_layers(...)) end
  M[name] = Sequence

  local steps = { sizes[1], sizes[2], has_bias }
  if name == "RNN" then steps[#steps + 1] = nonlinearity end
  local bind_step = args.signature(name .. "Cell", steps)
  local Single = Step:extend(name .. "Cell")
  Single.kind = kind
  Single.doc = ("One step of %s. x [n, input_size] and %s, each [n, hidden_size] (default: zeros), give %s after the "
    .. "step. Called with (x, hx)."):format(kind.doc, state, kind.states == 2 and "h and c" or "h")
  function Single:init(...) self:_make(bind_step(...)) end
  M[name .. "Cell"] = Single
end

return M
