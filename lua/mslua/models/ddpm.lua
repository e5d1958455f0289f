--- Denoising diffusion (Ho, Jain and Abbeel, 2020): a U-Net that finds the noise in a picture, and the sampler that
--- draws with it (Song, Meng and Ermon, 2021: DDIM).
-- Letters of shapes: n pictures, c channels, s side in pixels, t tokens.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local MOST_GROUPS = 8

local function norm(channels)
  local groups = MOST_GROUPS
  while channels % groups ~= 0 do groups = groups - 1 end
  return nn.GroupNorm(groups, channels)
end

local function convolution(n_in, n_out, init)
  return nn.Conv2d(n_in, n_out, 3, { pad_mode = "same", has_bias = true, weight_init = init })
end

local Block = nn.Cell:extend "ResidualBlock"

function Block:init(n_in, n_out, time)
  self.norm1 = norm(n_in)
  self.conv1 = convolution(n_in, n_out)
  self.time = nn.Dense(time, n_out)
  self.norm2 = norm(n_out)
  self.conv2 = convolution(n_out, n_out)
  if n_in ~= n_out then self.skip = nn.Conv2d(n_in, n_out, 1, { has_bias = true }) end
end

-- x [n, n_in, s, s] and the time's embedding [n, time].
function Block:construct(x, time)
  local y = self.conv1(ops.silu(self.norm1(x)))
  y = y + ops.reshape(self.time(ops.silu(time)), { y.shape[1], y.shape[2], 1, 1 })
  y = self.conv2(ops.silu(self.norm2(y)))
  return (self.skip and self.skip(x) or x) + y
end

local Attention = nn.Cell:extend "PixelAttention"

function Attention:init(channels)
  self.norm = norm(channels)
  self.attention = nn.MultiheadAttention(channels, 1)
end

-- Each pixel of [n, c, s, s] is a token.
function Attention:construct(x)
  local n, c, h, w = unpack(x.shape)
  local y = ops.transpose(ops.reshape(self.norm(x), { n, c, h * w }), { 1, 3, 2 })
  y = ops.transpose(self.attention(y), { 1, 3, 2 })
  return x + ops.reshape(y, { n, c, h, w })
end

local Ddpm = nn.Cell:extend "Ddpm"

local bind = args.signature("Ddpm", {
  { "channels", "integer", 1, min = 1 }, { "width", "integer", 32, min = 2 },
  { "multiples", "integers", { 1, 2, 4 }, min = 1 }, { "patch", "integer", 1, min = 1 },
})

--- The U-Net of noise: at each size of the picture, which is halved between them, `width` times one of `multiples`
--- channels; attention at the smallest. patch: the first size has a pixel for each patch x patch of the picture.
--- (channels = 1, width = 32, multiples = {1, 2, 4}, patch = 1)
function Ddpm:init(...)
  local a = bind(...)
  local widths, time = {}, 4 * a.width
  for i, multiple in ipairs(a.multiples) do widths[i] = a.width * multiple end
  self.width, self.sizes, self.channels = a.width, #widths, a.channels
  self.time1 = nn.Dense(a.width, time)
  self.time2 = nn.Dense(time, time)
  self.begin = a.patch == 1 and convolution(a.channels, a.width)
    or nn.Conv2d(a.channels, a.width, a.patch, { stride = a.patch, pad_mode = "valid", has_bias = true })
  self.down, self.shrink, self.up, self.grow = nn.CellList(), nn.CellList(), nn.CellList(), nn.CellList()
  local channels = a.width
  for i, w in ipairs(widths) do
    self.down:append(Block(channels, w, time))
    if i < #widths then
      self.shrink:append(nn.Conv2d(w, w, 3, { stride = 2, pad_mode = "pad", padding = 1, has_bias = true }))
    end
    channels = w
  end
  self.middle1 = Block(channels, channels, time)
  self.attend = Attention(channels)
  self.middle2 = Block(channels, channels, time)
  for i = #widths, 1, -1 do
    self.up:append(Block(channels + widths[i], widths[i], time))
    if i > 1 then
      self.grow:append(nn.Conv2dTranspose(widths[i], widths[i], 4, {
        stride = 2, pad_mode = "pad", padding = 1, has_bias = true,
      }))
    end
    channels = widths[i]
  end
  self.norm = norm(channels)
  self.finish = a.patch == 1 and convolution(channels, a.channels, "zeros")
    or nn.Conv2dTranspose(channels, a.channels, a.patch, {
      stride = a.patch, pad_mode = "valid", has_bias = true, weight_init = "zeros", bias_init = "zeros",
    })
end

-- Sines and cosines of times [n] between 0 and 1, [n, width].
local function waves(time, width)
  local half, list = math.floor(width / 2), {}
  for i = 1, half do list[i] = 1000 * 10000 ^ (-(i - 1) / half) end
  local angles = ops.reshape(time, { -1, 1 }) * ops.cast(ms.Tensor({ list }, ms.float32), time.dtype)
  local both = { ops.sin(angles), ops.cos(angles) }
  if width % 2 == 1 then both[3] = ops.reshape(time, { -1, 1 }) end
  return ops.concat(both, 2)
end

--- Pictures with noise [n, c, s, s] and their times [n], from 0, without noise, to 1, give the noise. Sides are
--- multiples of patch, and of 2 for each size but the first.
function Ddpm:construct(x, time)
  local t = self.time2(ops.silu(self.time1(waves(time, self.width))))
  x = self.begin(x)
  local kept = {}
  for i = 1, self.sizes do
    x = self.down[i](x, t)
    kept[i] = x
    if i < self.sizes then x = self.shrink[i](x) end
  end
  x = self.middle2(self.attend(self.middle1(x, t)), t)
  for i = 1, self.sizes do
    x = self.up[i](ops.concat({ x, kept[self.sizes + 1 - i] }, 2), t)
    if i < self.sizes then x = self.grow[i](x) end
  end
  return self.finish(ops.silu(self.norm(x)))
end

-- The cosine schedule (Nichol and Dhariwal, 2021) as angles: the picture has the share cos, the noise sin.
local NEARLY_ALL = 0.999
local function angle(time) return time * (NEARLY_ALL * math.pi / 2) end

--- The loss of one step of training: the mean square error of the noise that was added to pictures [n, c, s, s] between
--- -1 and 1, at times that are drawn evenly. noise and time are drawn at each call where they are left out.
function Ddpm:loss(pictures, noise, time)
  local n = pictures.shape[1]
  time = time or ms.rand({ n }, pictures.dtype)
  noise = noise or ms.randn(pictures.shape, pictures.dtype)
  local at = ops.reshape(angle(time), { n, 1, 1, 1 })
  local found = self(ops.cos(at) * pictures + ops.sin(at) * noise, time)
  return ops.reduce_mean(ops.square(found - noise))
end

--- Pictures between -1 and 1 from noise [n, c, s, s], in so many steps: the same ones for the same noise.
function Ddpm:draw(x, steps)
  local n = x.shape[1]
  for k = steps, 1, -1 do
    local now, after = angle(k / steps), angle((k - 1) / steps)
    local noise = self(x, ms.full({ n }, k / steps, x.dtype))
    local picture = ops.clip((x - math.sin(now) * noise) / math.cos(now), -1, 1)
    -- The noise that fits the picture within its limits.
    noise = (x - math.cos(now) * picture) / math.sin(now)
    x = math.cos(after) * picture + math.sin(after) * noise
  end
  return x
end

return Ddpm
