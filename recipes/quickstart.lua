-- The quick-start tutorial: a network with one hidden layer on random data, made once and given at every step. One
-- matrix product is sharded by hand; with several ranks the rest follows.
--
--   mslua train recipes/quickstart.lua
--   mslua train recipes/quickstart.lua lr=0.05 epochs=10
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params {
  in_dim = 32, hidden_dim = 16, out_dim = 16,
  batch_size = 2, steps_per_epoch = 4, epochs = 5,
  lr = 0.2, momentum = 0.1,
  loss = 0.3,  -- expected of the last epoch
  presets = { smoke = { epochs = 4, loss = 0.34 } },
}

local Net = nn.Cell:extend "Net"

function Net:init()
  self.weight = ms.Parameter(ms.initializer("normal", { p.in_dim, p.hidden_dim }), "w")
  self.weight2 = ms.Parameter(ms.initializer("normal", { p.hidden_dim, p.out_dim }), "w2")
  -- The input in 2 parts along the batch and 4 along its width, the weight in 4 along its height.
  self.matmul = ops.MatMul():shard { { 2, 4 }, { 4, 1 } }
  self.relu = ops.ReLU()
  self.matmul2 = ops.MatMul()
end

function Net:construct(x)
  local out = self.matmul(x, self.weight)
  out = self.relu(out)
  return self.matmul2(out, self.weight2)
end

-- Gives the same random batch steps_per_epoch times.
local function get_dataset()
  local input = ms.rand({ p.batch_size, p.in_dim }, ms.float32, "input")
  local label = ms.rand({ p.batch_size, p.out_dim }, ms.float32, "label")
  return function()
    local step = 0
    return function()
      step = step + 1
      if step <= p.steps_per_epoch then return input, label end
    end
  end
end

return ms.recipe {
  name = "quickstart",
  doc = "one hidden layer on random data",
  seed = 1,
  dataset = function() return ms.dataset.GeneratorDataset(get_dataset(), { "input", "label" }) end,
  network = function() return Net() end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = p.momentum },
  train = { epochs = p.epochs, dataset_sink_mode = false },
  parallel = {
    parallel_mode = ms.ParallelMode.AUTO_PARALLEL, search_mode = "sharding_propagation",
    dataset_strategy = "data_parallel",
  },
  checkpoint = { save_checkpoint_steps = 4, keep_checkpoint_max = 5 },
  expect = { loss_below = p.loss },
}
