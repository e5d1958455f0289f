--- GPT-2's network, as nanoGPT has it: learned positions, normalisation before each part, output embedding tied to the
--- input's. With activation "gelu_new" it is that of the published GPT-2 files.
-- Letters of shapes: n sequences, t tokens, d width, v vocabulary.
local args = require "mslua.args"
local errors = require "mslua.errors"
local kv_cache = require "mslua.kv_cache"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }

local Block = nn.Cell:extend "Block"

-- Projections that end in the residual stream begin smaller by sqrt(2 layers): GPT-2.
function Block:init(c)
  local residual = { "normal", sigma = 0.02 / math.sqrt(2 * c.layers) }
  self.ln1 = nn.LayerNorm(c.dim, c.epsilon)
  self.attn = nn.MultiheadAttention(c.dim, c.heads, {
    causal = true, dropout = c.dropout, weight_init = normal, out_init = residual, bias_init = "zeros",
  })
  self.ln2 = nn.LayerNorm(c.dim, c.epsilon)
  self.up = nn.Dense(c.dim, c.hidden, { weight_init = normal, bias_init = "zeros" })
  self.down = nn.Dense(c.hidden, c.dim, { weight_init = residual, bias_init = "zeros" })
  self.dropout = nn.Dropout { p = c.dropout }
  self.gelu = nn.GELU { approximate = c.activation == "gelu_new" }
end

--- x [n, t, d] to the same.
function Block:construct(x)
  x = x + self.attn(self.ln1(x))
  return x + self.dropout(self.down(self.gelu(self.up(self.ln2(x)))))
end

local GPT = nn.Cell:extend "GPT"

local bind = args.signature("GPT", {
  { "vocab", "integer", required = true, min = 1 }, { "block", "integer", required = true, min = 1 },
  { "layers", "integer", required = true, min = 1 }, { "heads", "integer", required = true, min = 1 },
  { "dim", "integer", required = true, min = 1 }, { "dropout", "number", 0, min = 0, below = 1 },
  { "activation", "string", "gelu", choices = { "gelu", "gelu_new" } },
  { "epsilon", "number", 1e-5, above = 0 },
  { "hidden", "integer", min = 1 },
})

--- `GPT { vocab = 65, block = 64, layers = 4, heads = 4, dim = 128, dropout = 0 }`; block: most tokens of a sequence;
--- activation "gelu", or "gelu_new", the tanh formula; hidden: width of the feed-forward part, default 4 dim.
--- (vocab, block, layers, heads, dim, dropout = 0, activation = "gelu", epsilon = 1e-5, hidden)
function GPT:init(...)
  local c = bind(...)
  c.hidden = c.hidden or 4 * c.dim
  self.config, self.family, self.block = c, "gpt2", c.block
  self.tokens = nn.Embedding(c.vocab, c.dim, { embedding_table = normal })
  self.positions = nn.Embedding(c.block, c.dim, { embedding_table = normal })
  self.dropout = nn.Dropout { p = c.dropout }
  self.blocks = nn.CellList()
  for _ = 1, c.layers do self.blocks:append(Block(c)) end
  self.ln = nn.LayerNorm(c.dim, c.epsilon)
  self.head = ops.MatMul { transpose_b = true }
end

--- ids int32 [n, t] give logits [n, t, v].
function GPT:construct(ids)
  local n, t = unpack(ids.shape)
  local c = self.config
  if t > c.block then errors.fail("GPT: %d tokens, the network takes at most block = %d", t, c.block) end
  local x = self.tokens(ids) + ops.reshape(self.positions(kv_cache.positions(t)), { -1, t, c.dim })
  x = self.dropout(x)
  for _, block in self.blocks:each() do x = block(x) end
  x = kv_cache.last(self.ln(x))
  local rows = ops.reshape(x, { -1, c.dim })
  return ops.reshape(self.head(rows, self.tokens.embedding_table), { n, -1, c.vocab })
end

return GPT
