-- A language model of characters with two layers of LSTM on one random batch in memory.
local ms = require "mslua"
local nn = ms.nn

local p = ms.params { vocab = 65, layers = 2, hidden = 256, block = 128, batch_size = 32 }

local Net = nn.Cell:extend "CharLstm"

function Net:init()
  self.embed = nn.Embedding(p.vocab, p.hidden)
  self.lstm = nn.LSTM(p.hidden, p.hidden, { num_layers = p.layers, batch_first = true })
  self.head = nn.Dense(p.hidden, p.vocab)
end

function Net:construct(ids) return self.head((self.lstm(self.embed(ids)))) end

return ms.recipe {
  name = "lstm",
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
  network = function() return Net() end,
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.AdamWeightDecay { learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1 },
  train = { epochs = 100000 },
}
