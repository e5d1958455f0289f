-- The Ascend tutorial's part on checkpoints: a data parallel network, then a semi-automatic one, in one script, with a
-- directory per rank. It differs from the tutorial where MindSpore refuses what the tutorial has: Equal's strategy must
-- be one for both operands, and its result, a Boolean, has no loss.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

ms.communication.init()
local get_rank = ms.communication.get_rank

local function CreateData()
  return ms.dataset.NumpySlicesDataset({ ms.ones { 32, 128 }, ms.zeros { 32, 16 } }, { "input", "label" }):batch(4)
end

local DataParallelNet = nn.Cell:extend "DataParallelNet"

function DataParallelNet:init(test_size, strategy, layerwise_parallel)
  self.weight = ms.Parameter(ms.full(test_size, 0.1), "fc_weight", { layerwise_parallel = layerwise_parallel })
  self.relu = nn.ReLU()
  self.fc = ops.MatMul()
  if strategy then self.fc:shard(strategy) end
end

function DataParallelNet:construct(inputs)
  local x = self.relu(inputs)
  x = self.fc(x, self.weight)
  return x
end

local SemiAutoParallelNet = nn.Cell:extend "SemiAutoParallelNet"

function SemiAutoParallelNet:init(mul_size, test_size, strategy, strategy2)
  self.mul_weight = ms.Parameter(ms.full(mul_size, 0.5), "mul_weight")
  self.equal_weight = ms.Parameter(ms.full(test_size, 0.1), "equal_weight")
  self.mul = ops.Mul()
  self.add = ops.Add()
  if strategy then
    self.mul:shard(strategy)
    self.add:shard(strategy2)
  end
end

function SemiAutoParallelNet:construct(inputs)
  local x = self.mul(inputs, self.mul_weight)
  x = self.add(x, self.equal_weight)
  return x
end

-- Data parallel
local dataset = CreateData()
local net = DataParallelNet({ 128, 16 }, { { 1, 1 }, { 1, 8 } }, false)
ms.reset_auto_parallel_context()
ms.set_auto_parallel_context { parallel_mode = ms.ParallelMode.DATA_PARALLEL, device_num = 8 }
local ckpt_config = ms.CheckpointConfig { keep_checkpoint_max = 1 }
local ckpt_path = ("./rank_%d_ckpt"):format(get_rank())
local ckpt_callback = ms.ModelCheckpoint { prefix = "data_parallel", directory = ckpt_path, config = ckpt_config }
local opt = nn.Momentum(net:trainable_params(), 0.01, 0.9)
local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = opt })
model:train(1, dataset, { callbacks = { ckpt_callback } })
ms.reset_auto_parallel_context()

-- Semi-automatic
local strategy = { { 1, 8 }, { 1, 8 } }
net = SemiAutoParallelNet({ 32, 128 }, { 32, 128 }, strategy, strategy)
ms.reset_auto_parallel_context()
ms.set_auto_parallel_context { parallel_mode = ms.ParallelMode.SEMI_AUTO_PARALLEL, dataset_strategy = "full_batch" }
ckpt_config = ms.CheckpointConfig { keep_checkpoint_max = 1, integrated_save = false }
ckpt_callback = ms.ModelCheckpoint { prefix = "semi_auto_parallel", directory = ckpt_path, config = ckpt_config }
opt = nn.Momentum(net:trainable_params(), 0.01, 0.9)
model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = opt })
model:train(1, ms.dataset.NumpySlicesDataset({ ms.ones { 32, 128 }, ms.zeros { 32, 128 } }, { "input", "label" })
  :batch(32), { callbacks = { ckpt_callback } })
ms.reset_auto_parallel_context()

-- Each loads what its rank saved.
local again = SemiAutoParallelNet({ 32, 128 }, { 32, 128 })
ms.load_param_into_net(again, ms.load_checkpoint(ckpt_path .. "/semi_auto_parallel-1_1.ckpt"))
print(("rank %d: mul_weight %.6f"):format(get_rank(), again.mul_weight.value:mean():item()))
