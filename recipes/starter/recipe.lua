-- A recipe to start from: a small network that tells points inside a circle from those outside.
--
--   mslua train recipe.lua              trains it
--   mslua train recipe.lua lr=0.01 -n 2 with another learning rate, on 2 ranks
--   mslua verify recipe.lua             trains it and checks what `expect` says
--   mslua run recipe_test.lua           tests its parts
local ms = require "mslua"
local nn = ms.nn
local data = require "data"

local p = ms.params {
  epochs = 8, batch_size = 32, hidden = 32, lr = 0.02,
  top1 = 0.9,  -- expected of the last epoch
  presets = { smoke = { epochs = 1, top1 = 0.5 } },
}

return ms.recipe {
  name = "starter",
  doc = "points inside a circle",
  seed = 1,
  dataset = function() return data.points("train", 2048):shuffle(2048):batch(p.batch_size) end,
  eval_dataset = function() return data.points("test", 512):batch(p.batch_size) end,
  network = function()
    return nn.SequentialCell { nn.Dense(2, p.hidden), nn.Tanh(), nn.Dense(p.hidden, 2) }
  end,
  loss = nn.CrossEntropyLoss(),
  optimizer = function() return nn.Adam { learning_rate = p.lr } end,
  train = { epochs = p.epochs },
  eval = { metrics = { "top1" } },
  checkpoint = { save_checkpoint_steps = 64, keep_checkpoint_max = 2 },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  expect = { top1_above = p.top1 },
}
