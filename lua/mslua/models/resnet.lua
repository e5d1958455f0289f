--- ResNet (He et al., "Deep Residual Learning for Image Recognition", 2015): resnet18, 34, 50, 101, 152.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- How a network's parts begin and pad. "he": as in the paper, convolutions normal with variance 2 / fan out.
-- "tutorial": as in the resnet.py of MindSpore's tutorials, which trains with these values.
local variants = {
  he = {
    conv = function(kernel)
      return {
        pad_mode = "pad", padding = math.floor(kernel / 2),
        weight_init = { "he_normal", mode = "fan_out", nonlinearity = "relu" },
      }
    end,
    norm = function() return {} end,
    pool = { stride = 2, pad_mode = "pad", padding = 1 },
    -- Small, so that training begins near the loss of guessing, ln(num_classes).
    dense = { weight_init = { "normal", sigma = 0.01 }, bias_init = "zeros" },
  },
  tutorial = {
    conv = function() return { pad_mode = "same", weight_init = "XavierUniform" } end,
    norm = function() return { momentum = 0.99, gamma_init = "Uniform" } end,
    pool = { stride = 2, pad_mode = "same" },
    dense = { weight_init = "XavierUniform", bias_init = "Uniform" },
  },
}

local function conv(variant, n_in, n_out, kernel, stride)
  local options = variant.conv(kernel)
  options.stride = stride or 1
  return nn.Conv2d(n_in, n_out, kernel, options)
end

local function norm(variant, channels) return nn.BatchNorm2d(channels, variant.norm()) end

-- What is added to a block's result: the input itself, or a 1x1 projection of it where shapes differ.
local function add_projection(block, variant, n_in, n_out, stride)
  if stride == 1 and n_in == n_out then return end
  block.down_conv = conv(variant, n_in, n_out, 1, stride)
  block.down_bn = norm(variant, n_out)
end

local function shortcut(block, x)
  return block.down_conv and block.down_bn(block.down_conv(x)) or x
end

--- Two 3x3 convolutions; [n, n_in, h, w] to [n, planes, h / stride, w / stride].
local Basic = nn.Cell:extend "Basic"
Basic.expansion = 1

function Basic:init(variant, n_in, planes, stride)
  self.conv1 = conv(variant, n_in, planes, 3, stride)
  self.bn1 = norm(variant, planes)
  self.conv2 = conv(variant, planes, planes, 3)
  self.bn2 = norm(variant, planes)
  add_projection(self, variant, n_in, planes, stride)
end

function Basic:construct(x)
  local y = ops.relu(self.bn1(self.conv1(x)))
  return ops.relu(self.bn2(self.conv2(y)) + shortcut(self, x))
end

--- 1x1, 3x3 with the stride, 1x1 to four times as many channels.
local Bottleneck = nn.Cell:extend "Bottleneck"
Bottleneck.expansion = 4

function Bottleneck:init(variant, n_in, planes, stride)
  local n_out = 4 * planes
  self.conv1 = conv(variant, n_in, planes, 1)
  self.bn1 = norm(variant, planes)
  self.conv2 = conv(variant, planes, planes, 3, stride)
  self.bn2 = norm(variant, planes)
  self.conv3 = conv(variant, planes, n_out, 1)
  self.bn3 = norm(variant, n_out)
  add_projection(self, variant, n_in, n_out, stride)
end

function Bottleneck:construct(x)
  local y = ops.relu(self.bn1(self.conv1(x)))
  y = ops.relu(self.bn2(self.conv2(y)))
  return ops.relu(self.bn3(self.conv3(y)) + shortcut(self, x))
end

local ResNet = nn.Cell:extend "ResNet"

--- `stem` "imagenet": a 7x7 convolution of stride 2 and a pool of stride 2; "cifar": a 3x3 convolution, for small
--- images. `width`: channels of the first stage.
function ResNet:init(block, depths, options)
  local width, variant = options.width, variants[options.variant]
  self.stem = options.stem
  self.conv1 = self.stem == "imagenet" and conv(variant, 3, width, 7, 2) or conv(variant, 3, width, 3)
  self.bn1 = norm(variant, width)
  self.pool = nn.MaxPool2d(3, variant.pool)
  local n_in = width
  for stage, depth in ipairs(depths) do
    local blocks = nn.SequentialCell()
    for i = 1, depth do
      local planes = width * 2 ^ (stage - 1)
      blocks:append(block(variant, n_in, planes, stage > 1 and i == 1 and 2 or 1))
      n_in = planes * block.expansion
    end
    self["layer" .. stage] = blocks
  end
  self.stages = #depths
  self.fc = nn.Dense(n_in, options.num_classes, variant.dense)
end

--- x [n, 3, h, w] gives logits [n, num_classes].
function ResNet:construct(x)
  x = ops.relu(self.bn1(self.conv1(x)))
  if self.stem == "imagenet" then x = self.pool(x) end
  for stage = 1, self.stages do x = self["layer" .. stage](x) end
  return self.fc(ops.reduce_mean(x, { 3, 4 }))
end

local M = {}

local shapes = {
  resnet18 = { Basic, { 2, 2, 2, 2 } }, resnet34 = { Basic, { 3, 4, 6, 3 } }, resnet50 = { Bottleneck, { 3, 4, 6, 3 } },
  resnet101 = { Bottleneck, { 3, 4, 23, 3 } }, resnet152 = { Bottleneck, { 3, 8, 36, 3 } },
}

local fields = {
  { "batch_size", "integer", min = 1 }, { "num_classes", "integer", 10, min = 1 },
  { "stem", "string", "imagenet", choices = { "imagenet", "cifar" } }, { "width", "integer", 64, min = 1 },
  { "variant", "string", choices = { "he", "tutorial" } },
}

for name, shape in pairs(shapes) do
  local bind = args.signature(name, fields)
  --- `resnet50 { num_classes = 10, stem = "imagenet", width = 64, variant = "he" }`; or, as the tutorials have it,
  --- `resnet50(batch_size, num_classes)`, whose variant is "tutorial". The network takes batches of any size.
  M[name] = function(...)
    if select("#", ...) == 1 and type(...) == "number" then
      errors.fail("%s(%s): num_classes is missing: call %s(batch_size, num_classes) or %s { num_classes = %s }", name,
        errors.show(...), name, name, errors.show(...))
    end
    local a = bind(...)
    a.variant = a.variant or (a.batch_size and "tutorial" or "he")
    local net = ResNet(shape[1], shape[2], a)
    -- Published weights are of the paper's padding.
    if a.variant == "he" then
      net.family = "resnet"
      net.config = { architecture = name, num_classes = a.num_classes, stem = a.stem, width = a.width }
    end
    return net
  end
end

return M
