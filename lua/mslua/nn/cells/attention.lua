--- nn.MultiheadAttention: softmax(Q K^T / sqrt(d)) V in several heads (Vaswani et al., 2017).
local args = require "mslua.args"
local attention_mask = require "mslua.attention_mask"
local core = require "mslua.core"
local errors = require "mslua.errors"
local kv_cache = require "mslua.kv_cache"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local Dense = require "mslua.nn.cells.dense"
local Dropout = require "mslua.nn.cells.dropout"

local Attention = Cell:extend "MultiheadAttention"

local bind = args.signature("MultiheadAttention", {
  { "embed_dim", "integer", required = true, min = 1,
    doc = "the size e of each position of query, key, value and result; a multiple of num_heads" },
  { "num_heads", "integer", required = true, min = 1, doc = "the number of heads, each of embed_dim / num_heads" },
  { "dropout", "number", 0, min = 0, below = 1,
    doc = "the probability of a zero in the result of out_proj, in training; PyTorch's acts on the attention weights" },
  { "has_bias", "boolean", true, doc = "in_proj and out_proj have biases" },
  { "causal", "boolean", false, doc = "true: each position sees itself and those before it; false: it sees all" },
  { "weight_init", "initializer", doc = "the initial weight of in_proj, [3 e, e]; default: that of nn.Dense" },
  { "out_init", "initializer", doc = "the initial weight of out_proj, [e, e]; default: weight_init" },
  { "bias_init", "initializer", doc = "the initial biases of both; default: those of nn.Dense" },
})

--- Attention in several heads (Vaswani et al., 2017): `nn.MultiheadAttention(128, 4, {causal = true})`. Query, key and
--- value are projected by `in_proj` [3 e, e]; `out_init`: how out_proj begins, when not as in_proj. `causal`: a
--- position sees itself and those before it. Dropout acts on the result of `out_proj`.
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

-- The parts of in_proj that project `x`, from part `first` on, `count` of them.
local function project(self, x, first, count)
  local e, dense = self.embed_dim, self.in_proj
  local rows, from = count * e, (first - 1) * e + 1
  local weight = ops.strided_slice(dense.weight, { from, 1 }, { from + rows, e + 1 })
  local shape = x.shape
  local flat = ops.reshape(x, { -1, e })
  local y = ops.matmul(flat, weight, { transpose_b = true })
  if dense.bias then y = y + ops.strided_slice(dense.bias, { from }, { from + rows }) end
  if dense.lora then y = y + dense.lora(flat, from, rows) end
  y = ops.reshape(y, { shape[1], shape[2], rows })
  return { ops.split(y, 3, count) }
end

local known_masks = { attn_mask = true, key_padding_mask = true }

-- The masks of a call as scaled_dot_product_attention takes one: true for the keys that are seen, or floats that are
-- added. Of floats and key_padding_mask, with what `causal` hides, also which queries see a key at all.
local function mask_of(self, masks, queries, keys)
  if masks ~= nil and (type(masks) ~= "table" or core.kind(masks)) then
    errors.fail("MultiheadAttention: expected a table with attn_mask or key_padding_mask, got %s", errors.show(masks))
  end
  for name in pairs(masks or {}) do
    if not known_masks[name] then
      errors.fail("MultiheadAttention: unknown argument '%s', expected attn_mask or key_padding_mask", tostring(name))
    end
  end
  local mask, hidden = masks and masks.attn_mask, masks and masks.key_padding_mask
  local n, s = keys.shape[1], keys.shape[2]
  if mask and mask.dtype == "bool" then mask = ops.logical_not(mask) end
  if mask and #mask.shape == 3 then mask = ops.expand_dims(mask, 2) end  -- [n, 1, t, s]
  if not hidden then return mask end
  if not core.kind(hidden) or hidden.dtype ~= "bool" or #hidden.shape ~= 2 or hidden.shape[1] ~= n
    or hidden.shape[2] ~= s then
    errors.fail("MultiheadAttention: key_padding_mask: expected bool [%d, %d], true for keys that are left out, got %s",
      n, s, errors.show(hidden))
  end
  local seen = ops.logical_not(ops.reshape(hidden, { n, 1, 1, s }))
  if not mask then return seen end
  if mask.dtype == "bool" then return ops.logical_and(mask, seen) end
  return attention_mask.both(ops, mask, seen, self.causal and attention_mask.below(ops, queries.shape[2], s))
end

--- query [n, t, e], key and value [n, s, e] (default: the query, and the key) give [n, t, e]. masks: attn_mask [t, s]
--- or [n, t, s], bool, true where a query must not see a key, or floats that are added to the scores; key_padding_mask
--- bool [n, s], true for keys that are left out (PyTorch's meaning of both). (query, key, value, {attn_mask,
--- key_padding_mask})
function Attention:construct(query, key, value, masks)
  if type(key) == "table" then
    key, masks = nil, key
  elseif type(value) == "table" then
    value, masks = nil, value
  end
  key = key or query
  value = value or key
  for _, named in ipairs { { "query", query }, { "key", key }, { "value", value } } do
    local name, x = named[1], named[2]
    if not core.kind(x) then
      errors.fail("MultiheadAttention: %s: expected a tensor, got %s", name, errors.show(x))
    elseif #x.shape ~= 3 or x.shape[1] ~= query.shape[1] or x.shape[3] ~= self.embed_dim then
      errors.fail("MultiheadAttention: %s: expected [%s, s, %d], got %s", name, query.shape[1] or "n", self.embed_dim,
        errors.show(x.shape))
    end
  end
  local n, t, e = unpack(query.shape)
  local heads, width = self.num_heads, self.embed_dim / self.num_heads
  local parts
  if rawequal(key, query) and rawequal(value, query) then
    parts = { ops.split(self.in_proj(query), 3, 3) }  -- query, key, value, each [n, t, e]
  elseif rawequal(key, value) then
    -- While tokens are generated, what is attended to stays the same.
    local seen = kv_cache.keep(self, function() return project(self, key, 2, 2) end, true)
    parts = { project(self, query, 1, 1)[1], seen[1], seen[2] }
  else
    parts = { project(self, query, 1, 1)[1], project(self, key, 2, 1)[1], project(self, value, 3, 1)[1] }
  end
  for i, part in ipairs(parts) do
    -- [n, heads, t, width]
    parts[i] = ops.transpose(ops.reshape(part, { n, part.shape[2], heads, width }), { 1, 3, 2, 4 })
  end
  local q, k, v = unpack(parts)
  local mask, sees = mask_of(self, masks, query, key)
  local y
  if mask or not self.causal then
    y = ops.scaled_dot_product_attention(q, k, v, { causal = self.causal and not sees, attn_mask = mask })
  else
    y = kv_cache.attend(self, q, k, v, { causal = true })
  end
  if sees then y = ops.select(sees, y, 0) end
  y = ops.reshape(ops.transpose(y, { 1, 3, 2, 4 }), { n, t, e })
  return self.dropout(self.out_proj(y))
end

function Attention:extra()
  return ("%d, %d heads%s"):format(self.embed_dim, self.num_heads, self.causal and ", causal" or "")
end

return Attention
