-- A small network without batch normalisation, on a global batch of 24 whatever the ranks: its losses, their mean over
-- the ranks, do not depend on the number of ranks.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params { parallel_optimizer = false }
local ranks = ms.communication.get_group_size()

local Net = nn.Cell:extend "Net"
function Net:init()
  self.fc1, self.fc2, self.fc3 = nn.Dense(16, 64), nn.Dense(64, 64), nn.Dense(64, 4)
end
function Net:construct(x) return self.fc3(ops.tanh(self.fc2(ops.tanh(self.fc1(x))))) end

return ms.recipe {
  name = "mlp",
  seed = 1,
  dataset = function()
    local x, y = ms.randn({ 240, 16 }, ms.float32, "x"), ms.randn({ 240, 4 }, ms.float32, "y")
    return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):shuffle(240):batch(24 / ranks)
  end,
  network = function() return Net() end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 0.05, momentum = 0.9 },
  train = { epochs = 5, clip_norm = 1 },
  parallel = {
    parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true,
    enable_parallel_optimizer = p.parallel_optimizer, parallel_optimizer_config = { parallel_optimizer_threshold = 1 },
    comm_fusion = { allreduce = { mode = "index", config = { 2, 4 } } },
  },
}
