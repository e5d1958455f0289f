-- Names and shapes of published files at full size: no value is made, so no memory is needed.
local check = require "check"
local core = require "mslua.core"

local pretrained = require "mslua.pretrained"

-- Tensors of a network's files: name -> shape, their number and that of all elements.
local function files_of(family, net)
  local tensors, count, elements = {}, 0, 0
  for _, p in ipairs(net:get_parameters()) do
    local list = pretrained.names_in_files(family, p.name)
    if #list == 0 then error("no name in files for " .. p.name) end
    for _, entry in ipairs(list) do
      local shape = { unpack(p.shape) }
      if entry.how == "transposed" then shape = { shape[2], shape[1] } end
      if type(entry.how) == "table" then shape[1] = shape[1] / entry.how[2] end
      local size = 1
      for _, n in ipairs(shape) do size = size * n end
      tensors[entry.name], count, elements = table.concat(shape, " "), count + 1, elements + size
    end
  end
  return tensors, count, elements
end

-- The tensors of a list of {name, shape}; # stands for each of the layers.
local function published(layers, list)
  local tensors = {}
  for _, row in ipairs(list) do
    local names = row[1]:find "#" and layers or 1
    for i = 0, names - 1 do tensors[(row[1]:gsub("#", i))] = row[2] end
  end
  return tensors
end

local function both(name, weight, bias) return { name .. ".weight", weight }, { name .. ".bias", bias } end

local function add(list, ...)
  for _, row in ipairs { ... } do list[#list + 1] = row end
end

-- A network of the family from config.json's fields; `stored`: tensors that decide about heads.
local function network(kind, config, stored)
  local family = require("mslua.families." .. kind)
  return family, family.network(config, function(name) return (stored or {})[name] end, error)
end

check.case("GPT-2: 148 tensors, 124439808 parameters", function()
  local list = { { "wte.weight", "50257 768" }, { "wpe.weight", "1024 768" } }
  for _, name in ipairs { "h.#.ln_1", "h.#.ln_2", "ln_f" } do add(list, both(name, "768", "768")) end
  add(list, both("h.#.attn.c_attn", "768 2304", "2304"))
  add(list, both("h.#.attn.c_proj", "768 768", "768"))
  add(list, both("h.#.mlp.c_fc", "768 3072", "3072"))
  add(list, both("h.#.mlp.c_proj", "3072 768", "768"))
  local family, net = network("gpt2", { vocab_size = 50257, n_layer = 12, n_head = 12, n_embd = 768, n_ctx = 1024 })
  family = setmetatable({ prefix = "" }, { __index = family })  -- the published file has none
  local tensors, count, elements = files_of(family, net)
  check.equal({ count, elements }, { 148, 124439808 })
  check.equal(tensors, published(12, list))
end)

check.case("BERT base: 199 tensors, 109482240 parameters", function()
  local list = {
    { "embeddings.word_embeddings.weight", "30522 768" }, { "embeddings.position_embeddings.weight", "512 768" },
    { "embeddings.token_type_embeddings.weight", "2 768" },
  }
  add(list, both("embeddings.LayerNorm", "768", "768"))
  local layer = "encoder.layer.#."
  for _, part in ipairs { "query", "key", "value" } do
    add(list, both(layer .. "attention.self." .. part, "768 768", "768"))
  end
  add(list, both(layer .. "attention.output.dense", "768 768", "768"))
  add(list, both(layer .. "attention.output.LayerNorm", "768", "768"))
  add(list, both(layer .. "intermediate.dense", "3072 768", "3072"))
  add(list, both(layer .. "output.dense", "768 3072", "768"))
  add(list, both(layer .. "output.LayerNorm", "768", "768"))
  add(list, both("pooler.dense", "768 768", "768"))
  local family, net = network("bert", {
    vocab_size = 30522, num_hidden_layers = 12, num_attention_heads = 12, hidden_size = 768, intermediate_size = 3072,
  }, { ["pooler.dense.weight"] = { 768, 768 } })
  family = setmetatable({ prefix = "" }, { __index = family })
  local tensors, count, elements = files_of(family, net)
  check.equal({ count, elements }, { 199, 109482240 })
  check.equal(tensors, published(12, list))
end)

check.case("ViT-B/16: 200 tensors, 86567656 parameters", function()
  local list = {
    { "vit.embeddings.cls_token", "1 1 768" }, { "vit.embeddings.position_embeddings", "1 197 768" },
    { "vit.embeddings.patch_embeddings.projection.weight", "768 3 16 16" },
    { "vit.embeddings.patch_embeddings.projection.bias", "768" },
  }
  local layer = "vit.encoder.layer.#."
  for _, part in ipairs { "query", "key", "value" } do
    add(list, both(layer .. "attention.attention." .. part, "768 768", "768"))
  end
  add(list, both(layer .. "attention.output.dense", "768 768", "768"))
  add(list, both(layer .. "intermediate.dense", "3072 768", "3072"))
  add(list, both(layer .. "output.dense", "768 3072", "768"))
  add(list, both(layer .. "layernorm_before", "768", "768"))
  add(list, both(layer .. "layernorm_after", "768", "768"))
  add(list, both("vit.layernorm", "768", "768"))
  add(list, both("classifier", "1000 768", "1000"))
  local family, net = network("vit", { num_hidden_layers = 12, num_attention_heads = 12, hidden_size = 768 },
    { ["classifier.weight"] = { 1000, 768 } })
  local tensors, count, elements = files_of(family, net)
  check.equal({ count, elements }, { 200, 86567656 })
  check.equal(tensors, published(12, list))
end)

check.case("Llama 3.2 1B: 146 tensors, 1235814400 parameters", function()
  local layer = "model.layers.#."
  local list = {
    { "model.embed_tokens.weight", "128256 2048" }, { "model.norm.weight", "2048" },
    { layer .. "input_layernorm.weight", "2048" }, { layer .. "post_attention_layernorm.weight", "2048" },
    { layer .. "self_attn.q_proj.weight", "2048 2048" }, { layer .. "self_attn.k_proj.weight", "512 2048" },
    { layer .. "self_attn.v_proj.weight", "512 2048" }, { layer .. "self_attn.o_proj.weight", "2048 2048" },
    { layer .. "mlp.gate_proj.weight", "8192 2048" }, { layer .. "mlp.up_proj.weight", "8192 2048" },
    { layer .. "mlp.down_proj.weight", "2048 8192" },
  }
  local family, net = network("llama", {
    vocab_size = 128256, num_hidden_layers = 16, num_attention_heads = 32, num_key_value_heads = 8, hidden_size = 2048,
    intermediate_size = 8192, head_dim = 64, rope_theta = 500000, tie_word_embeddings = true,
    max_position_embeddings = 131072,
  })
  local tensors, count, elements = files_of(family, net)
  check.equal({ count, elements }, { 146, 1235814400 })
  check.equal(tensors, published(16, list))
end)

-- By the names of torchvision and timm; counts of batches are not written.
local function resnet(name, expansion, depths)
  local list = { { "conv1.weight", "64 3 7 7" }, { "fc.weight", "1000 " .. 512 * expansion }, { "fc.bias", "1000" } }
  local function norm(at, channels)
    for _, part in ipairs { "weight", "bias", "running_mean", "running_var" } do
      add(list, { at .. "." .. part, tostring(channels) })
    end
  end
  norm("bn1", 64)
  local n_in = 64
  for stage, depth in ipairs(depths) do
    local planes = 32 * 2 ^ stage
    for i = 0, depth - 1 do
      local at = ("layer%d.%d."):format(stage, i)
      local convs = expansion == 1 and { { n_in, 3, planes }, { planes, 3, planes } }
        or { { n_in, 1, planes }, { planes, 3, planes }, { planes, 1, 4 * planes } }
      for k, c in ipairs(convs) do
        add(list, { ("%sconv%d.weight"):format(at, k), ("%d %d %d %d"):format(c[3], c[1], c[2], c[2]) })
        norm(at .. "bn" .. k, c[3])
      end
      if n_in ~= expansion * planes then
        add(list, { at .. "downsample.0.weight", ("%d %d 1 1"):format(expansion * planes, n_in) })
        norm(at .. "downsample.1", expansion * planes)
      end
      n_in = expansion * planes
    end
  end
  local family, net = network("resnet", { architecture = name }, {
    ["conv1.weight"] = { 64, 3, 7, 7 }, ["fc.weight"] = { 1000, 512 * expansion },
  })
  local tensors, count, elements = files_of(family, net)
  check.equal(tensors, published(1, list))
  return { count, elements }
end

check.case("ResNet-18 and 50: 102 and 267 tensors, running statistics among them", function()
  check.equal(resnet("resnet18", 1, { 2, 2, 2, 2 }), { 102, 11699112 })
  check.equal(resnet("resnet50", 4, { 3, 4, 6, 3 }), { 267, 25610152 })
end)

check.case("no value was made", function()
  local status = assert(io.open "/proc/self/status"):read "*a"
  local peak = tonumber(status:match "VmHWM:%s*(%d+)")
  if peak > 400000 then error(("the peak of memory is %d kB"):format(peak)) end
  assert(core)
end)

check.done()
