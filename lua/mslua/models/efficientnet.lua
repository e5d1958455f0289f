--- EfficientNet (Tan and Le, 2019): b0 to b7. Parameters have the names of torchvision's, but for gamma and beta.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local he = { "he_normal", mode = "fan_out" }

-- A convolution that keeps the size at stride 1, normalised, with an activation unless `linear`.
local function unit(c, n_in, n_out, kernel, stride, group, linear)
  local cells = nn.SequentialCell {
    nn.Conv2d(n_in, n_out, kernel, {
      stride = stride, pad_mode = "pad", padding = (kernel - 1) / 2, group = group, weight_init = he,
    }),
    nn.BatchNorm2d(n_out, { eps = c.eps, momentum = c.momentum }),
  }
  return linear and cells or cells:append(nn.SiLU())
end

-- Squeeze and excitation: channels times what a small network makes of their means.
local Excitation = nn.Cell:extend "Excitation"

function Excitation:init(channels, squeezed)
  local options = { has_bias = true, weight_init = he, bias_init = "zeros" }
  self.fc1 = nn.Conv2d(channels, squeezed, 1, options)
  self.fc2 = nn.Conv2d(squeezed, channels, 1, options)
end

function Excitation:construct(x)
  local means = ops.reduce_mean(x, { axis = { 3, 4 }, keep_dims = true })
  return x * ops.sigmoid(self.fc2(ops.silu(self.fc1(means))))
end

-- 1x1 to more channels, depthwise with the stride, squeeze and excitation, 1x1 to n_out.
local Block = nn.Cell:extend "EfficientNetBlock"

function Block:init(c, n_in, n_out, kernel, stride, expansion, drop_path)
  local hidden = n_in * expansion
  self.block = nn.SequentialCell {}
  if expansion > 1 then self.block:append(unit(c, n_in, hidden, 1, 1, 1)) end
  self.block:append(unit(c, hidden, hidden, kernel, stride, hidden))
  self.block:append(Excitation(hidden, math.max(1, math.floor(n_in / 4))))
  self.block:append(unit(c, hidden, n_out, 1, 1, 1, true))
  self.residual = stride == 1 and n_in == n_out
  self.drop_path = nn.DropPath(drop_path)
end

function Block:construct(x)
  local y = self.block(x)
  return self.residual and x + self.drop_path(y) or y
end

-- Expansion, kernel, stride of the first block, channels, blocks: table 1 of the paper.
local stages = {
  { 1, 3, 1, 16, 1 }, { 6, 3, 2, 24, 2 }, { 6, 5, 2, 40, 2 }, { 6, 3, 2, 80, 3 }, { 6, 5, 1, 112, 3 },
  { 6, 5, 2, 192, 4 }, { 6, 3, 1, 320, 1 },
}

-- The nearest multiple of 8, at least 8 and at least 90 % of the channels asked for.
local function rounded(channels)
  local n = math.max(8, math.floor(channels / 8 + 0.5) * 8)
  return n < 0.9 * channels and n + 8 or n
end

local EfficientNet = nn.Cell:extend "EfficientNet"

function EfficientNet:init(c)
  local n_in = rounded(32 * c.width)
  self.features = nn.SequentialCell { unit(c, 3, n_in, 3, 2, 1) }
  local count, made = 0, 0
  for _, stage in ipairs(stages) do count = count + math.ceil(stage[5] * c.depth) end
  for _, stage in ipairs(stages) do
    local expansion, kernel, stride, channels, blocks = unpack(stage)
    local row, n_out = nn.SequentialCell {}, rounded(channels * c.width)
    for i = 1, math.ceil(blocks * c.depth) do
      row:append(Block(c, n_in, n_out, kernel, i == 1 and stride or 1, expansion, c.drop_path * made / count))
      n_in, made = n_out, made + 1
    end
    self.features:append(row)
  end
  self.features:append(unit(c, n_in, 4 * n_in, 1, 1, 1))
  local bound = 1 / math.sqrt(c.classes)
  self.classifier = nn.SequentialCell {
    nn.Dropout { p = c.dropout },
    nn.Dense(4 * n_in, c.classes, { weight_init = { "uniform", scale = bound }, bias_init = "zeros" }),
  }
end

--- Pictures [n, 3, h, w] give logits [n, classes].
function EfficientNet:construct(x) return self.classifier(ops.reduce_mean(self.features(x), { 3, 4 })) end

local M = {}

-- Factors of channels and of blocks, and the dropout before the classifier.
for name, scale in pairs {
  efficientnet_b0 = { 1.0, 1.0, 0.2 }, efficientnet_b1 = { 1.0, 1.1, 0.2 }, efficientnet_b2 = { 1.1, 1.2, 0.3 },
  efficientnet_b3 = { 1.2, 1.4, 0.3 }, efficientnet_b4 = { 1.4, 1.8, 0.4 }, efficientnet_b5 = { 1.6, 2.2, 0.4 },
  efficientnet_b6 = { 1.8, 2.6, 0.5 }, efficientnet_b7 = { 2.0, 3.1, 0.5 },
} do
  local large = scale[1] >= 1.6
  local bind = args.signature(name, {
    { "classes", "integer", 1000, min = 1 },
    { "width", "number", scale[1], above = 0 }, { "depth", "number", scale[2], above = 0 },
    { "dropout", "number", scale[3], min = 0, below = 1 }, { "drop_path", "number", 0.2, min = 0, below = 1 },
    { "eps", "number", large and 1e-3 or 1e-5, above = 0 },
    { "momentum", "number", large and 0.99 or 0.9, min = 0, max = 1 },
  })
  --- `efficientnet_b0 { classes = 1000 }`; width, depth: factors of channels and of blocks; drop_path: the probability
  --- that a row skips the last block, which grows from 0 in the first; eps, momentum: of nn.BatchNorm2d.
  M[name] = function(...) return EfficientNet(bind(...)) end
end

return M
