-- A GPT on one random batch in memory: nanoGPT's network for a CPU, or with other sizes GPT-2.
local ms = require "mslua"
local nn = ms.nn
local GPT = require "gpt"

local p = ms.params {
  vocab = 65, layers = 4, heads = 4, dim = 128, block = 64, batch_size = 12,
  presets = { gpt2 = { vocab = 50257, layers = 12, heads = 12, dim = 768, block = 256, batch_size = 2 } },
}

return ms.recipe {
  name = "gpt",
  seed = 1,
  dataset = function()
    local x, y, token = {}, {}, 1
    for i = 1, p.batch_size do
      x[i], y[i] = {}, {}
      for j = 1, p.block do
        x[i][j], token = token, (token * 75 + 74) % 65537 % p.vocab
        y[i][j] = token
      end
    end
    return ms.dataset.NumpySlicesDataset({ ms.Tensor(x, ms.int32), ms.Tensor(y, ms.int32) }, { "x", "y" })
      :batch(p.batch_size, { drop_remainder = true })
  end,
  network = function()
    return GPT { vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, dim = p.dim, dropout = 0 }
  end,
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.AdamWeightDecay { learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1 },
  train = { epochs = 100000 },
}
