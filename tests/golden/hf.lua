-- Folders in the form of Hugging Face against PyTorch's numbers: mslua run hf.lua GOLDEN.json FOLDER OUT f64|f32
-- tools/golden/hf.py wrote the numbers and the folder. OUT is a folder to write; what it gets is read again.
local core = require "mslua.core"
local ms = require "mslua"

local golden_path, folder, out, mode = unpack(core.options.args)
ms.set_context { reference_kernels = mode == "f64" }
local dtype = ({ f64 = "float64", f32 = "float32" })[mode]
for _, name in ipairs { "parameter", "state" } do
  local make = core[name]
  core[name] = function(spec)
    spec.dtype = dtype
    return make(spec)
  end
end

local golden = core.read_json(golden_path)
local inputs = {}
for i, values in ipairs(golden.inputs) do
  local pictures = golden.family == "vit" or golden.family == "resnet"
  inputs[i] = core.tensor(values, pictures and dtype or "int32")
end

local function flat(list, to)
  to = to or {}
  for _, v in ipairs(list) do
    if type(v) == "table" then flat(v, to) else to[#to + 1] = v end
  end
  return to
end

local tolerance = mode == "f64" and 1e-10 or 1e-5

local function check(from)
  local net = ms.from_pretrained(from)
  net:set_train(false)
  local got, wanted, worst = flat(net(unpack(inputs)):totable()), flat(golden.logits), 0
  assert(#got == #wanted, ("%d logits, expected %d"):format(#got, #wanted))
  for i, v in ipairs(got) do
    local difference = math.abs(v - wanted[i]) / math.max(1, math.abs(wanted[i]))
    assert(difference <= tolerance, ("%s: logit %d is %.12g, expected %.12g"):format(from, i, v, wanted[i]))
    worst = math.max(worst, difference)
  end
  print(("%s: %d logits, worst difference %.2g"):format(from, #got, worst))
  return net
end

local net = check(folder)
ms.save_pretrained(net, out)
local again = check(out)
-- The same tensors, under another limit for shards too.
ms.save_pretrained(again, out, { shard_bytes = 3000 })
check(out)
