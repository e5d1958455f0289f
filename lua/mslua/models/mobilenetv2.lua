--- MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018).
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- A convolution that keeps the size of its pictures at stride 1.
local function conv(n_in, n_out, kernel, stride, group)
  return nn.Conv2d(n_in, n_out, kernel, {
    stride = stride or 1, pad_mode = "pad", padding = (kernel - 1) / 2, group = group or 1,
    weight_init = { "he_normal", mode = "fan_out", nonlinearity = "relu" },
  })
end

local function relu6(x) return ops.hardtanh(x, 0, 6) end

--- 1x1 to `expansion` times the channels, depthwise 3x3 with the stride, 1x1 to n_out without an activation; the input
--- is added where the shapes are equal.
local InvertedResidual = nn.Cell:extend "InvertedResidual"

function InvertedResidual:init(n_in, n_out, stride, expansion)
  local hidden = n_in * expansion
  if expansion > 1 then
    self.expand_conv = conv(n_in, hidden, 1)
    self.expand_bn = nn.BatchNorm2d(hidden)
  end
  self.depth_conv = conv(hidden, hidden, 3, stride, hidden)
  self.depth_bn = nn.BatchNorm2d(hidden)
  self.project_conv = conv(hidden, n_out, 1)
  self.project_bn = nn.BatchNorm2d(n_out)
  self.residual = stride == 1 and n_in == n_out
end

function InvertedResidual:construct(x)
  local y = x
  if self.expand_conv then y = relu6(self.expand_bn(self.expand_conv(y))) end
  y = relu6(self.depth_bn(self.depth_conv(y)))
  y = self.project_bn(self.project_conv(y))
  return self.residual and x + y or y
end

-- Expansion, channels, blocks and stride of the first block: table 2 of the paper.
local stages = {
  { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 }, { 6, 64, 4, 2 }, { 6, 96, 3, 1 }, { 6, 160, 3, 2 },
  { 6, 320, 1, 1 },
}

-- The nearest multiple of 8, at least 8 and at least 90 % of the channels asked for.
local function rounded(channels)
  local n = math.max(8, math.floor(channels / 8 + 0.5) * 8)
  return n < 0.9 * channels and n + 8 or n
end

local MobileNetV2 = nn.Cell:extend "MobileNetV2"

local bind = args.signature("MobileNetV2", {
  { "classes", "integer", 1000, min = 1 }, { "width", "number", 1, above = 0 },
  { "dropout", "number", 0.2, min = 0, below = 1 },
  { "stem", "string", "imagenet", choices = { "imagenet", "cifar" } },
})

--- `MobileNetV2 { classes = 1000, width = 1, dropout = 0.2, stem = "imagenet" }`; `width` multiplies all channels.
--- `stem` "imagenet": pictures are halved 5 times; "cifar": 3 times, for small pictures (the first convolution and the
--- second stage have stride 1).
function MobileNetV2:init(...)
  local c = bind(...)
  local small = c.stem == "cifar"
  local n_in = rounded(32 * c.width)
  self.conv1 = conv(3, n_in, 3, small and 1 or 2)
  self.bn1 = nn.BatchNorm2d(n_in)
  self.blocks = nn.CellList()
  for number, stage in ipairs(stages) do
    local expansion, channels, count, stride = unpack(stage)
    if small and number == 2 then stride = 1 end
    local n_out = rounded(channels * c.width)
    for i = 1, count do
      self.blocks:append(InvertedResidual(n_in, n_out, i == 1 and stride or 1, expansion))
      n_in = n_out
    end
  end
  local last = rounded(1280 * math.max(1, c.width))
  self.conv2 = conv(n_in, last, 1)
  self.bn2 = nn.BatchNorm2d(last)
  self.dropout = nn.Dropout { p = c.dropout }
  self.fc = nn.Dense(last, c.classes, { weight_init = { "normal", sigma = 0.01 }, bias_init = "zeros" })
end

--- Pictures [n, 3, h, w] give logits [n, classes].
function MobileNetV2:construct(x)
  x = relu6(self.bn1(self.conv1(x)))
  for _, block in self.blocks:each() do x = block(x) end
  x = relu6(self.bn2(self.conv2(x)))
  return self.fc(self.dropout(ops.reduce_mean(x, { 3, 4 })))
end

return MobileNetV2
