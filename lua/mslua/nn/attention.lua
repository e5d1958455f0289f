--- nn.MultiheadAttention: softmax(Q K^T / sqrt(d)) V in several heads (Vaswani et al., 2017).
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local Dense = require "mslua.nn.dense"
local Dropout = require "mslua.nn.dropout"

local Attention = Cell:extend "MultiheadAttention"

--- What to do instead of giving more arguments: of a class of cells, for the error.
Attention.instead_of_more = "query, key and value are one tensor here, and there are no masks; write other attention "
  .. "with ops.matmul and ops.softmax, or ops.scaled_dot_product_attention(q, k, v, {causal = true})"

local bind = args.signature("MultiheadAttention", {
  { "embed_dim", "integer", required = true, min = 1 },
  { "num_heads", "integer", required = true, min = 1 },
  { "dropout", "number", 0, min = 0, below = 1 },
  { "has_bias", "boolean", true },
  { "causal", "boolean", false },
  { "weight_init", "any" },
  { "out_init", "any" },
  { "bias_init", "any" },
})

--- Self attention in several heads (Vaswani et al., 2017): `nn.MultiheadAttention(128, 4, {causal = true})`. Query, key
--- and value come from one projection `in_proj` [3 e, e]; `out_init`: how out_proj begins, when not as in_proj.
--- `causal`: a position sees itself and those before it. Dropout acts on the result of `out_proj`.
function Attention:init(...)
  local a = bind(...)
  if a.embed_dim % a.num_heads ~= 0 then
    errors.fail("MultiheadAttention: embed_dim = %d is not a multiple of num_heads = %d", a.embed_dim, a.num_heads)
  end
  self.embed_dim, self.num_heads, self.causal = a.embed_dim, a.num_heads, a.causal
  self.in_proj = Dense(a.embed_dim, 3 * a.embed_dim, {
    weight_init = a.weight_init, bias_init = a.bias_init, has_bias = a.has_bias,
  })
  self.out_proj = Dense(a.embed_dim, a.embed_dim, {
    weight_init = a.out_init or a.weight_init, bias_init = a.bias_init, has_bias = a.has_bias,
  })
  self.dropout = Dropout { p = a.dropout }
end

--- x [n, t, e] gives [n, t, e].
function Attention:construct(x)
  local n, t, e = unpack(x.shape)
  local heads, width = self.num_heads, e / self.num_heads
  local parts = { ops.split(self.in_proj(x), 3, 3) }  -- query, key, value, each [n, t, e]
  for i, part in ipairs(parts) do
    parts[i] = ops.transpose(ops.reshape(part, { n, t, heads, width }), { 1, 3, 2, 4 })  -- [n, heads, t, width]
  end
  local q, k, v = unpack(parts)
  local y = (ops.scaled_dot_product_attention(q, k, v, { causal = self.causal }))
  y = ops.reshape(ops.transpose(y, { 1, 3, 2, 4 }), { n, t, e })
  return self.dropout(self.out_proj(y))
end

function Attention:extra()
  return ("%d, %d heads%s"):format(self.embed_dim, self.num_heads, self.causal and ", causal" or "")
end

return Attention
