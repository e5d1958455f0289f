local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local function points(n)  -- n random points of a square; label 1: inside a circle
  local x = ms.rand { n, 2 } * 2 - 1
  return ms.dataset.NumpySlicesDataset({ x, ops.cast(ops.less((x * x):sum(2), 0.6), ms.int32) }):batch(32)
end
return ms.recipe {
  name = "circle",
  dataset = points(2048), eval_dataset = points(512),
  network = function() return nn.SequentialCell { nn.Dense(2, 32), nn.Tanh(), nn.Dense(32, 2) } end,
  loss = nn.CrossEntropyLoss(), optimizer = nn.Adam { learning_rate = 0.02 },
  train = { epochs = 4 }, eval = { metrics = { "top1" } },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 64 },
}
