-- Pipeline stages: a deep network whose layers are shared out among groups of ranks. A batch goes through in
-- micro-batches, so that the stages work at the same time. The numbers are those of one rank.
--
--   mslua train recipes/examples/pipeline.lua                      one rank
--   mslua train recipes/examples/pipeline.lua -n 2                 two stages
--   mslua train recipes/examples/pipeline.lua -n 4 batch_size=16   two stages of two ranks, which share the rows
--   mslua train recipes/examples/pipeline.lua -n 4 stages=4        four stages
--   mslua plan recipes/examples/pipeline.lua -n 4                  what each stage has and sends
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params {
  stages = 2, micro_size = 4,
  layers = 8, width = 32, batch_size = 32, epochs = 5, lr = 0.003,
}

local Net = nn.Cell:extend "Net"

function Net:init()
  self.blocks = nn.CellList {}
  for i = 1, p.layers do
    local block = nn.SequentialCell { nn.Dense(p.width, p.width), nn.Tanh() }
    -- Neighbouring layers are of one stage; a stage feeds later ones.
    block.pipeline_stage = math.floor((i - 1) * p.stages / p.layers)
    self.blocks:append(block)
  end
  self.head = nn.Dense(p.width, 1)  -- of no stage in particular: it comes where its input is
end

function Net:construct(x)
  for _, block in self.blocks:each() do x = x + block(x) end
  return self.head(x)
end

-- A function of two columns that is not linear.
local function samples(name)
  local x = ms.randn({ 256, p.width }, "float32", name)
  local columns = ops.transpose(x, { 2, 1 })
  return ms.dataset.NumpySlicesDataset({ x, ops.reshape(ops.relu(columns[1]) - columns[2], { 256, 1 }) },
    { column_names = { "x", "y" } }):batch(p.batch_size, { drop_remainder = true })
end

return ms.recipe {
  name = "pipeline",
  doc = "layers in pipeline stages",
  dataset = function() return samples "train" end,
  eval_dataset = function() return samples "eval" end,
  network = function() return nn.PipelineCell(Net(), p.micro_size) end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 },
  train = { epochs = p.epochs },
  eval = { metrics = { "loss" }, every_epochs = p.epochs },
  parallel = { parallel_mode = ms.ParallelMode.SEMI_AUTO_PARALLEL, pipeline_stages = p.stages },
  checkpoint = { save_checkpoint_steps = 20 },
}
