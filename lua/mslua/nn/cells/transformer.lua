--- Layers of transformers: nn.TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Attention = require "mslua.nn.cells.attention"
local Cell = require "mslua.cell"
local Dense = require "mslua.nn.cells.dense"
local Dropout = require "mslua.nn.cells.dropout"
local activation = require "mslua.nn.cells.activation"
local containers = require "mslua.containers"
local norm = require "mslua.nn.cells.norm"

local M = {}

local fields = {
  { "d_model", "integer", required = true, min = 1, doc = "size of each position; a multiple of nhead" },
  { "nhead", "integer", required = true, min = 1, doc = "heads of attention, each of d_model / nhead" },
  { "dim_feedforward", "integer", 2048, min = 1, doc = "size between the two dense layers" },
  { "dropout", "number", 0.1, min = 0, below = 1,
    doc = "the probability of a zero in the results of attention, activation and last dense layer, in training" },
  { "activation", "string", "relu", choices = { "relu", "gelu" },
    doc = "the function between the two dense layers; \"gelu\" is exact, not the tanh formula" },
  { "layer_norm_eps", "number", 1e-5, above = 0, doc = "epsilon of each nn.LayerNorm" },
  { "batch_first", "boolean", false, doc = "true: sequences are [n, t, d_model]; false: [t, n, d_model]" },
  { "norm_first", "boolean", false,
    doc = "true: the input of each part is normalised; false: the sum of input and result, as in the paper" },
}

local function attention(a)
  return Attention(a.d_model, a.nhead, {
    dropout = a.dropout, weight_init = "xavier_uniform", bias_init = "zeros",
    out_init = { "he_uniform", negative_slope = math.sqrt(5) },
  })
end

-- What both kinds of layers have: `blocks` sub-layers, each with a normalisation, the last one two dense layers.
local Layer = Cell:extend "TransformerLayer"

function Layer:_make(a, blocks)
  self.arguments = a
  self.linear1, self.linear2 = Dense(a.d_model, a.dim_feedforward), Dense(a.dim_feedforward, a.d_model)
  self.act = a.activation == "relu" and activation.ReLU() or activation.GELU { approximate = false }
  self.dropout = Dropout { p = a.dropout }
  for i = 1, blocks do self["norm" .. i] = norm.LayerNorm(a.d_model, a.layer_norm_eps) end
end

-- x plus sub-layer number `block` of it.
function Layer:_add(x, block, sublayer)
  local normalise = self["norm" .. block]
  if self.arguments.norm_first then return x + sublayer(normalise(x)) end
  return normalise(x + sublayer(x))
end

function Layer:_feed_forward(x) return self.dropout(self.linear2(self.dropout(self.act(self.linear1(x))))) end

-- [n, t, e] of what the caller has, and back.
function Layer:_turned(x) return self.arguments.batch_first and x or ops.transpose(x, { 2, 1, 3 }) end

function Layer:extra() return ("%d, %d heads"):format(self.arguments.d_model, self.arguments.nhead) end

local function masks_of(attn_mask, key_padding_mask)
  return { attn_mask = attn_mask, key_padding_mask = key_padding_mask }
end

local encoder_masks = { "src_mask", "src_key_padding_mask" }
local decoder_masks = { "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask" }

-- The masks that a call gives in the order of `names`, or by their names in a table, the last of them.
local function masks_by_name(cell, names, ...)
  local given = { ... }
  for i = 1, #names do
    local named = given[i]
    if type(named) == "table" and not core.kind(named) then
      given[i] = nil
      local known = {}
      for place, name in ipairs(names) do known[name] = place end
      for name, mask in pairs(named) do
        if not known[name] then
          errors.fail("%s: unknown argument '%s'%s, expected %s", cell.class_name, tostring(name),
            core.did_you_mean(tostring(name), names), table.concat(names, ", "))
        end
        given[known[name]] = mask
      end
      break
    end
  end
  return unpack(given, 1, #names)
end

M.TransformerEncoderLayer = Layer:extend "TransformerEncoderLayer"
local bind_encoder = args.signature("TransformerEncoderLayer", fields)

--- A layer of an encoder (Vaswani et al., 2017): attention of a sequence to itself, then two dense layers, each added
--- to its input and normalised. (d_model, nhead, dim_feedforward = 2048, dropout = 0.1, activation = "relu" or "gelu",
--- layer_norm_eps = 1e-5, batch_first = false, norm_first = false). Dropout acts on the result of attention, not on its
--- probabilities (PyTorch: on both).
function M.TransformerEncoderLayer:init(...)
  local a = bind_encoder(...)
  self.self_attn = attention(a)
  self:_make(a, 2)
end

--- src [t, n, d_model], or [n, t, d_model] with batch_first, gives the same shape. src_mask [t, t] or [n, t, t] and
--- src_key_padding_mask [n, t]: as attn_mask and key_padding_mask of nn.MultiheadAttention, in this order or by their
--- names in a table: `layer(x, { src_key_padding_mask = mask })`.
function M.TransformerEncoderLayer:construct(src, src_mask, src_key_padding_mask)
  src_mask, src_key_padding_mask = masks_by_name(self, encoder_masks, src_mask, src_key_padding_mask)
  local x = self:_turned(src)
  x = self:_add(x, 1, function(y) return self.self_attn(y, y, y, masks_of(src_mask, src_key_padding_mask)) end)
  x = self:_add(x, 2, function(y) return self:_feed_forward(y) end)
  return self:_turned(x)
end

M.TransformerDecoderLayer = Layer:extend "TransformerDecoderLayer"
local bind_decoder = args.signature("TransformerDecoderLayer", fields)

--- A layer of a decoder (Vaswani et al., 2017): attention of a sequence to itself, to the encoder's result, then two
--- dense layers. Arguments are those of nn.TransformerEncoderLayer.
function M.TransformerDecoderLayer:init(...)
  local a = bind_decoder(...)
  self.self_attn, self.multihead_attn = attention(a), attention(a)
  self:_make(a, 3)
end

--- tgt [t, n, d_model] and memory [s, n, d_model], or with n first, give the shape of tgt. tgt_mask [t, t] or
--- [n, t, t], memory_mask [t, s] or [n, t, s], tgt_key_padding_mask [n, t] and memory_key_padding_mask [n, s]: as
--- attn_mask and key_padding_mask of nn.MultiheadAttention, in this order or by their names in a table.
function M.TransformerDecoderLayer:construct(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
    memory_key_padding_mask)
  tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask = masks_by_name(self, decoder_masks, tgt_mask,
    memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
  local x, seen = self:_turned(tgt), self:_turned(memory)
  x = self:_add(x, 1, function(y) return self.self_attn(y, y, y, masks_of(tgt_mask, tgt_key_padding_mask)) end)
  x = self:_add(x, 2, function(y)
    return self.multihead_attn(y, seen, seen, masks_of(memory_mask, memory_key_padding_mask))
  end)
  x = self:_add(x, 3, function(y) return self:_feed_forward(y) end)
  return self:_turned(x)
end

-- A stack of `num_layers` layers with the arguments of the first, which is given.
local function make_stack(self, layer_class, layer, num_layers, norm_cell)
  if not class.is(layer, layer_class) then
    errors.fail("%s: expected a %s, got %s", self.class_name, layer_class.class_name, errors.show(layer))
  end
  self.layers = containers.CellList(layer)
  for _ = 2, num_layers do self.layers:append(layer_class(layer.arguments)) end
  if norm_cell then self.norm = norm_cell end
end

local function stack_fields(name)
  return {
    { name, "cell", required = true, doc = "the first layer; the others are made with its arguments" },
    { "num_layers", "integer", required = true, min = 1, doc = "layers of the stack" },
    { "norm", "cell", doc = "a cell that is applied to the last layer's result; default: none" },
  }
end

M.TransformerEncoder = Cell:extend "TransformerEncoder"
local bind_encoders = args.signature("TransformerEncoder", stack_fields "encoder_layer")

--- A stack of encoder layers: `nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6)`. The first is the given
--- one, the others are made with its arguments. norm: a cell for the result. (encoder_layer, num_layers, norm)
function M.TransformerEncoder:init(...)
  local a = bind_encoders(...)
  make_stack(self, M.TransformerEncoderLayer, a.encoder_layer, a.num_layers, a.norm)
end

--- As nn.TransformerEncoderLayer.
function M.TransformerEncoder:construct(src, src_mask, src_key_padding_mask)
  for _, layer in self.layers:each() do src = layer(src, src_mask, src_key_padding_mask) end
  return self.norm and self.norm(src) or src
end

M.TransformerDecoder = Cell:extend "TransformerDecoder"
local bind_decoders = args.signature("TransformerDecoder", stack_fields "decoder_layer")

--- A stack of decoder layers: `nn.TransformerDecoder(nn.TransformerDecoderLayer(512, 8), 6)`, made as
--- nn.TransformerEncoder. (decoder_layer, num_layers, norm)
function M.TransformerDecoder:init(...)
  local a = bind_decoders(...)
  make_stack(self, M.TransformerDecoderLayer, a.decoder_layer, a.num_layers, a.norm)
end

--- As nn.TransformerDecoderLayer.
function M.TransformerDecoder:construct(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
    memory_key_padding_mask)
  for _, layer in self.layers:each() do
    tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
  end
  return self.norm and self.norm(tgt) or tgt
end

return M
