--- ViT as Hugging Face has it. Layers have two namings: transformers up to 4 and from 5.
local rows = {
  { "embeddings.cls_token", "cls_token" },
  { "embeddings.position_embeddings", "positions" },
  { "embeddings.mask_token", nil, "ignored" },
  { "embeddings.patch_embeddings.projection.weight", "embed.weight" },
  { "embeddings.patch_embeddings.projection.bias", "embed.bias" },
  { "pooler.dense.weight", nil, "ignored" },  -- of ViTModel; the classifier does not use it
  { "pooler.dense.bias", nil, "ignored" },
}

-- A dense layer or, with our names gamma and beta, a normalisation.
local function add(names, ours, how, bare, weight, bias)
  local weights, biases = {}, {}
  for i, name in ipairs(names) do weights[i], biases[i] = name .. ".weight", name .. ".bias" end
  rows[#rows + 1] = { weights, ours .. (weight or ".weight"), how, bare = bare }
  rows[#rows + 1] = { biases, ours .. (bias or ".bias"), how, bare = bare }
end

for i, part in ipairs { { "query", "q_proj" }, { "key", "k_proj" }, { "value", "v_proj" } } do
  add({ "encoder.layer.#.attention.attention." .. part[1], "layers.#.attention." .. part[2] },
    "layers.#.attention.in_proj", { i, 3 })
end
add({ "encoder.layer.#.attention.output.dense", "layers.#.attention.o_proj" }, "layers.#.attention.out_proj")
add({ "encoder.layer.#.intermediate.dense", "layers.#.mlp.fc1" }, "layers.#.intermediate")
add({ "encoder.layer.#.output.dense", "layers.#.mlp.fc2" }, "layers.#.output")
add({ "encoder.layer.#.layernorm_before", "layers.#.layernorm_before" }, "layers.#.norm_before", nil, false, ".gamma",
  ".beta")
add({ "encoder.layer.#.layernorm_after", "layers.#.layernorm_after" }, "layers.#.norm_after", nil, false, ".gamma",
  ".beta")
add({ "layernorm" }, "norm", nil, false, ".gamma", ".beta")
add({ "classifier" }, "classifier", nil, true)

local activations = { gelu = "gelu", gelu_new = "gelu_new", gelu_pytorch_tanh = "gelu_new" }

---@type mslua.Family
return {
  model_type = "vit", prefix = "vit.", rows = rows, heads = { "^classifier%." },
  required = { num_hidden_layers = true, num_attention_heads = true, hidden_size = true },
  network = function(c, has, refuse)
    local activation = activations[c.hidden_act or "gelu"]
    if not activation then refuse("hidden_act", "gelu, gelu_new or gelu_pytorch_tanh") end
    if c.qkv_bias == false then refuse("qkv_bias", "true") end
    local classes = has "classifier.weight"
    return require "mslua.models.vit" {
      image_size = c.image_size or 224, patch = c.patch_size or 16, channels = c.num_channels or 3,
      classes = classes and classes[1] or 0, layers = c.num_hidden_layers, heads = c.num_attention_heads,
      dim = c.hidden_size, hidden = c.intermediate_size, dropout = c.hidden_dropout_prob or 0,
      epsilon = c.layer_norm_eps or 1e-12, activation = activation,
    }
  end,
  config = function(net)
    local c = net.config
    return {
      architectures = { c.classes > 0 and "ViTForImageClassification" or "ViTModel" }, image_size = c.image_size,
      patch_size = c.patch, num_channels = c.channels, num_hidden_layers = c.layers, num_attention_heads = c.heads,
      hidden_size = c.dim, intermediate_size = c.hidden, hidden_dropout_prob = c.dropout,
      attention_probs_dropout_prob = 0, layer_norm_eps = c.epsilon, hidden_act = c.activation, qkv_bias = true,
      num_labels = c.classes > 0 and c.classes or nil,
    }
  end,
}
