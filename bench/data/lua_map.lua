-- char_gpt with a file of Lua that takes 100 us for each sample. bench/data/lua_map.py reads how long steps wait.
local ms = require "mslua"
local nn = ms.nn
local GPT = require "gpt"

local p = ms.params { data_path = "", microseconds = 100, workers = 2, steps = 150 }

return ms.recipe {
  name = "lua_map",
  seed = 1,
  dataset = function()
    return ms.dataset.TextDataset(p.data_path, { usage = "train", block = 64, stride = 1 }):shuffle(2 ^ 24)
      :take(12 * p.steps)
      :map { operations = "busy.lua", arguments = p.microseconds, num_parallel_workers = p.workers }
      :batch(12, { drop_remainder = true })
  end,
  network = function() return GPT { vocab = 65, block = 64, layers = 4, heads = 4, dim = 128, dropout = 0 } end,
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.Adam { learning_rate = 1e-3 },
  train = { epochs = 1 },
}
