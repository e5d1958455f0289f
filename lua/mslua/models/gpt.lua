--- GPT-2's network, as nanoGPT has it: learned positions, normalisation before each part, output embedding tied to the
--- input's.
-- Letters of shapes: n sequences, t tokens, d width, v vocabulary.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }

local Block = nn.Cell:extend "Block"

-- Projections that end in the residual stream begin smaller by sqrt(2 layers): GPT-2.
function Block:init(c)
  local residual = { "normal", sigma = 0.02 / math.sqrt(2 * c.layers) }
  self.ln1 = nn.LayerNorm(c.dim)
  self.attn = nn.MultiheadAttention(c.dim, c.heads, {
    causal = true, dropout = c.dropout, weight_init = normal, out_init = residual, bias_init = "zeros",
  })
  self.ln2 = nn.LayerNorm(c.dim)
  self.up = nn.Dense(c.dim, 4 * c.dim, { weight_init = normal, bias_init = "zeros" })
  self.down = nn.Dense(4 * c.dim, c.dim, { weight_init = residual, bias_init = "zeros" })
  self.dropout = nn.Dropout { p = c.dropout }
  self.gelu = nn.GELU { approximate = false }
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
})

--- `GPT { vocab = 65, block = 64, layers = 4, heads = 4, dim = 128, dropout = 0 }`; block: most tokens of a sequence.
--- (vocab, block, layers, heads, dim, dropout = 0)
function GPT:init(...)
  local c = bind(...)
  self.config = c
  self.tokens = nn.Embedding(c.vocab, c.dim, { embedding_table = normal })
  self.positions = nn.Embedding(c.block, c.dim, { embedding_table = normal })
  self.dropout = nn.Dropout { p = c.dropout }
  self.blocks = nn.CellList()
  for _ = 1, c.layers do self.blocks:append(Block(c)) end
  self.ln = nn.LayerNorm(c.dim)
  self.head = ops.MatMul { transpose_b = true }
end

--- ids int32 [n, t] give logits [n, t, v].
function GPT:construct(ids)
  local n, t = unpack(ids.shape)
  local c = self.config
  if t > c.block then error(("GPT: %d tokens, the network takes at most block = %d"):format(t, c.block), 0) end
  local x = self.tokens(ids) + ops.reshape(self.positions(ms.arange(t)), { 1, t, c.dim })
  x = self.dropout(x)
  for _, block in self.blocks:each() do x = block(x) end
  local rows = ops.reshape(self.ln(x), { n * t, c.dim })
  return ops.reshape(self.head(rows, self.tokens.embedding_table), { n, t, c.vocab })
end

--- Continues a sequence: `ids` (a list of token ids) grows by `count` tokens, drawn with the temperature from the
--- `top_k` most likely (0: from all); `random()` gives numbers in [0, 1).
---@param ids integer[]
---@param count integer
---@param options? {temperature: number?, top_k: integer?, random: (fun(): number)?}
---@return integer[] ids
function GPT:generate(ids, count, options)
  options = options or {}
  local temperature, top_k, random = options.temperature or 0.8, options.top_k or 0, options.random or math.random
  self:set_train(false)
  local block = self.config.block
  for _ = 1, count do
    -- One shape always, so that the network is compiled once: the newest tokens, padded behind.
    local window, last = {}, math.min(#ids, block)
    for i = 1, block do window[i] = ids[#ids - last + i] or 0 end
    local logits = self(ms.Tensor({ window }, ms.int32))[1][last]:totable()
    local order = {}
    for i = 1, #logits do order[i] = i end
    table.sort(order, function(a, b) return logits[a] > logits[b] end)
    local kept, sum, weights = top_k > 0 and math.min(top_k, #order) or #order, 0, {}
    for i = 1, kept do
      weights[i] = math.exp((logits[order[i]] - logits[order[1]]) / temperature)
      sum = sum + weights[i]
    end
    local at, i = random() * sum, 1
    while i < kept and at >= weights[i] do
      at, i = at - weights[i], i + 1
    end
    ids[#ids + 1] = order[i] - 1
  end
  return ids
end

return GPT
