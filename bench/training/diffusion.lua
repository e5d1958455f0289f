-- A step of the denoiser of recipes/ddpm_mnist.lua on one random batch in memory.
local ms = require "mslua"
local nn = ms.nn
local Ddpm = require "ddpm"

local p = ms.params { batch_size = 64, image_size = 32, width = 24, patch = 2 }

return ms.recipe {
  name = "ddpm",
  seed = 1,
  dataset = function()
    local images = ms.randn { p.batch_size, 1, p.image_size, p.image_size }
    return ms.dataset.NumpySlicesDataset({ images }, { "image" }):batch(p.batch_size, { drop_remainder = true })
  end,
  network = function() return Ddpm { width = p.width, multiples = { 1, 2 }, patch = p.patch } end,
  steps = {
    {
      name = "denoiser",
      loss = function(net, images) return net:loss(images) end,
      optimizer = nn.AdamWeightDecay {
        learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1,
      },
    },
  },
  train = { epochs = 100000 },
}
