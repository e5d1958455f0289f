--- GoogLeNet (Szegedy et al., "Going Deeper with Convolutions", 2014), with batch normalisation. Parameters have the
--- names of torchvision's, but for gamma and beta.
local args = require "mslua.args"
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- A convolution that keeps the size at stride 1, normalised, with a ReLU.
local Unit = nn.Cell:extend "Unit"

function Unit:init(n_in, n_out, kernel, stride)
  self.conv = nn.Conv2d(n_in, n_out, kernel, {
    stride = stride or 1, pad_mode = "pad", padding = (kernel - 1) / 2,
    weight_init = { "truncated_normal", sigma = 0.01 },
  })
  self.bn = nn.BatchNorm2d(n_out, { eps = 1e-3 })
end

function Unit:construct(x) return ops.relu(self.bn(self.conv(x))) end

-- Four branches, joined: 1x1; 1x1 and 3x3; 1x1 and a wider one; a pool and 1x1.
local Inception = nn.Cell:extend "Inception"

function Inception:init(n_in, wide, widths)
  local one, to_three, three, to_wide, five, pooled = unpack(widths)
  self.branch1 = Unit(n_in, one, 1)
  self.branch2 = nn.SequentialCell { Unit(n_in, to_three, 1), Unit(to_three, three, 3) }
  self.branch3 = nn.SequentialCell { Unit(n_in, to_wide, 1), Unit(to_wide, five, wide) }
  self.branch4 = nn.SequentialCell {
    nn.MaxPool2d(3, { stride = 1, pad_mode = "pad", padding = 1 }), Unit(n_in, pooled, 1),
  }
  self.width = one + three + five + pooled
end

function Inception:construct(x)
  return ops.concat({ self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x) }, 2)
end

-- A classifier of an inner layer.
local Auxiliary = nn.Cell:extend "Auxiliary"

function Auxiliary:init(n_in, classes, dropout)
  self.conv = Unit(n_in, 128, 1)
  self.pool = nn.AdaptiveAvgPool2d(4)
  self.fc1 = nn.Dense(2048, 1024)
  self.fc2 = nn.Dense(1024, classes)
  self.dropout = nn.Dropout { p = dropout }
end

function Auxiliary:construct(x)
  x = self.conv(self.pool(x))
  return self.fc2(self.dropout(ops.relu(self.fc1(ops.reshape(x, { x.shape[1], 2048 })))))
end

local GoogLeNet = nn.Cell:extend "GoogLeNet"

local bind = args.signature("GoogLeNet", {
  { "classes", "integer", 1000, min = 1 }, { "aux_logits", "boolean", true },
  { "wide_kernel", "integer", 5, choices = { 3, 5 }, doc = "of the third branch: 5 in the paper, 3 in torchvision" },
  { "dropout", "number", 0.2, min = 0, below = 1 }, { "dropout_aux", "number", 0.7, min = 0, below = 1 },
})

-- Table 1 of the paper: the branches' widths. Behind 3b and 4e a pool halves the picture.
local blocks = {
  { "3a", { 64, 96, 128, 16, 32, 32 } }, { "3b", { 128, 128, 192, 32, 96, 64 }, 3 },
  { "4a", { 192, 96, 208, 16, 48, 64 } }, { "4b", { 160, 112, 224, 24, 64, 64 } },
  { "4c", { 128, 128, 256, 24, 64, 64 } }, { "4d", { 112, 144, 288, 32, 64, 64 } },
  { "4e", { 256, 160, 320, 32, 128, 128 }, 2 },
  { "5a", { 256, 160, 320, 32, 128, 128 } }, { "5b", { 384, 192, 384, 48, 128, 128 } },
}

local function halve(kernel) return nn.MaxPool2d(kernel, { stride = 2, pad_mode = "same" }) end

--- `GoogLeNet { classes = 1000, aux_logits = true }`. In training, with aux_logits, it gives the logits and those of
--- the two inner classifiers, the later one first; in evaluation the logits alone.
function GoogLeNet:init(...)
  local c = bind(...)
  self.aux_logits = c.aux_logits
  self.conv1 = Unit(3, 64, 7, 2)
  self.conv2 = Unit(64, 64, 1)
  self.conv3 = Unit(64, 192, 3)
  self.pool = halve(3)
  local n_in = 192
  for _, block in ipairs(blocks) do
    local name, widths, pooled = unpack(block)
    local inception = Inception(n_in, c.wide_kernel, widths)
    self["inception" .. name] = inception
    if pooled then self["pool" .. name] = halve(pooled) end
    n_in = inception.width
    if c.aux_logits and name == "4a" then self.aux1 = Auxiliary(n_in, c.classes, c.dropout_aux) end
    if c.aux_logits and name == "4d" then self.aux2 = Auxiliary(n_in, c.classes, c.dropout_aux) end
  end
  self.dropout = nn.Dropout { p = c.dropout }
  self.fc = nn.Dense(n_in, c.classes)
end

--- Pictures [n, 3, h, w] give logits [n, classes]; sizes are halved five times.
function GoogLeNet:construct(x)
  x = self.pool(self.conv1(x))
  x = self.pool(self.conv3(self.conv2(x)))
  local inner = {}
  for _, block in ipairs(blocks) do
    local name = block[1]
    x = self["inception" .. name](x)
    if self.aux_logits and core.training() then
      if name == "4a" then inner[2] = self.aux1(x) end
      if name == "4d" then inner[1] = self.aux2(x) end
    end
    if block[3] then x = self["pool" .. name](x) end
  end
  local logits = self.fc(self.dropout(ops.reduce_mean(x, { 3, 4 })))
  if #inner == 0 then return logits end
  return logits, inner[1], inner[2]
end

return GoogLeNet
