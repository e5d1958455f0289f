-- Compares the networks that make pictures with PyTorch's in float64: mslua run pictures.lua pictures.json
-- tools/golden/pictures.py wrote the file, from the same initial values and data.
local core = require "mslua.core"
local ms = require "mslua"
local dcgan, vae = require "mslua.models.dcgan", require "mslua.models.vae"

ms.set_context { reference_kernels = true }

-- JSON of numbers, plain strings, lists and objects, as a Lua table.
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

local function whole(net) return function(...) return { net(...) } end end

-- name -> the network of these options, and the outputs that it gives.
local networks = {
  generator = function(options)
    local net = dcgan.Generator(options)
    return net, whole(net)
  end,
  discriminator = function(options)
    local net = dcgan.Discriminator(options)
    return net, whole(net)
  end,
  vae = function(options)
    local net, loss = vae.Vae(options), vae.Elbo()
    return net, function(x, noise)
      local output = net(x, noise)
      return { output.logits, loss:rows(output, x) }
    end
  end,
  unet = function(options)
    local net = require "mslua.models.unet"(options)
    return net, whole(net)
  end,
  ddpm = function(options)
    local net = require "mslua.models.ddpm"(options)
    return net, function(x, noise, time)
      local at = ms.ops.reshape(time * (0.999 * math.pi / 2), { -1, 1, 1, 1 })
      return { net(ms.ops.cos(at) * x + ms.ops.sin(at) * noise, time), net:loss(x, noise, time) }
    end
  end,
}

local failures, worst = {}, 0

local function near(what, got, wanted)
  local difference = math.abs(got - wanted) / math.max(1, math.abs(wanted))
  worst = math.max(worst, difference)
  if not (difference <= 1e-9) then
    failures[#failures + 1] = ("%s: expected %.12g within 1e-9, got %.12g"):format(what, wanted, got)
  end
end

local function numbers(stream, shape)
  local make = stream:find "^u%." and core.rand or core.randn
  return make(shape, "float32", stream):astype "float64"
end

for _, case in ipairs(golden.cases) do
  core.set_seed(golden.seed)
  local net, outputs = networks[case.network](case.options)
  net:set_train(true)
  net:_as_root()
  local parameters = net:trainable_params()
  for _, p in ipairs(parameters) do
    core.assign(p, numbers(p.name, p.shape) * 0.1 + (p.name:find "gamma$" and 1 or 0))
  end
  local given = {}
  for i, input in ipairs(case.inputs) do given[i] = numbers(input[1], input[2]) end
  local function loss_of(...)
    local sum
    for i, y in ipairs(outputs(...)) do
      local part = (y * numbers("out." .. i, y.shape)):sum()
      sum = sum and sum + part or part
    end
    return sum
  end
  local values, _, gradients = core.value_and_grad(loss_of, {}, parameters)(unpack(given))
  near(case.network .. ": loss", values[1]:item(), case.loss)
  for i, p in ipairs(parameters) do
    local wanted = case.gradient_norms[p.name]
    if not wanted then error(("%s: PyTorch's network has no parameter '%s'"):format(case.network, p.name), 0) end
    near(("%s: gradient of %s"):format(case.network, p.name), (gradients[i] * gradients[i]):sum():item() ^ 0.5, wanted)
    case.gradient_norms[p.name] = nil
  end
  local left = next(case.gradient_norms)
  if left then error(("%s: mslua's network has no parameter '%s'"):format(case.network, left), 0) end
end

print(("%d networks, largest difference %.3g"):format(#golden.cases, worst))
if #failures > 0 then error(table.concat(failures, "\n"), 0) end
