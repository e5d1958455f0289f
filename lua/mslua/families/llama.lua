--- Llama 2 and 3 as Hugging Face has them: rotary positions in halves.
local rows = {
  { "embed_tokens.weight", "embed_tokens.embedding_table" },
  { "norm.weight", "norm.gamma" },
  { "lm_head.weight", "lm_head.weight", bare = true, tied_to = "embed_tokens.embedding_table" },
  { "rotary_emb.inv_freq", nil, "ignored" },
  { "layers.#.self_attn.rotary_emb.inv_freq", nil, "ignored" },
}
for _, name in ipairs { "input_layernorm", "post_attention_layernorm" } do
  rows[#rows + 1] = { "layers.#." .. name .. ".weight", "layers.#." .. name .. ".gamma" }
end
for _, name in ipairs { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
  "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" } do
  for _, part in ipairs { ".weight", ".bias" } do
    rows[#rows + 1] = { "layers.#." .. name .. part, "layers.#." .. name .. part }
  end
end

-- The numbers that a type of rope_scaling has.
local needed = {
  linear = { "factor" },
  llama3 = { "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings" },
}

-- The attributes of ops.rotary_position_embedding.
local function rotary_of(c, refuse)
  local parameters = type(c.rope_parameters) == "table" and c.rope_parameters or {}
  local rotary = { base = c.rope_theta or parameters.rope_theta or 10000 }
  local s = c.rope_scaling or (parameters.rope_type and parameters)
  if type(s) ~= "table" then return rotary end
  local kind = s.rope_type or s.type or "default"
  if kind == "default" then return rotary end
  local place = c.rope_scaling and "rope_scaling" or "rope_parameters"
  if not needed[kind] then refuse(place, "the type default, linear or llama3") end
  for _, key in ipairs(needed[kind]) do
    if type(s[key]) ~= "number" then refuse(place, ("of the type %s with the number %s"):format(kind, key)) end
  end
  rotary.scaling, rotary.factor = kind, s.factor
  if kind == "llama3" then
    rotary.low_freq_factor, rotary.high_freq_factor = s.low_freq_factor, s.high_freq_factor
    rotary.original_length = s.original_max_position_embeddings
  end
  return rotary
end

local function scaling_of(rotary)
  if rotary.scaling == "none" then return nil end
  local llama3 = rotary.scaling == "llama3"
  return {
    rope_type = rotary.scaling, factor = rotary.factor, low_freq_factor = llama3 and rotary.low_freq_factor or nil,
    high_freq_factor = llama3 and rotary.high_freq_factor or nil,
    original_max_position_embeddings = llama3 and rotary.original_length or nil,
  }
end

---@type mslua.Family
return {
  model_type = "llama", prefix = "model.", rows = rows,
  required = { vocab_size = true, num_hidden_layers = true, num_attention_heads = true, hidden_size = true,
    intermediate_size = true },
  network = function(c, has, refuse)
    if (c.hidden_act or "silu") ~= "silu" then refuse("hidden_act", '"silu"') end
    if c.sliding_window then refuse "sliding_window" end
    if (c.pretraining_tp or 1) ~= 1 then refuse("pretraining_tp", "1") end
    return require "mslua.models.llama" {
      vocab = c.vocab_size, block = c.max_position_embeddings or 2048, layers = c.num_hidden_layers,
      heads = c.num_attention_heads, kv_heads = c.num_key_value_heads, dim = c.hidden_size,
      hidden = c.intermediate_size, head_dim = c.head_dim, epsilon = c.rms_norm_eps or 1e-6,
      rotary = rotary_of(c, refuse), attention_bias = c.attention_bias or false, mlp_bias = c.mlp_bias or false,
      tied = c.tie_word_embeddings or false,
    }
  end,
  config = function(net)
    local c = net.config
    return {
      architectures = { "LlamaForCausalLM" }, vocab_size = c.vocab, max_position_embeddings = c.block,
      num_hidden_layers = c.layers, num_attention_heads = c.heads, num_key_value_heads = c.kv_heads,
      hidden_size = c.dim, intermediate_size = c.hidden, head_dim = c.head_dim, rms_norm_eps = c.epsilon,
      hidden_act = "silu", rope_theta = c.rotary.base, rope_scaling = scaling_of(c.rotary),
      attention_bias = c.attention_bias, mlp_bias = c.mlp_bias, tie_word_embeddings = c.tied,
    }
  end,
}
