--- The Transformer of translation (Vaswani et al., 2017): an encoder, and a decoder that attends to its result. Words
--- of both languages are of one vocabulary, whose table is that of the input, of the output and of the logits.
-- Letters of shapes: n sentences, s and t tokens of source and target, d width, v vocabulary.
local args = require "mslua.args"
local errors = require "mslua.errors"
local kv_cache = require "mslua.kv_cache"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- The two dense layers of a block, and what each block does: normalise, compute, add.
local function feed_forward(self, c)
  self.linear1 = nn.Dense(c.dim, c.hidden, { weight_init = "xavier_uniform", bias_init = "zeros" })
  self.linear2 = nn.Dense(c.hidden, c.dim, { weight_init = "xavier_uniform", bias_init = "zeros" })
  self.dropout = nn.Dropout { p = c.dropout }
end

local function fed_forward(self, x) return self.dropout(self.linear2(self.dropout(ops.relu(self.linear1(x))))) end

local function attention(c, causal)
  return nn.MultiheadAttention(c.dim, c.heads, {
    dropout = c.dropout, causal = causal, weight_init = "xavier_uniform", bias_init = "zeros",
  })
end

local EncoderBlock = nn.Cell:extend "TransformerEncoderBlock"

function EncoderBlock:init(c)
  self.self_attn = attention(c, false)
  self.norm1, self.norm2 = nn.LayerNorm(c.dim, c.epsilon), nn.LayerNorm(c.dim, c.epsilon)
  feed_forward(self, c)
end

--- x [n, s, d] and hidden bool [n, s], true for padding, give x's shape.
function EncoderBlock:construct(x, hidden)
  local y = self.norm1(x)
  x = x + self.self_attn(y, y, y, { key_padding_mask = hidden })
  return x + fed_forward(self, self.norm2(x))
end

local DecoderBlock = nn.Cell:extend "TransformerDecoderBlock"

function DecoderBlock:init(c)
  self.self_attn, self.multihead_attn = attention(c, true), attention(c, false)
  self.norm1, self.norm2 = nn.LayerNorm(c.dim, c.epsilon), nn.LayerNorm(c.dim, c.epsilon)
  self.norm3 = nn.LayerNorm(c.dim, c.epsilon)
  feed_forward(self, c)
end

--- x [n, t, d], the encoder's result [n, s, d] and hidden bool [n, s] give x's shape. Padding of the target stands
--- behind its tokens, so that none of them sees it.
function DecoderBlock:construct(x, memory, hidden)
  x = x + self.self_attn(self.norm1(x))
  x = x + self.multihead_attn(self.norm2(x), memory, memory, { key_padding_mask = hidden })
  return x + fed_forward(self, self.norm3(x))
end

local Transformer = nn.Cell:extend "Transformer"

local bind = args.signature("Transformer", {
  { "vocab", "integer", required = true, min = 1 }, { "block", "integer", required = true, min = 1 },
  { "layers", "integer", required = true, min = 1 }, { "heads", "integer", required = true, min = 1 },
  { "dim", "integer", required = true, min = 2 }, { "hidden", "integer", min = 1 },
  { "dropout", "number", 0.1, min = 0, below = 1 }, { "epsilon", "number", 1e-5, above = 0 },
  { "pad", "integer", 0, min = 0 },
})

-- Sines and cosines of the positions from 0: [block, d], the sines first.
local function waves(block, dim)
  local rows, half = {}, math.floor(dim / 2)
  for t = 1, block do
    local row = {}
    for i = 1, half do
      local angle = (t - 1) / 10000 ^ ((i - 1) / math.max(1, half - 1))
      row[i], row[half + i] = math.sin(angle), math.cos(angle)
    end
    for i = 2 * half + 1, dim do row[i] = 0 end
    rows[t] = row
  end
  return rows
end

--- `Transformer { vocab = 8000, block = 64, layers = 3, heads = 4, dim = 256 }`. block: most tokens of a sentence;
--- layers: of the encoder, and as many of the decoder; hidden: of the feed-forward part, default 4 dim; pad: the id of
--- padding. Normalisation comes before each part. (vocab, block, layers, heads, dim, hidden, dropout = 0.1, epsilon =
--- 1e-5, pad = 0)
function Transformer:init(...)
  local c = bind(...)
  c.hidden = c.hidden or 4 * c.dim
  self.config, self.block = c, c.block
  self.tokens = nn.Embedding(c.vocab, c.dim, { embedding_table = { "normal", sigma = c.dim ^ -0.5 } })
  self.dropout = nn.Dropout { p = c.dropout }
  self.encoder, self.decoder = nn.CellList(), nn.CellList()
  for _ = 1, c.layers do
    self.encoder:append(EncoderBlock(c))
    self.decoder:append(DecoderBlock(c))
  end
  self.encoder_norm, self.decoder_norm = nn.LayerNorm(c.dim, c.epsilon), nn.LayerNorm(c.dim, c.epsilon)
  self.waves = ms.Tensor(waves(c.block, c.dim), ms.float32)
  self.head = ops.MatMul { transpose_b = true }
end

-- Ids int32 [n, t] at positions [t] or [n, t] as vectors [n, t, d].
function Transformer:_embed(ids, positions)
  local c = self.config
  local x = self.tokens(ids)
  local places = ops.cast(ops.gather(self.waves, positions), x.dtype)
  return self.dropout(x * math.sqrt(c.dim) + ops.reshape(places, { -1, ids.shape[2], c.dim }))
end

local function check_length(name, ids, block)
  if ids.shape[2] > block then
    errors.fail("Transformer: %s has %d tokens, the network takes at most block = %d", name, ids.shape[2], block)
  end
end

--- Source ids int32 [n, s] to { the encoder's result [n, s, d], int32 [n, s], 0 for padding }.
function Transformer:encode(source)
  check_length("the source", source, self.block)
  local seen = ops.cast(ops.not_equal(source, self.config.pad), "int32")
  local hidden, x = ops.equal(seen, 0), self:_embed(source, ops.iota { size = source.shape[2] })
  for _, block in self.encoder:each() do x = block(x, hidden) end
  return { self.encoder_norm(x), seen }
end

--- Source ids int32 [n, s] and the target's [n, t], each row padded behind its tokens, give logits [n, t, v] of the
--- tokens that follow those of the target.
function Transformer:construct(source, target)
  check_length("the target", target, self.block)
  local n, t = unpack(target.shape)
  local c = self.config
  local memory, seen = unpack(kv_cache.keep(self, function() return self:encode(source) end))
  local hidden = ops.equal(seen, 0)
  local x = self:_embed(target, kv_cache.positions(t))
  for _, block in self.decoder:each() do x = block(x, memory, hidden) end
  x = kv_cache.last(self.decoder_norm(x))
  local rows = ops.reshape(x, { -1, c.dim })
  return ops.reshape(self.head(rows, self.tokens.embedding_table), { n, -1, c.vocab })
end

return Transformer
