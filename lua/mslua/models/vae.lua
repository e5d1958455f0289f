--- A variational autoencoder (Kingma and Welling, 2014) of convolutions, for pictures of 32x32 pixels.
-- Letters of shapes: n pictures, c channels, z numbers of the code.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local M = {}

M.Vae = nn.Cell:extend "Vae"

local double = { stride = 2, pad_mode = "pad", padding = 1, has_bias = true }
local bind = args.signature("Vae", {
  { "latent", "integer", 16, min = 1 }, { "width", "integer", 32, min = 1 }, { "channels", "integer", 1, min = 1 },
})

--- (latent = 16, width = 32 of the first layer, channels = 1)
function M.Vae:init(...)
  local a = bind(...)
  local w = a.width
  self.latent, self.width = a.latent, w
  self.conv1 = nn.Conv2d(a.channels, w, 4, double)
  self.conv2 = nn.Conv2d(w, 2 * w, 4, double)
  self.mean = nn.Dense(2 * w * 64, a.latent)
  self.log_variance = nn.Dense(2 * w * 64, a.latent)
  self.project = nn.Dense(a.latent, 2 * w * 64)
  self.conv3 = nn.Conv2dTranspose(2 * w, w, 4, double)
  self.conv4 = nn.Conv2dTranspose(w, a.channels, 4, double)
end

--- Pictures [n, c, 32, 32] give mean and logarithm of the variance of their codes, [n, z].
function M.Vae:encode(x)
  x = ops.relu(self.conv2(ops.relu(self.conv1(x))))
  x = ops.reshape(x, { x.shape[1], -1 })
  return self.mean(x), self.log_variance(x)
end

--- Codes [n, z] give the logits of pixels between 0 and 1, [n, c, 32, 32].
function M.Vae:decode(z)
  local x = ops.relu(self.project(z))
  x = ops.reshape(x, { z.shape[1], 2 * self.width, 8, 8 })
  return self.conv4(ops.relu(self.conv3(x)))
end

--- Pictures of pixels between 0 and 1 give { logits = of the pictures that their codes draw, mean =, log_variance = }.
--- The codes are mean + deviation * noise; noise [n, z] is drawn at each call where it is left out.
function M.Vae:construct(x, noise)
  local mean, log_variance = self:encode(x)
  noise = noise or ms.randn({ x.shape[1], self.latent }, mean.dtype)
  return { logits = self:decode(mean + ops.exp(0.5 * log_variance) * noise), mean = mean, log_variance = log_variance }
end

--- Pictures give the pictures of the means of their codes, [n, c, 32, 32] of pixels between 0 and 1.
function M.Vae:predict(x) return ops.sigmoid(self:decode((self:encode(x)))) end

M.Elbo = loss.Loss:extend "Elbo"

--- The negative evidence lower bound of a picture, in nats, of what Vae gives and the picture: the cross entropy of its
--- pixels and the divergence of its code from the standard normal distribution.
function M.Elbo:rows(output, picture)
  local x, mean, log_variance = output.logits, output.mean, output.log_variance
  local pixels = ops.softplus(x) - picture * x
  local code = 0.5 * (mean * mean + ops.exp(log_variance) - 1 - log_variance)
  return loss.over_rows(pixels, "sum") + loss.over_rows(code, "sum")
end

return M
