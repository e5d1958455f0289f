--- GPT-2 as Hugging Face has it. Its four projections are stored [in, out]; the published file has no prefix.
local function layer(file, ours, how)
  return { { "h.#." .. file .. ".weight", "blocks.#." .. ours .. ".weight", how },
    { "h.#." .. file .. ".bias", "blocks.#." .. ours .. ".bias" } }
end

local function norm(file, ours)
  return { { file .. ".weight", ours .. ".gamma" }, { file .. ".bias", ours .. ".beta" } }
end

local rows = {
  { "wte.weight", "tokens.embedding_table" },
  { "wpe.weight", "positions.embedding_table" },
  { "lm_head.weight", "tokens.embedding_table", "tied" },
  { "h.#.attn.bias", nil, "ignored" },         -- the causal mask
  { "h.#.attn.masked_bias", nil, "ignored" },  -- what it fills in
}
for _, more in ipairs {
  norm("h.#.ln_1", "blocks.#.ln1"), norm("h.#.ln_2", "blocks.#.ln2"), norm("ln_f", "ln"),
  layer("attn.c_attn", "attn.in_proj", "transposed"), layer("attn.c_proj", "attn.out_proj", "transposed"),
  layer("mlp.c_fc", "up", "transposed"), layer("mlp.c_proj", "down", "transposed"),
} do
  for _, row in ipairs(more) do rows[#rows + 1] = row end
end

local activations = { gelu_new = "gelu_new", gelu_pytorch_tanh = "gelu_new", gelu = "gelu" }

---@type mslua.Family
return {
  model_type = "gpt2", prefix = "transformer.", rows = rows,
  required = { vocab_size = true, n_layer = true, n_head = true, n_embd = true },
  network = function(c, _, refuse)
    local activation = activations[c.activation_function or "gelu_new"]
    if not activation then refuse("activation_function", "gelu_new, gelu_pytorch_tanh or gelu") end
    for _, key in ipairs { "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention" } do
      if c[key] then refuse(key) end
    end
    if c.scale_attn_weights == false then refuse "scale_attn_weights" end
    if c.tie_word_embeddings == false then refuse "tie_word_embeddings" end
    return require "mslua.models.gpt" {
      vocab = c.vocab_size, block = c.n_positions or c.n_ctx or 1024, layers = c.n_layer, heads = c.n_head,
      dim = c.n_embd, hidden = c.n_inner, dropout = c.resid_pdrop or 0.1, activation = activation,
      epsilon = c.layer_norm_epsilon or 1e-5,
    }
  end,
  config = function(net)
    local c = net.config
    return {
      architectures = { "GPT2LMHeadModel" }, vocab_size = c.vocab, n_positions = c.block, n_ctx = c.block,
      n_layer = c.layers, n_head = c.heads, n_embd = c.dim, n_inner = c.hidden, activation_function = c.activation,
      layer_norm_epsilon = c.epsilon, resid_pdrop = c.dropout, embd_pdrop = c.dropout, attn_pdrop = 0,
      tie_word_embeddings = true,
    }
  end,
}
