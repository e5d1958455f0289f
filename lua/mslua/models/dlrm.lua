--- DLRM (Naumov et al., 2019): a multilayer perceptron of numbers, a table of embeddings for each category, the inner
--- products of all pairs of these vectors, and a perceptron over them.
-- Letters of shapes: n rows of the batch, m numbers, t tables, d width of an embedding.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local Dlrm = nn.Cell:extend "Dlrm"

local bind = args.signature("Dlrm", {
  { "numbers", "integer", 13, min = 1 }, { "tables", "integer", 26, min = 1 },
  { "rows", "integer", required = true, min = 1, doc = "of each table" },
  { "dim", "integer", 16, min = 1 },
  { "bottom", "integers", { 64, 32 }, doc = "widths of the hidden layers that the numbers pass" },
  { "top", "integers", { 64 }, doc = "widths of the hidden layers behind the products" },
  { "classes", "integer", 2, min = 1 },
  { "multiple_of", "integer", 1, min = 1, doc = "of the height of tables: nn.Embedding's" },
  { "shards", "integer", 1, min = 1, doc = "ranks that share the rows of each table" },
})

-- Dense layers with a ReLU behind each, but for the last one where `open`.
local function perceptron(n_in, widths, open)
  local layers = nn.SequentialCell {}
  for i, width in ipairs(widths) do
    layers:append(nn.Dense(n_in, width))
    if not (open and i == #widths) then layers:append(nn.ReLU()) end
    n_in = width
  end
  return layers
end

local function with(list, last)
  local all = { unpack(list) }
  all[#all + 1] = last
  return all
end

--- `Dlrm { rows = 100000 }`: 13 numbers and 26 categories, as Criteo's logs have them.
function Dlrm:init(...)
  local c = bind(...)
  self.config = c
  self.bottom = perceptron(c.numbers, with(c.bottom, c.dim))
  self.tables = nn.CellList {}
  for _ = 1, c.tables do
    local embedding = nn.Embedding(c.rows, c.dim, {
      embedding_table = { "uniform", scale = 1 / math.sqrt(c.rows) }, multiple_of = c.multiple_of,
    })
    if c.shards > 1 then embedding:shard { { c.shards, 1 }, { 1 } } end
    self.tables:append(embedding)
  end
  -- Where the pairs of different vectors are in the flat matrix of products.
  local pairs_of, vectors = {}, c.tables + 1
  for i = 1, vectors - 1 do
    for j = 0, i - 1 do pairs_of[#pairs_of + 1] = i * vectors + j end
  end
  self.pairs = ms.Tensor(pairs_of, ms.int32)
  self.top = perceptron(c.dim + #pairs_of, with(c.top, c.classes), true)
end

--- Numbers float32 [n, m] and categories int32 [n, t], each below `rows`, give logits [n, classes].
function Dlrm:construct(numbers, ids)
  local c, n = self.config, numbers.shape[1]
  local dense = self.bottom(ops.log(ops.maximum(numbers, 0) + 1))
  local vectors = { ops.reshape(dense, { n, 1, c.dim }) }
  for i, embedding in self.tables:each() do
    local column = ops.reshape(ops.strided_slice(ids, { 1, i }, { n + 1, i + 1 }), { n })
    vectors[i + 1] = ops.reshape(embedding(column), { n, 1, c.dim })
  end
  local x = ops.concat(vectors, 2)
  local products = ops.reshape(ops.matmul(x, x, { transpose_b = true }), { n, (c.tables + 1) ^ 2 })
  return self.top(ops.concat({ dense, ops.gather(products, self.pairs, { axis = 2 }) }, 2))
end

return Dlrm
