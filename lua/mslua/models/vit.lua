--- Vision Transformer (Dosovitskiy et al., 2021): patches of a picture as tokens, and one for the class.
-- Letters of shapes: n pictures, c channels, s side in pixels, t patches, d width.
local args = require "mslua.args"
local ms = require "mslua"
local errors = require "mslua.errors"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }

local function dense(n_in, n_out) return nn.Dense(n_in, n_out, { weight_init = normal, bias_init = "zeros" }) end

local Layer = nn.Cell:extend "VitLayer"

-- `drop_path`: the probability that a row skips a branch.
function Layer:init(c, drop_path)
  self.norm_before = nn.LayerNorm(c.dim, c.epsilon)
  self.attention = nn.MultiheadAttention(c.dim, c.heads, {
    dropout = c.dropout, weight_init = normal, bias_init = "zeros",
  })
  self.norm_after = nn.LayerNorm(c.dim, c.epsilon)
  self.intermediate = dense(c.dim, c.hidden)
  self.output = dense(c.hidden, c.dim)
  self.dropout = nn.Dropout { p = c.dropout }
  self.gelu = nn.GELU { approximate = c.activation == "gelu_new" }
  self.drop_path = nn.DropPath(drop_path)
end

function Layer:construct(x)
  x = x + self.drop_path(self.attention(self.norm_before(x)))
  return x + self.drop_path(self.dropout(self.output(self.gelu(self.intermediate(self.norm_after(x))))))
end

local Vit = nn.Cell:extend "Vit"

local bind = args.signature("Vit", {
  { "image_size", "integer", required = true, min = 1 }, { "patch", "integer", required = true, min = 1 },
  { "channels", "integer", 3, min = 1 }, { "classes", "integer", required = true, min = 0 },
  { "layers", "integer", required = true, min = 1 }, { "heads", "integer", required = true, min = 1 },
  { "dim", "integer", required = true, min = 1 }, { "hidden", "integer", min = 1 },
  { "dropout", "number", 0, min = 0, below = 1 }, { "drop_path", "number", 0, min = 0, below = 1 },
  { "epsilon", "number", 1e-12, above = 0 },
  { "activation", "string", "gelu", choices = { "gelu", "gelu_new" } },
})

--- `Vit { image_size = 224, patch = 16, classes = 1000, layers = 12, heads = 12, dim = 768 }`; hidden: default 4 dim.
--- drop_path: the probability that a row skips a branch of the last layer; it grows from 0 in the first.
--- classes = 0: no classifier, the network gives all tokens after the last normalisation.
function Vit:init(...)
  local c = bind(...)
  c.hidden = c.hidden or 4 * c.dim
  if c.image_size % c.patch ~= 0 then
    errors.fail("Vit: image_size = %d is not a multiple of patch = %d", c.image_size, c.patch)
  end
  self.config, self.family = c, "vit"
  self.patches = (c.image_size / c.patch) ^ 2
  self:parameter("cls_token", { 1, 1, c.dim }, normal)
  self:parameter("positions", { 1, self.patches + 1, c.dim }, normal)
  self.embed = nn.Conv2d(c.channels, c.dim, c.patch, {
    stride = c.patch, pad_mode = "valid", has_bias = true, weight_init = normal, bias_init = "zeros",
  })
  self.dropout = nn.Dropout { p = c.dropout }
  self.layers = nn.CellList()
  for i = 1, c.layers do
    self.layers:append(Layer(c, c.drop_path * (i - 1) / math.max(1, c.layers - 1)))
  end
  self.norm = nn.LayerNorm(c.dim, c.epsilon)
  if c.classes > 0 then self.classifier = dense(c.dim, c.classes) end
end

--- Pictures [n, c, s, s] give logits [n, classes].
function Vit:construct(x)
  local n, c = x.shape[1], self.config
  if x.shape[3] ~= c.image_size or x.shape[4] ~= c.image_size then
    errors.fail("Vit: pictures of %d x %d pixels, expected %d x %d", x.shape[3], x.shape[4], c.image_size,
      c.image_size)
  end
  x = ops.transpose(ops.reshape(self.embed(x), { n, c.dim, self.patches }), { 1, 3, 2 })
  x = ops.concat({ ops.broadcast_to(self.cls_token, { n, 1, c.dim }), x }, 2) + self.positions
  x = self.dropout(x)
  for _, layer in self.layers:each() do x = layer(x) end
  x = self.norm(x)
  if not self.classifier then return x end
  return self.classifier(ops.reshape(ops.strided_slice(x, { 1, 1, 1 }, { n + 1, 2, c.dim + 1 }), { n, c.dim }))
end

return Vit
