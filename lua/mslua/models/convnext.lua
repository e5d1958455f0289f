--- ConvNeXt (Liu et al., "A ConvNet for the 2020s", 2022): tiny, small, base, large. Parameters have the names of
--- torchvision's, but for gamma and beta.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "truncated_normal", sigma = 0.02 }

local function conv(n_in, n_out, kernel, options)
  options.has_bias, options.weight_init, options.bias_init = true, normal, "zeros"
  options.pad_mode = options.pad_mode or "valid"
  return nn.Conv2d(n_in, n_out, kernel, options)
end

local function dense(n_in, n_out) return nn.Dense(n_in, n_out, { weight_init = normal, bias_init = "zeros" }) end

local Order = nn.Cell:extend "Order"
function Order:init(axes) self.axes = axes end
function Order:construct(x) return ops.transpose(x, self.axes) end

local last, second = { 1, 3, 4, 2 }, { 1, 4, 2, 3 }  -- where channels come

-- Normalises the channels of each pixel of [n, c, h, w].
local Norm = nn.LayerNorm:extend "LayerNorm2d"
function Norm:construct(x) return ops.transpose(nn.LayerNorm.construct(self, ops.transpose(x, last)), second) end

local EPSILON = 1e-6

-- A depthwise 7x7 convolution, a normalisation, and two dense layers over channels, times a small factor.
local Block = nn.Cell:extend "ConvNeXtBlock"

function Block:init(dim, scale, drop_path)
  self.block = nn.SequentialCell {
    conv(dim, dim, 7, { pad_mode = "pad", padding = 3, group = dim }), Order(last), nn.LayerNorm(dim, EPSILON),
    dense(dim, 4 * dim), nn.GELU { approximate = false }, dense(4 * dim, dim), Order(second),
  }
  self:parameter("layer_scale", { dim, 1, 1 }, { "constant", value = scale })
  self.drop_path = nn.DropPath(drop_path)
end

function Block:construct(x) return x + self.drop_path(self.layer_scale * self.block(x)) end

local ConvNeXt = nn.Cell:extend "ConvNeXt"

function ConvNeXt:init(c)
  if #c.depths ~= #c.dims then
    errors.fail("ConvNeXt: depths and dims: expected a number for each stage in both, got %d and %d", #c.depths,
      #c.dims)
  end
  self.features = nn.SequentialCell {
    nn.SequentialCell { conv(3, c.dims[1], 4, { stride = 4 }), Norm(c.dims[1], EPSILON) },
  }
  local count, made = 0, 0
  for _, depth in ipairs(c.depths) do count = count + depth end
  for stage, depth in ipairs(c.depths) do
    local row, dim, next_dim = nn.SequentialCell {}, c.dims[stage], c.dims[stage + 1]
    for _ = 1, depth do
      row:append(Block(dim, c.layer_scale, c.drop_path * made / math.max(1, count - 1)))
      made = made + 1
    end
    self.features:append(row)
    if next_dim then
      self.features:append(nn.SequentialCell { Norm(dim, EPSILON), conv(dim, next_dim, 2, { stride = 2 }) })
    end
  end
  local dim = c.dims[#c.dims]
  self.classifier = nn.SequentialCell { nn.LayerNorm(dim, EPSILON), nn.Identity(), dense(dim, c.classes) }
end

--- Pictures [n, 3, h, w] give logits [n, classes].
function ConvNeXt:construct(x) return self.classifier(ops.reduce_mean(self.features(x), { 3, 4 })) end

local M = {}

for name, shape in pairs {
  convnext_tiny = { { 3, 3, 9, 3 }, { 96, 192, 384, 768 }, 0.1 },
  convnext_small = { { 3, 3, 27, 3 }, { 96, 192, 384, 768 }, 0.4 },
  convnext_base = { { 3, 3, 27, 3 }, { 128, 256, 512, 1024 }, 0.5 },
  convnext_large = { { 3, 3, 27, 3 }, { 192, 384, 768, 1536 }, 0.5 },
} do
  local bind = args.signature(name, {
    { "classes", "integer", 1000, min = 1 },
    { "depths", "integers", shape[1], min = 1 }, { "dims", "integers", shape[2], min = 1 },
    { "drop_path", "number", shape[3], min = 0, below = 1 }, { "layer_scale", "number", 1e-6 },
  })
  --- `convnext_tiny { classes = 1000 }`; depths, dims: blocks and channels of each stage; drop_path: the probability
  --- that a row skips the last block, which grows from 0 in the first.
  M[name] = function(...) return ConvNeXt(bind(...)) end
end

return M
