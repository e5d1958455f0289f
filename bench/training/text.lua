-- A language model on one random batch in memory: nanoGPT's network for a CPU, or with other sizes GPT-2; BERT; Llama.
-- A checkpoint is saved each `save_every` steps; 0: none is.
local ms = require "mslua"
local nn = ms.nn

local p = ms.params {
  network = "gpt", vocab = 65, layers = 4, heads = 4, dim = 128, block = 64, batch_size = 12, save_every = 0,
  presets = {
    gpt2 = { vocab = 50257, layers = 12, heads = 12, dim = 768, block = 256, batch_size = 2 },
    bert = { network = "bert", vocab = 4096, dim = 256, block = 128, batch_size = 8 },
    llama = { network = "llama", vocab = 4096, dim = 256, heads = 8, block = 128, batch_size = 8 },
  },
}

-- Each requires what it needs: an mslua of before, which tools/bench --before runs, has not all of them.
local networks = {
  gpt = function()
    return require "gpt" {
      vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, dim = p.dim, dropout = 0,
    }
  end,
  bert = function()
    return require "bert" {
      vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, dim = p.dim, dropout = 0, head = "mlm",
      pooler = false, epsilon = 1e-5,
    }
  end,
  llama = function()
    return require "llama" {
      vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, kv_heads = p.heads / 2, dim = p.dim,
      hidden = 688,
    }
  end,
}

return ms.recipe {
  name = p.network,
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
  network = assert(networks[p.network], "network: gpt, bert or llama"),
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.AdamWeightDecay { learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1 },
  train = { epochs = 100000 },
  checkpoint = p.save_every > 0 and { save_checkpoint_steps = p.save_every, keep_checkpoint_max = 1, async_save = true }
    or nil,
}
