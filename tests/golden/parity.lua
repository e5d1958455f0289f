-- Compares a recipe's network with PyTorch's numbers: mslua run parity.lua NETWORK.json f64|f32 RECIPES
-- tools/golden/generate.py wrote the file, from the same initial values and data.
local core = require "mslua.core"
local ms = require "mslua"

local path, mode, recipes = unpack(core.options.args)
ms.set_context { reference_kernels = mode == "f64" }
local dtype = ({ f64 = "float64", f32 = "float32" })[mode]

-- JSON of numbers, plain strings, lists and objects, as a Lua table.
local function read_json(file)
  local text = assert(io.open(file, "rb")):read "*a"
  text = text:gsub("[%[%]]", { ["["] = "{", ["]"] = "}" }):gsub('("[^"]*")%s*:', "[%1]=")
  return assert(loadstring("return " .. text))()
end

local golden = read_json(path)
local case = golden[mode]

-- Parameters and states of the wanted type, whatever the cells ask for.
for _, name in ipairs { "parameter", "state" } do
  local make = core[name]
  core[name] = function(spec)
    spec.dtype = dtype
    return make(spec)
  end
end

core.set_seed(golden.seed)
core.options.overrides = {}
for name, v in pairs(case.params) do table.insert(core.options.overrides, { name, tostring(v) }) end
local recipe = dofile(recipes .. "/" .. golden.recipe .. ".lua")
local net, loss = recipe:make_network(), recipe.loss
local optimizer = recipe.optimizer
if type(optimizer) == "function" then optimizer = recipe:make_optimizer(case.steps_per_epoch) end

-- The data of a step, in streams of its own.
local function column(name, step)
  local spec, stream = case[name], ("golden.%s.%d"):format(name, step)
  if not spec.classes then
    local make = name == "x" and core.randn or core.rand
    return make(spec.shape, "float32", stream):astype(dtype)
  end
  local n = 1
  for _, size in ipairs(spec.shape) do n = n * size end
  local ids = core.rand({ n }, "float32", stream):totable()
  for i, v in ipairs(ids) do ids[i] = math.floor(v * spec.classes) end
  return core.tensor(ids, "int32"):reshape(spec.shape)
end

-- The columns of a step: a source where the network takes one, data, and labels.
local names = case.s and { "s", "x", "y" } or { "x", "y" }

local function columns(step)
  local list = {}
  for i, name in ipairs(names) do list[i] = column(name, step) end
  return unpack(list)
end

local function forward(...)
  local list = { ... }
  local y = table.remove(list)
  return loss(net(unpack(list)), y)
end

local failures, worst = {}, {}

-- Compares, relatively above 1, and keeps the largest difference of each kind.
local function near(kind, what, got, wanted, tolerance)
  local difference = math.abs(got - wanted) / math.max(1, math.abs(wanted))
  worst[kind] = math.max(worst[kind] or 0, difference)
  if not (difference <= tolerance) then
    failures[#failures + 1] = ("%s: expected %.12g within %g, got %.12g"):format(what, wanted, tolerance, got)
  end
end

net:set_train(true)
local trained, spec = optimizer:bind(net)

if mode == "f64" then
  local values, _, gradients = core.value_and_grad(forward, {}, trained)(columns(1))
  near("loss", "loss", values[1]:item(), case.losses[1], 1e-9)
  local left = {}
  for name in pairs(case.gradient_norms) do left[name] = true end
  for i, p in ipairs(trained) do
    local wanted = case.gradient_norms[p.name]
    if not wanted then error(("PyTorch's network has no parameter '%s'"):format(p.name), 0) end
    left[p.name] = nil
    local norm = (gradients[i] * gradients[i]):sum():item() ^ 0.5
    near("gradient norms", "gradient of " .. p.name, norm, wanted, 1e-9)
  end
  if next(left) then error(("mslua's network has no parameter '%s'"):format(next(left)), 0) end
end

local clip = recipe.train.clip_norm and { kind = "norm", value = recipe.train.clip_norm }
local inputs = {}
for i, name in ipairs(names) do
  inputs[i] = { name = name, dtype = column(name, 1).dtype, shape = case[name].shape }
end
local step = core.stepper {
  schedule = optimizer.schedule,
  graph = core.build_train {
    name = "golden", forward = forward, parameters = trained, optimizer = spec, clip = clip,
    inputs = inputs,
  },
}
local spread = 0
for i = 1, case.steps do
  local tolerance = mode == "f64" and 1e-6 or 1e-4
  if case.spread then
    -- PyTorch's float32 against its float64, at the worst step so far.
    spread = math.max(spread, case.spread[i])
    if i > 1 then tolerance = math.max(tolerance, 3 * spread) end
  end
  local got = step(columns(i)):item()
  near("losses", "loss of step " .. i, got, case.losses[i], tolerance)
end

for kind, difference in pairs(worst) do print(("%s: largest difference %.3g"):format(kind, difference)) end
if #failures > 0 then error(table.concat(failures, "\n"), 0) end
