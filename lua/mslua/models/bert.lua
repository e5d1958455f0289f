--- BERT (Devlin et al., 2019): an encoder with a padding mask, and the heads of its published files.
-- Letters of shapes: n sequences, t tokens, d width, v vocabulary.
local args = require "mslua.args"
local ms = require "mslua"
local errors = require "mslua.errors"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }

local function dense(n_in, n_out) return nn.Dense(n_in, n_out, { weight_init = normal, bias_init = "zeros" }) end

local Layer = nn.Cell:extend "BertLayer"

function Layer:init(c)
  self.attention = nn.MultiheadAttention(c.dim, c.heads, {
    dropout = c.dropout, weight_init = normal, bias_init = "zeros",
  })
  self.attention_norm = nn.LayerNorm(c.dim, c.epsilon)
  self.intermediate = dense(c.dim, c.hidden)
  self.output = dense(c.hidden, c.dim)
  self.output_norm = nn.LayerNorm(c.dim, c.epsilon)
  self.dropout = nn.Dropout { p = c.dropout }
  self.gelu = nn.GELU { approximate = c.activation == "gelu_new" }
end

function Layer:construct(x, hidden)
  x = self.attention_norm(x + self.attention(x, x, x, { key_padding_mask = hidden }))
  return self.output_norm(x + self.dropout(self.output(self.gelu(self.intermediate(x)))))
end

local MlmHead = nn.Cell:extend "BertMlmHead"

function MlmHead:init(c)
  self.transform = dense(c.dim, c.dim)
  self.transform_norm = nn.LayerNorm(c.dim, c.epsilon)
  self.gelu = nn.GELU { approximate = c.activation == "gelu_new" }
  self:parameter("bias", { c.vocab }, "zeros")
end

--- x [n, t, d] and the table of words [v, d] give logits [n, t, v].
function MlmHead:construct(x, words)
  return ops.matmul(self.transform_norm(self.gelu(self.transform(x))), words, { transpose_b = true }) + self.bias
end

local Bert = nn.Cell:extend "Bert"

local bind = args.signature("Bert", {
  { "vocab", "integer", required = true, min = 1 }, { "block", "integer", 512, min = 1 },
  { "layers", "integer", required = true, min = 1 }, { "heads", "integer", required = true, min = 1 },
  { "dim", "integer", required = true, min = 1 }, { "hidden", "integer", min = 1 },
  { "segments", "integer", 2, min = 1 }, { "dropout", "number", 0.1, min = 0, below = 1 },
  { "epsilon", "number", 1e-12, above = 0 },
  { "activation", "string", "gelu", choices = { "gelu", "gelu_new" } },
  { "head", "string", "none", choices = { "none", "mlm", "classifier", "qa" } },
  { "classes", "integer", 2, min = 1 }, { "pooler", "boolean", true },
})

--- `Bert { vocab = 30522, layers = 12, heads = 12, dim = 768 }`. block: most tokens; hidden: default 4 dim. head:
--- "none" gives the last layer [n, t, d] and, with the pooler, the pooled [n, d]; "mlm" logits [n, t, v];
--- "classifier" logits [n, classes] from the pooled; "qa" [n, t, 2], of begin and end.
function Bert:init(...)
  local c = bind(...)
  c.hidden = c.hidden or 4 * c.dim
  if c.head == "classifier" then c.pooler = true end
  self.config, self.family, self.block = c, "bert", c.block
  self.words = nn.Embedding(c.vocab, c.dim, { embedding_table = normal })
  self.positions = nn.Embedding(c.block, c.dim, { embedding_table = normal })
  self.segments = nn.Embedding(c.segments, c.dim, { embedding_table = normal })
  self.norm = nn.LayerNorm(c.dim, c.epsilon)
  self.dropout = nn.Dropout { p = c.dropout }
  self.layers = nn.CellList()
  for _ = 1, c.layers do self.layers:append(Layer(c)) end
  if c.pooler then self.pooler = dense(c.dim, c.dim) end
  if c.head == "mlm" then self.mlm = MlmHead(c) end
  if c.head == "classifier" then self.classifier = dense(c.dim, c.classes) end
  if c.head == "qa" then self.qa = dense(c.dim, 2) end
end

--- ids int32 [n, t], segments int32 [n, t] (default: 0), mask [n, t], not 0 for tokens that count (default: all), give
--- the last layer [n, t, d].
function Bert:encode(ids, segments, mask)
  local t, c = ids.shape[2], self.config
  if t > c.block then errors.fail("Bert: %d tokens, the network takes at most block = %d", t, c.block) end
  local x = self.words(ids) + ops.reshape(self.positions(ms.arange(t)), { 1, t, c.dim })
  x = x + self.segments(segments or ms.zeros(ids.shape, ms.int32))
  x = self.dropout(self.norm(x))
  local hidden = mask and ops.equal(mask, 0)
  for _, layer in self.layers:each() do x = layer(x, hidden) end
  return x
end

--- ids, segments and mask as encode takes them, give what the head says.
function Bert:construct(ids, segments, mask)
  local x, c = self:encode(ids, segments, mask), self.config
  if self.mlm then return self.mlm(x, self.words.embedding_table) end
  if self.qa then return self.qa(x) end
  if not self.pooler then return x end
  local n = x.shape[1]
  local first = ops.reshape(ops.strided_slice(x, { 1, 1, 1 }, { n + 1, 2, c.dim + 1 }), { n, c.dim })
  local pooled = ops.tanh(self.pooler(first))
  if self.classifier then return self.classifier(self.dropout(pooled)) end
  return x, pooled
end

return Bert
