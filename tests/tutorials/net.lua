-- The quick-start tutorial's net.py, line by line: a matrix product is sharded by hand, the rest follows.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local function get_dataset(batch_size, in_dim, out_dim, step_per_epoch)
  ms.set_seed(1)
  local input_data = ms.rand({ batch_size, in_dim }, ms.float32)
  local label_data = ms.rand({ batch_size, out_dim }, ms.float32)
  return function()
    local step = 0
    return function()
      step = step + 1
      if step <= step_per_epoch then return input_data, label_data end
    end
  end
end

local Net = nn.Cell:extend "Net"

function Net:init(in_dim, hidden_dim, out_dim)
  self.weight = ms.Parameter(ms.initializer("normal", { in_dim, hidden_dim }), "w")
  self.weight2 = ms.Parameter(ms.initializer("normal", { hidden_dim, out_dim }), "w2")
  self.matmul = ops.MatMul():shard { { 2, 4 }, { 4, 1 } }
  self.relu = ops.ReLU()
  self.matmul2 = ops.MatMul()
end

function Net:construct(x)
  local out = self.matmul(x, self.weight)
  out = self.relu(out)
  out = self.matmul2(out, self.weight2)
  return out
end

local step_per_epoch, single_batch_size = 4, 2
local in_dim, hidden_dim, out_dim = 32, 16, 16

ms.set_context { mode = ms.GRAPH_MODE, device_target = "CPU", save_graphs = 2, save_graphs_path = "../saved_graph" }
ms.set_auto_parallel_context { parallel_mode = ms.ParallelMode.AUTO_PARALLEL, search_mode = "sharding_propagation",
  dataset_strategy = "data_parallel" }
ms.communication.init()
local rank_id = ms.communication.get_rank()
local fake_dataset = get_dataset(single_batch_size, in_dim, out_dim, step_per_epoch)
local dataset = ms.dataset.GeneratorDataset(fake_dataset, { "input", "label" })
local net = Net(in_dim, hidden_dim, out_dim)
local loss = nn.MSELoss()
local callback = { ms.LossMonitor(), ms.ModelCheckpoint { directory = ("%d"):format(rank_id) } }
local learning_rate, momentum, epoch_size = 0.2, 0.1, 5
local opt = nn.Momentum(net:trainable_params(), learning_rate, momentum)
local model = ms.Model(net, { loss_fn = loss, optimizer = opt })
model:train(epoch_size, dataset, { callbacks = callback, dataset_sink_mode = false })
