-- ms.from_pretrained in bfloat16: types and values, calls, generation, the bytes that are written.
local ms = require "mslua"
local check = require "check"
local GPT, Llama, Vit = require "gpt", require "llama", require "vit"

ms.set_seed(5)

local function read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read "*a"
  file:close()
  return bytes
end

local function saved(net, name)
  os.execute("mkdir -p " .. name)
  ms.save_pretrained(net, name, { dtype = "bfloat16" })
  return name
end

local function ids_of(rows) return ms.Tensor(rows, ms.int32) end

local vit = { image_size = 8, patch = 4, layers = 2, heads = 2, dim = 16, hidden = 32, classes = 3 }
local gpt = { vocab = 19, block = 12, layers = 2, heads = 2, dim = 16, activation = "gelu_new" }
local llama = { vocab = 19, block = 12, layers = 2, heads = 4, kv_heads = 2, dim = 16, hidden = 24 }
local nets = {
  { name = "gpt", net = GPT(gpt) },
  { name = "llama", net = Llama(llama) },
  { name = "vit", net = Vit(vit), input = ms.randn({ 2, 3, 8, 8 }, "float32", "pictures") },
}

for _, case in ipairs(nets) do
  -- Larger weights, so that the most likely token is clear.
  for _, p in ipairs(case.net:get_parameters()) do
    if #p.shape == 2 then p.value = ms.randn(p.shape, "float32", p.name) * 0.5 end
  end
  local folder = saved(case.net, case.name)
  local net, wide = ms.from_pretrained(folder, { dtype = "bfloat16" }), ms.from_pretrained(folder)
  local input = case.input or ids_of { { 1, 2, 3, 4, 5 }, { 6, 7, 8, 9, 10 } }

  check.case(case.name .. ": matrices are bfloat16, vectors float32, with the file's values", function()
    local of_wide = wide:parameters_dict()
    for _, p in ipairs(net:get_parameters()) do
      check.equal({ p.name, p.dtype }, { p.name, #p.shape > 1 and "bfloat16" or "float32" })
      check.equal(p.value:astype("float32"):totable(), of_wide[p.name].value:totable())
    end
  end)

  check.case(case.name .. ": a call computes as mixed precision does with float32 parameters", function()
    net:set_train(false)
    wide:set_train(false)
    local exact = wide(input):totable()
    wide:_compute_in "bfloat16"
    local found = net(input)
    check.equal(found:astype("float32"):totable(), wide(input):astype("float32"):totable())
    check.near(found:astype("float32"):totable(), exact, 0.5)
    check.equal(found:astype("float32"):totable() ~= exact, true)
    check.fails("argument 1 is 3, expected a Tensor", net, 3)
  end)

  check.case(case.name .. ": written in bfloat16 it is the file again", function()
    local file = "/model.safetensors"
    check.equal(read(saved(net, case.name .. "2") .. file) == read(folder .. file), true)
  end)

  if not case.input then
    check.case(case.name .. ": generates what float32 parameters do in mixed precision", function()
      local prompts = { { 1, 2, 3 }, { 4, 5, 6, 7, 8, 9, 10 }, { 11 } }
      for _, how in ipairs { { count = 20, temperature = 0 }, { count = 20, top_k = 5, seed = 3 } } do
        check.equal(net:generate(prompts, how), wide:generate(prompts, how))
      end
    end)
  end
end

check.case("a part of the network can be called", function()
  local net = ms.from_pretrained("llama", "bfloat16")
  check.equal(net.layers[1].mlp(ms.ones { 2, 3, 16 }).shape, { 2, 3, 16 })
end)

check.case("a call sees a part that has another in its place", function()
  local net = ms.from_pretrained("gpt", "bfloat16")
  net:set_train(false)
  local ids = ids_of { { 1, 2, 3 } }
  local before = net(ids):astype("float32"):totable()
  local Doubled = ms.nn.Cell:extend "Doubled"
  function Doubled:init(norm) self.norm = norm end
  function Doubled:construct(x) return self.norm(x) * 2 end
  net.ln = Doubled(net.ln)
  local after = net(ids):astype("float32"):totable()
  check.near(after[1][1][1], 2 * before[1][1][1], 0.05)
end)

check.case("a network in bfloat16 is trained further", function()
  local net = ms.from_pretrained("gpt", "bfloat16")
  local model = ms.Model(net, ms.nn.CrossEntropyLoss(), ms.nn.SGD(net:trainable_params(), 0.1))
  local rows = ms.dataset.NumpySlicesDataset({ ids_of { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } },
    ids_of { { 2, 3, 4, 5 }, { 6, 7, 8, 9 } } }, { "x", "y" }):batch(2)
  local before = net:parameters_dict()["head.weight"] or net:get_parameters()[1]
  local old = before.value:astype("float32"):totable()
  model:train(3, rows, { dataset_sink_mode = false })
  check.equal(before.dtype, "bfloat16")
  check.equal(before.value:astype("float32"):totable() ~= old, true)
end)

check.case("keys and values are kept for the tokens that there may be, not for the longest sequence", function()
  local net = Llama { vocab = 19, block = 2 ^ 40, layers = 1, heads = 2, dim = 8, hidden = 8 }
  check.equal(#net:generate({ 1, 2, 3 }, { count = 5 }), 8)
end)

check.case("other types", function()
  check.fails([[expected one of "float32", "bfloat16"]], ms.from_pretrained, "gpt", { dtype = "float16" })
end)

check.case("config.json names the labels and one type; shards of before are removed", function()
  local function text(name) return read("again/" .. name) end
  os.execute "mkdir -p again"
  local net = Vit(vit)
  ms.save_pretrained(net, "again", { shard_bytes = 3000 })
  local config = text "config.json"
  check.equal(config:match '"id2label": {%s*"0": "LABEL_0",%s*"1": "LABEL_1",%s*"2": "LABEL_2"%s*}' ~= nil, true)
  check.equal(config:match '"label2id": {%s*"LABEL_0": 0,' ~= nil, true)
  local last = text "model.safetensors.index.json":match "model%-%d+%-of%-(%d+)%.safetensors"
  local shard = ("model-%s-of-%s.safetensors"):format(last, last)
  check.equal(#text(shard) > 0, true)
  -- A folder as newer versions of transformers write it.
  local file = assert(io.open("again/config.json", "w"))
  file:write((config:gsub('"torch_dtype"', '"dtype"'):gsub("LABEL_1", "dog")))
  file:close()
  ms.save_pretrained(ms.from_pretrained "again", "again", { dtype = "bfloat16" })
  local written = text "config.json"
  check.equal({ written:match '"dtype": "(%w+)"', written:match "torch_dtype" == nil, written:match '"1": "(%w+)"' },
    { "bfloat16", true, "dog" })
  check.equal(io.open("again/" .. shard), nil)
  check.equal(io.open "again/model.safetensors.index.json", nil)
end)

check.done()
