--- Llama 2 and 3 (Touvron et al., 2023): RMS normalisation, rotary positions, grouped heads, SwiGLU. The fields have
--- the names of the published files.
-- Letters of shapes: n sequences, t tokens, d width, v vocabulary.
local args = require "mslua.args"
local errors = require "mslua.errors"
local kv_cache = require "mslua.kv_cache"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }

local function dense(n_in, n_out, has_bias)
  return nn.Dense(n_in, n_out, { weight_init = normal, bias_init = "zeros", has_bias = has_bias })
end

local Attention = nn.Cell:extend "LlamaAttention"

function Attention:init(c)
  self.c = c
  self.q_proj = dense(c.dim, c.heads * c.head_dim, c.attention_bias)
  self.k_proj = dense(c.dim, c.kv_heads * c.head_dim, c.attention_bias)
  self.v_proj = dense(c.dim, c.kv_heads * c.head_dim, c.attention_bias)
  self.o_proj = dense(c.heads * c.head_dim, c.dim, c.attention_bias)
end

--- x [n, t, d] and positions [t] or [n, t] to x's shape.
function Attention:construct(x, positions)
  local n, t = unpack(x.shape)
  local c = self.c
  local function heads(y, count) return ops.transpose(ops.reshape(y, { n, t, count, c.head_dim }), { 1, 3, 2, 4 }) end
  local q = ops.rotary_position_embedding(heads(self.q_proj(x), c.heads), positions, c.rotary)
  local k = ops.rotary_position_embedding(heads(self.k_proj(x), c.kv_heads), positions, c.rotary)
  local v = heads(self.v_proj(x), c.kv_heads)
  local y = kv_cache.attend(self, q, k, v, { causal = true })
  return self.o_proj(ops.reshape(ops.transpose(y, { 1, 3, 2, 4 }), { n, t, c.heads * c.head_dim }))
end

local Mlp = nn.Cell:extend "LlamaMlp"

function Mlp:init(c)
  self.gate_proj = dense(c.dim, c.hidden, c.mlp_bias)
  self.up_proj = dense(c.dim, c.hidden, c.mlp_bias)
  self.down_proj = dense(c.hidden, c.dim, c.mlp_bias)
end

function Mlp:construct(x) return self.down_proj(ops.silu(self.gate_proj(x)) * self.up_proj(x)) end

local Block = nn.Cell:extend "LlamaBlock"

function Block:init(c)
  self.input_layernorm = nn.RMSNorm(c.dim, c.epsilon)
  self.self_attn = Attention(c)
  self.post_attention_layernorm = nn.RMSNorm(c.dim, c.epsilon)
  self.mlp = Mlp(c)
end

function Block:construct(x, positions)
  x = x + self.self_attn(self.input_layernorm(x), positions)
  return x + self.mlp(self.post_attention_layernorm(x))
end

local Llama = nn.Cell:extend "Llama"

-- The attributes of ops.rotary_position_embedding.
local rotary_fields = {
  { "mode", "string", "halves", choices = { "halves", "interleaved" } }, { "base", "number", 10000, above = 0 },
  { "scaling", "string", "none", choices = { "none", "linear", "llama3" } }, { "factor", "number", 1, above = 0 },
  { "low_freq_factor", "number", 1, above = 0 }, { "high_freq_factor", "number", 4, above = 0 },
  { "original_length", "number", 8192, above = 0 },
}

local bind = args.signature("Llama", {
  { "vocab", "integer", required = true, min = 1 }, { "block", "integer", required = true, min = 1 },
  { "layers", "integer", required = true, min = 1 }, { "heads", "integer", required = true, min = 1 },
  { "kv_heads", "integer", min = 1 }, { "dim", "integer", required = true, min = 1 },
  { "hidden", "integer", required = true, min = 1 }, { "head_dim", "integer", min = 2 },
  { "epsilon", "number", 1e-5, above = 0 }, { "rotary", "table", {}, fields = rotary_fields },
  { "tied", "boolean", false },
  { "attention_bias", "boolean", false }, { "mlp_bias", "boolean", false },
})

--- `Llama { vocab = 32000, block = 2048, layers = 6, heads = 6, kv_heads = 2, dim = 288, hidden = 768 }`. block: most
--- tokens of a sequence; kv_heads: default heads; head_dim: default dim / heads; rotary: attributes of
--- ops.rotary_position_embedding, such as base; tied: the output embedding is the input's.
function Llama:init(...)
  local c = bind(...)
  c.kv_heads = c.kv_heads or c.heads
  c.head_dim = c.head_dim or c.dim / c.heads
  if c.head_dim ~= math.floor(c.head_dim) or c.head_dim % 2 ~= 0 then
    errors.fail("Llama: dim = %d over heads = %d is not an even number: give head_dim", c.dim, c.heads)
  elseif c.heads % c.kv_heads ~= 0 then
    errors.fail("Llama: heads = %d is not a multiple of kv_heads = %d", c.heads, c.kv_heads)
  end
  self.config, self.family, self.block = c, "llama", c.block
  self.embed_tokens = nn.Embedding(c.vocab, c.dim, { embedding_table = normal })
  self.layers = nn.CellList()
  for _ = 1, c.layers do self.layers:append(Block(c)) end
  self.norm = nn.RMSNorm(c.dim, c.epsilon)
  if not c.tied then self.lm_head = dense(c.dim, c.vocab, false) end
  self.head = ops.MatMul { transpose_b = true }
end

--- ids int32 [n, t] give logits [n, t, v].
function Llama:construct(ids)
  local n, t = unpack(ids.shape)
  local c = self.config
  if t > c.block then errors.fail("Llama: %d tokens, the network takes at most block = %d", t, c.block) end
  local x, positions = self.embed_tokens(ids), kv_cache.positions(t)
  for _, block in self.layers:each() do x = block(x, positions) end
  x = kv_cache.last(self.norm(x))
  if self.lm_head then return self.lm_head(x) end
  local rows = ops.reshape(x, { -1, c.dim })
  return ops.reshape(self.head(rows, self.embed_tokens.embedding_table), { n, -1, c.vocab })
end

return Llama
