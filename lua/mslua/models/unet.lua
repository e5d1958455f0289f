--- U-Net (Ronneberger, Fischer and Brox, 2015): a class for each pixel of a picture.
-- Letters of shapes: n pictures, c channels, k classes, s side in pixels.
local args = require "mslua.args"
local ms = require "mslua"
local errors = require "mslua.errors"
local nn, ops = ms.nn, ms.ops

local Twice = nn.Cell:extend "TwoConvolutions"

local he = { "he_normal", mode = "fan_out", nonlinearity = "relu" }

local function convolution(n_in, n_out)
  return nn.Conv2d(n_in, n_out, 3, { pad_mode = "same", has_bias = false, weight_init = he })
end

local function widen(n_in, n_out)
  return nn.Conv2dTranspose(n_in, n_out, 2, {
    stride = 2, pad_mode = "valid", has_bias = true, weight_init = he, bias_init = "zeros",
  })
end

function Twice:init(n_in, n_out)
  self.conv1 = convolution(n_in, n_out)
  self.norm1 = nn.BatchNorm2d(n_out)
  self.conv2 = convolution(n_out, n_out)
  self.norm2 = nn.BatchNorm2d(n_out)
end

function Twice:construct(x)
  x = ops.relu(self.norm1(self.conv1(x)))
  return ops.relu(self.norm2(self.conv2(x)))
end

local Unet = nn.Cell:extend "Unet"

local bind = args.signature("Unet", {
  { "channels", "integer", 3, min = 1 }, { "classes", "integer", required = true, min = 1 },
  { "width", "integer", 64, min = 1 }, { "depth", "integer", 4, min = 1 },
})

--- `Unet { classes = 2, width = 64, depth = 4 }`: depth times a picture is halved and its channels, width at first, are
--- doubled; the way back joins what each size has had. With padding: the result has the picture's size. (channels = 3,
--- classes, width = 64, depth = 4)
function Unet:init(...)
  local a = bind(...)
  self.depth = a.depth
  self.down, self.widen, self.up = nn.CellList(), nn.CellList(), nn.CellList()
  local channels = a.channels
  for i = 0, a.depth do
    self.down:append(Twice(channels, a.width * 2 ^ i))
    channels = a.width * 2 ^ i
  end
  for _ = 1, a.depth do
    self.widen:append(widen(channels, channels / 2))
    self.up:append(Twice(channels, channels / 2))
    channels = channels / 2
  end
  self.pool = nn.MaxPool2d(2, 2)
  self.head = nn.Conv2d(channels, a.classes, 1, { has_bias = true, weight_init = he, bias_init = "zeros" })
end

--- Pictures [n, c, s, s] give logits [n, k, s, s]. Their sides are multiples of 2^depth.
function Unet:construct(x)
  local multiple = 2 ^ self.depth
  if x.shape[3] % multiple ~= 0 or x.shape[4] % multiple ~= 0 then
    errors.fail("Unet: pictures of %d x %d pixels, expected multiples of %d", x.shape[3], x.shape[4], multiple)
  end
  local kept = {}
  for i = 1, self.depth do
    kept[i] = self.down[i](x)
    x = self.pool(kept[i])
  end
  x = self.down[self.depth + 1](x)
  for i = 1, self.depth do
    x = self.up[i](ops.concat({ kept[self.depth + 1 - i], self.widen[i](x) }, 2))
  end
  return self.head(x)
end

return Unet
