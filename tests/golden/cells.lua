-- Compares cells with PyTorch's in float64: mslua run cells.lua cells.json
-- tools/golden/cells.py wrote the file, from the same initial values and data.
local core = require "mslua.core"
local ms = require "mslua"

ms.set_context { reference_kernels = true }

-- JSON of numbers, plain strings, booleans, lists and objects, as a Lua table.
local function read_json(file)
  local text = assert(io.open(file, "rb")):read "*a"
  text = text:gsub("[%[%]]", { ["["] = "{", ["]"] = "}" }):gsub('("[^"]*")%s*:', "[%1]=")
  return assert(loadstring("return " .. text))()
end

local golden = read_json(core.options.args[1])
for _, name in ipairs { "parameter", "state" } do
  local make = core[name]
  core[name] = function(spec)
    spec.dtype = "float64"
    return make(spec)
  end
end

local failures, worst = {}, 0

local function near(what, got, wanted, tolerance)
  local difference = math.abs(got - wanted) / math.max(1, math.abs(wanted))
  worst = math.max(worst, difference)
  if not (difference <= tolerance) then
    failures[#failures + 1] = ("%s: expected %.12g within %g, got %.12g"):format(what, wanted, tolerance, got)
  end
end

local function norm(x) return (x * x):sum():item() ^ 0.5 end
local function numbers(stream, shape) return core.randn(shape, "float32", stream):astype "float64" end

-- Of a transformer: the arguments behind x, by their names.
local arguments = {
  Encoder = { "src_mask", "src_key_padding_mask" },
  Decoder = { "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask" },
}

local function after(row, column) return row < column end

-- bool [#rows, columns], true where hides(row's value, column).
local function hiding(rows, columns, hides)
  local bits = {}
  for i, row in ipairs(rows) do
    bits[i] = {}
    for j = 1, columns do bits[i][j] = hides(row, j) and 1 or 0 end
  end
  return ms.ops.greater(core.tensor(bits, "int32"), 0)
end

local function transformer(case)
  local layer, kind = ms.nn["Transformer" .. case.transformer .. "Layer"], case.transformer
  case.options.dropout = 0
  local net = layer(case.options)
  if case.layers > 0 then
    net = ms.nn["Transformer" .. kind](net, case.layers, ms.nn.LayerNorm(case.options.d_model))
  end
  local time = case.options.batch_first and 2 or 1
  local t, s = case.x[time], (case.memory or case.x)[time]
  local given, n = {}, #arguments[kind]
  for i, name in ipairs(arguments[kind]) do
    local keys = name:find "memory" and s or t
    if name == "memory" then
      given[i] = numbers("memory", case.memory)
    elseif case.masks[name] == "numbers" then
      given[i] = numbers("mask", { t, keys })
    elseif case.masks[name] == "future" then
      local rows = {}
      for row = 1, t do rows[row] = row end
      given[i] = hiding(rows, keys, after)
    elseif case.lengths[name] then
      given[i] = hiding(case.lengths[name], keys, after)
    end
  end
  return net, function(x) return { (net(x, unpack(given, 1, n))) } end
end

-- The states that the call begins with, and what it gives in a row: y, h, c.
local function states_of(case)
  local o = case.options
  local n = #case.x == 2 and case.x[1] or case.x[o.batch_first and 1 or 2]
  local shape = { (o.num_layers or 1) * (o.bidirectional and 2 or 1), n, o.hidden_size }
  if #case.x == 2 then table.remove(shape, 1) end
  local states = {}
  for i = 1, case.states do states[i] = numbers("state." .. i, shape) end
  return #states == 2 and states or states[1]
end

local function in_a_row(first, second)
  if type(second) == "table" and not core.kind(second) then return { first, second[1], second[2] } end
  return { first, second }
end

local function recurrent(case)
  local net, states = ms.nn[case.cell](case.options), states_of(case)
  local lengths = case.lengths and core.tensor(case.lengths, "int32")
  return net, function(x) return in_a_row(net(x, states, lengths)) end
end

local function bag(case)
  local net = ms.nn[case.bag](case.options)
  local ids, offsets = core.tensor(case.ids, "int32"), case.offsets and core.tensor(case.offsets, "int32")
  return net, function(x) return { net(ids, offsets) * x } end
end

local function layer(case)
  local net = next(case.options) and ms.nn[case.layer](case.options) or ms.nn[case.layer]()
  net:set_train(true)
  return net, function(x) return { (net(x)) } end
end

for number, case in ipairs(golden.cases) do
  core.set_seed(golden.seed)
  local net, outputs = (case.layer and layer or case.transformer and transformer or case.bag and bag or recurrent)(case)
  for _, p in ipairs(net:get_parameters()) do core.assign(p, numbers(p.name, p.shape) * 0.3) end
  local function loss_of(x)
    local sum
    for i, y in ipairs(outputs(x)) do
      local part = (y * numbers("out." .. i, y.shape)):sum()
      sum = sum and sum + part or part
    end
    return sum
  end
  local parameters = net:trainable_params()
  local values, inputs, gradients = core.value_and_grad(loss_of, { 1 }, parameters)(numbers("x", case.x))
  local name = ("case %d, %s"):format(number, case.cell or case.layer or case.transformer or case.bag)
  local tolerance = case.tolerance or 1e-9
  near(name .. ": loss", values[1]:item(), case.loss, tolerance)
  near(name .. ": gradient of x", norm(inputs[1]), case.x_gradient, tolerance)
  for i, p in ipairs(parameters) do
    local wanted = case.gradient_norms[p.name]
    if not wanted then error(("%s: PyTorch's cell has no parameter '%s'"):format(name, p.name), 0) end
    near(("%s: gradient of %s"):format(name, p.name), norm(gradients[i]), wanted, tolerance)
    case.gradient_norms[p.name] = nil
  end
  local left = next(case.gradient_norms)
  if left then error(("%s: mslua's cell has no parameter '%s'"):format(name, left), 0) end
end

-- LazyAdam against torch.optim.SparseAdam, with kernels of the step.
ms.set_context { reference_kernels = false }
local table_of = ms.nn.Embedding(9, 2)
core.assign(table_of.embedding_table, numbers("embedding_table", { 9, 2 }) * 0.3)
local weights = numbers("out.1", { 4, 2 })
local lazy = ms.nn.LazyAdam {
  params = table_of:trainable_params(), learning_rate = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 1e-3,
}
local Loss = ms.nn.Cell:extend "Loss"
function Loss:init(net) self.net = net end
function Loss:construct(ids)
  local rows = self.net(ids)
  return (rows * rows * weights):sum()
end
local lazy_step = ms.nn.TrainOneStepCell(Loss(table_of), lazy)
for _, ids in ipairs(golden.sparse_adam.steps) do lazy_step(core.tensor(ids, "int32")) end
for i, row in ipairs(table_of.embedding_table.value:totable()) do
  for j, got in ipairs(row) do
    near(("SparseAdam: row %d, %d"):format(i, j), got, golden.sparse_adam.table[i][j], 1e-9)
  end
end

print(("%d cases, largest difference %.3g"):format(#golden.cases, worst))
if #failures > 0 then error(table.concat(failures, "\n"), 0) end
