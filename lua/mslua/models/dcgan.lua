--- DCGAN (Radford, Metz and Chintala, 2016): a generator and a discriminator of pictures of 32x32 pixels.
-- Letters of shapes: n pictures, c channels, z numbers that a picture is drawn from.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "normal", sigma = 0.02 }
local around_one = { "normal", mean = 1, sigma = 0.02 }
local double = { stride = 2, pad_mode = "pad", padding = 1, has_bias = false, weight_init = normal }

local function norm(channels) return nn.BatchNorm2d(channels, { gamma_init = around_one }) end

local fields = {
  { "latent", "integer", 100, min = 1 }, { "width", "integer", 64, min = 1 }, { "channels", "integer", 1, min = 1 },
}

local M = {}

M.Generator = nn.Cell:extend "Generator"

local bind_generator = args.signature("Generator", fields)

--- Numbers [n, z] give pictures [n, c, 32, 32] between -1 and 1. width: channels of the last hidden layer; the others
--- have two and four times as many. (latent = 100, width = 64, channels = 1)
function M.Generator:init(...)
  local a = bind_generator(...)
  local w = a.width
  self.width = w
  self.project = nn.Dense(a.latent, 4 * w * 16, { has_bias = false, weight_init = normal })
  self.norm1 = norm(4 * w)
  self.conv2 = nn.Conv2dTranspose(4 * w, 2 * w, 4, double)
  self.norm2 = norm(2 * w)
  self.conv3 = nn.Conv2dTranspose(2 * w, w, 4, double)
  self.norm3 = norm(w)
  self.conv4 = nn.Conv2dTranspose(w, a.channels, 4, double)
end

function M.Generator:construct(z)
  local x = ops.reshape(self.project(z), { z.shape[1], 4 * self.width, 4, 4 })
  x = self.conv2(ops.relu(self.norm1(x)))
  x = self.conv3(ops.relu(self.norm2(x)))
  return ops.tanh(self.conv4(ops.relu(self.norm3(x))))
end

M.Discriminator = nn.Cell:extend "Discriminator"

local bind_discriminator = args.signature("Discriminator", { fields[2], fields[3] })

--- Pictures [n, c, 32, 32] give a number each, [n]: above 0 for one that looks real. (width = 64, channels = 1)
function M.Discriminator:init(...)
  local a = bind_discriminator(...)
  local w = a.width
  self.conv1 = nn.Conv2d(a.channels, w, 4, double)
  self.conv2 = nn.Conv2d(w, 2 * w, 4, double)
  self.norm2 = norm(2 * w)
  self.conv3 = nn.Conv2d(2 * w, 4 * w, 4, double)
  self.norm3 = norm(4 * w)
  self.head = nn.Dense(4 * w * 16, 1, { has_bias = false, weight_init = normal })
  self.leaky = nn.LeakyReLU(0.2)
end

function M.Discriminator:construct(x)
  local n = x.shape[1]
  x = self.leaky(self.conv1(x))
  x = self.leaky(self.norm2(self.conv2(x)))
  x = self.leaky(self.norm3(self.conv3(x)))
  return ops.reshape(self.head(ops.reshape(x, { n, -1 })), { n })
end

return M
