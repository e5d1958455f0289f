--- GPT whose feed-forward parts are mixtures of experts, as in Switch Transformers (Fedus et al., 2021); the rest is
--- that of mslua.models.gpt.
-- Letters of shapes: n sequences, t tokens, d width, v vocabulary.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local kv_cache = require "mslua.kv_cache"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }

local Block = nn.Cell:extend "MoeBlock"

-- Projections that end in the residual stream begin smaller by sqrt(2 layers): GPT-2.
function Block:init(c)
  local residual = { "normal", sigma = 0.02 / math.sqrt(2 * c.layers) }
  self.ln1 = nn.LayerNorm(c.dim, c.epsilon)
  self.attn = nn.MultiheadAttention(c.dim, c.heads, {
    causal = true, dropout = c.dropout, weight_init = normal, out_init = residual, bias_init = "zeros",
  })
  self.ln2 = nn.LayerNorm(c.dim, c.epsilon)
  self.moe = nn.MoE {
    dim = c.dim, hidden = c.hidden, experts = c.experts, top_k = c.top_k, capacity_factor = c.capacity_factor,
    weight_init = normal, out_init = residual,
  }
  self.dropout = nn.Dropout { p = c.dropout }
end

--- x [n, t, d] to the same, and the balance loss of its experts.
function Block:construct(x)
  x = x + self.attn(self.ln1(x))
  local y, balance = self.moe(self.ln2(x))
  return x + self.dropout(y), balance
end

local MoeGPT = nn.Cell:extend "MoeGPT"

local bind = args.signature("MoeGPT", {
  { "vocab", "integer", required = true, min = 1 }, { "block", "integer", required = true, min = 1 },
  { "layers", "integer", required = true, min = 1 }, { "heads", "integer", required = true, min = 1 },
  { "dim", "integer", required = true, min = 1 }, { "hidden", "integer", required = true, min = 1 },
  { "experts", "integer", required = true, min = 1 }, { "top_k", "integer", 2, min = 1 },
  { "capacity_factor", "number", 1.25, above = 0 }, { "dropout", "number", 0, min = 0, below = 1 },
  { "epsilon", "number", 1e-5, above = 0 },
})

--- `MoeGPT { vocab = 65, block = 64, layers = 4, heads = 4, dim = 128, hidden = 256, experts = 8 }`; block: most tokens
--- of a sequence; hidden: of each expert; experts, top_k and capacity_factor: as nn.MoE. (vocab, block, layers, heads,
--- dim, hidden, experts, top_k = 2, capacity_factor = 1.25, dropout = 0, epsilon = 1e-5)
function MoeGPT:init(...)
  local c = bind(...)
  self.config, self.block = c, c.block
  self.tokens = nn.Embedding(c.vocab, c.dim, { embedding_table = normal })
  self.positions = nn.Embedding(c.block, c.dim, { embedding_table = normal })
  self.dropout = nn.Dropout { p = c.dropout }
  self.blocks = nn.CellList()
  for _ = 1, c.layers do self.blocks:append(Block(c)) end
  self.ln = nn.LayerNorm(c.dim, c.epsilon)
  self.head = ops.MatMul { transpose_b = true }
end

--- ids int32 [n, t] give logits [n, t, v]; in training { logits, the mean of the blocks' balance losses }.
function MoeGPT:construct(ids)
  local n, t = unpack(ids.shape)
  local c = self.config
  if t > c.block then errors.fail("MoeGPT: %d tokens, the network takes at most block = %d", t, c.block) end
  local x = self.tokens(ids) + ops.reshape(self.positions(kv_cache.positions(t)), { -1, t, c.dim })
  x = self.dropout(x)
  local balance
  for _, block in self.blocks:each() do
    local more
    x, more = block(x)
    balance = balance and balance + more or more
  end
  x = kv_cache.last(self.ln(x))
  local rows = ops.reshape(x, { -1, c.dim })
  local logits = ops.reshape(self.head(rows, self.tokens.embedding_table), { n, -1, c.vocab })
  return core.training() and { logits, balance / c.layers } or logits
end

return MoeGPT
