--- VGG (Simonyan and Zisserman, 2014): vgg11, 13, 16, 19. Parameters have the names of torchvision's, but for gamma and
--- beta.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local Vgg = nn.Cell:extend "Vgg"

-- 3x3 convolutions `counts[i]` times with the channels of stage i, then a pool that halves the picture.
function Vgg:init(counts, c)
  self.features = nn.SequentialCell {}
  local n_in = 3
  for stage, count in ipairs(counts) do
    local channels = c.width * math.min(8, 2 ^ (stage - 1))
    for _ = 1, count do
      self.features:append(nn.Conv2d(n_in, channels, 3, {
        pad_mode = "pad", padding = 1, has_bias = true, bias_init = "zeros",
        weight_init = { "he_normal", mode = "fan_out", nonlinearity = "relu" },
      }))
      if c.batch_norm then self.features:append(nn.BatchNorm2d(channels)) end
      self.features:append(nn.ReLU())
      n_in = channels
    end
    self.features:append(nn.MaxPool2d(2))
  end
  self.pool = nn.AdaptiveAvgPool2d(7)
  self.flat = n_in * 49
  local function dense(from, to)
    return nn.Dense(from, to, { weight_init = { "normal", sigma = 0.01 }, bias_init = "zeros" })
  end
  self.classifier = nn.SequentialCell {
    dense(self.flat, c.hidden), nn.ReLU(), nn.Dropout { p = c.dropout },
    dense(c.hidden, c.hidden), nn.ReLU(), nn.Dropout { p = c.dropout },
    dense(c.hidden, c.classes),
  }
end

--- Pictures [n, 3, h, w] of 32 pixels or more give logits [n, classes].
function Vgg:construct(x)
  x = self.pool(self.features(x))
  return self.classifier(ops.reshape(x, { x.shape[1], self.flat }))
end

local M = {}

local fields = {
  { "classes", "integer", 1000, min = 1 }, { "batch_norm", "boolean", false }, { "width", "integer", 64, min = 1 },
  { "hidden", "integer", 4096, min = 1 }, { "dropout", "number", 0.5, min = 0, below = 1 },
}

for name, counts in pairs {
  vgg11 = { 1, 1, 2, 2, 2 }, vgg13 = { 2, 2, 2, 2, 2 }, vgg16 = { 2, 2, 3, 3, 3 }, vgg19 = { 2, 2, 4, 4, 4 },
} do
  local bind = args.signature(name, fields)
  --- `vgg16 { classes = 1000, batch_norm = false, width = 64, hidden = 4096, dropout = 0.5 }`; width: channels of the
  --- first stage; hidden: width of the two dense layers.
  M[name] = function(...) return Vgg(counts, bind(...)) end
end

return M
