-- Networks of pictures against torchvision's classes in float64: mslua run vision.lua VISION.json
-- tools/golden/vision.py wrote the file, from the same parameters and data.
local core = require "mslua.core"
local ms = require "mslua"
local nn = ms.nn

ms.set_context { reference_kernels = true }
for _, name in ipairs { "parameter", "state" } do
  local make = core[name]
  core[name] = function(spec)
    spec.dtype = "float64"
    return make(spec)
  end
end

local golden = core.read_json(core.options.args[1])
core.set_seed(golden.seed)

local function random(name, shape) return core.randn(shape, "float32", "golden." .. name):astype "float64" end

-- The value of a parameter: around 1 for gamma, small for what is added, else of variance 1 / fan in.
local function value_of(p)
  local values = random(p.name, p.shape)
  if p.name:find "gamma$" then return values * 0.1 + 1 end
  if #p.shape == 1 then return values * 0.1 end
  local fan_in = 1
  for d = 2, #p.shape do fan_in = fan_in * p.shape[d] end
  return values / math.sqrt(fan_in)
end

local failures = {}

local function near(what, got, wanted)
  if not (math.abs(got - wanted) <= 1e-9 * math.max(1, math.abs(wanted))) then
    failures[#failures + 1] = ("%s: expected %.12g, got %.12g"):format(what, wanted, got)
  end
end

local cross_entropy = nn.CrossEntropyLoss()

for _, case in ipairs(golden.cases) do
  local module = require("mslua.models." .. case.module)
  local net = (case["function"] == "" and module or module[case["function"]])(case.options)
  net:set_train(true)
  local trained, total = net:trainable_params(), 0
  for _, p in ipairs(trained) do
    local size = 1
    for _, n in ipairs(p.shape) do size = size * n end
    total = total + size
    core.assign(p, value_of(p))
  end
  near(case.name .. ": parameters", total, case.parameters)
  local labels = {}
  for i = 1, case.x[1] do labels[i] = (i - 1) * 3 % 10 end
  local function forward(x, y)
    local outputs = { net(x) }
    local loss = cross_entropy(outputs[1], y)
    for i = 2, #outputs do loss = loss + cross_entropy(outputs[i], y) * 0.3 end
    return loss
  end
  local values, _, gradients = core.value_and_grad(forward, {}, trained)(random("x", case.x),
    ms.Tensor(labels, ms.int32))
  near(case.name .. ": loss", values[1]:item(), case.loss)
  for i, p in ipairs(trained) do
    local wanted = case.gradient_norms[p.name]
    case.gradient_norms[p.name] = nil
    if not wanted then
      failures[#failures + 1] = ("%s: torchvision has no parameter '%s'"):format(case.name, p.name)
    else
      near(case.name .. ": gradient of " .. p.name, (gradients[i] * gradients[i]):sum():item() ^ 0.5, wanted)
    end
  end
  for name in pairs(case.gradient_norms) do
    failures[#failures + 1] = ("%s: there is no parameter '%s'"):format(case.name, name)
  end
  print(("%s: loss %.6g, %d parameters, %d gradients"):format(case.name, case.loss, total, #trained))
end
if #failures > 0 then error(table.concat(failures, "\n"), 0) end
