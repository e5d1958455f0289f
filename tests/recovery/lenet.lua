-- LeNet on random images, for tests of recovery: dropout and running statistics, so that every random number and every
-- state counts. With width=640 steps write what they update into the memory of recovery; with fewer it is copied there.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { epochs = 8, samples = 2048, batch = 16, parallel_optimizer = false, accumulate = 1,
  mode = "data_parallel", every = 20, evaluate = true, device_num = 0, dies = 0, refuses = 0, nap = 0,
  stages = 1, layerwise = false, amp = "", scaled = false, patience = 0, generator = false,
  async = false, norm = true, nap_until = "", width = 64 }

local Net = nn.Cell:extend "Net"
function Net:init()
  self.conv1 = nn.Conv2d(1, 6, 5, { pad_mode = "valid" })
  if p.norm then self.norm = nn.BatchNorm2d(6) end
  self.conv2 = nn.Conv2d(6, 16, 5, { pad_mode = "valid" })
  self.pool = nn.MaxPool2d { kernel_size = 2, stride = 2 }
  self.drop = nn.Dropout { p = 0.2 }
  self.fc1 = nn.Dense(256, p.width)
  self.fc2 = nn.Dense(p.width, 10)
  self.relu, self.flatten = nn.ReLU(), nn.Flatten()
  if p.layerwise then self.fc2.bias.layerwise_parallel = true end
  if p.stages > 1 then
    for _, cell in ipairs { self.conv1, self.conv2 } do cell.pipeline_stage = 0 end
    if p.norm then self.norm.pipeline_stage = 0 end
    for _, cell in ipairs { self.drop, self.fc1, self.fc2 } do cell.pipeline_stage = 1 end
  end
end
function Net:construct(x)
  x = self.conv1(x)
  if p.norm then x = self.norm(x) end
  x = self.pool(self.relu(x))
  x = self.pool(self.relu(self.conv2(x)))
  return self.fc2(self.drop(self.relu(self.fc1(self.flatten(x)))))
end

-- One sample after the other, the same on every rank.
local function generated(n, batch)
  local function samples()
    local i = 0
    return function()
      i = i + 1
      if i <= n then return ms.rand({ 1, 28, 28 }, ms.float32, "image" .. i % 97), ms.Tensor(i % 10, ms.int32) end
    end
  end
  return ms.dataset.GeneratorDataset(samples, { "image", "label" }):batch(batch, true)
end

local function images(n, batch)
  ms.set_seed(7)
  local labels = {}
  for i = 1, n do labels[i] = i % 10 end
  return ms.dataset.NumpySlicesDataset({ ms.rand { n, 1, 28, 28 }, ms.Tensor(labels, ms.int32) }, { "image", "label" })
    :shuffle(64):batch(batch, true)
end

local parallel = { parallel_mode = p.mode, gradients_mean = true, enable_parallel_optimizer = p.parallel_optimizer }
if p.device_num > 0 then parallel.device_num = p.device_num end
if p.stages > 1 then parallel.pipeline_stages = p.stages end

if ms.communication.get_group_size() == p.refuses then error(("not on %d ranks"):format(p.refuses), 0) end

-- With dies=N rank 1 kills itself at the end of step N, each time that it comes there.
local Dies = ms.Callback:extend "Dies"
function Dies:on_train_step_end(run)
  if run.epoch == 1 and run.step == p.dies and ms.communication.get_rank() == 1 then os.execute "kill -9 $PPID" end
end

-- With nap=S each step takes that long at least; with nap_until=FILE while that file is not there.
local Nap = ms.Callback:extend "Nap"
function Nap:on_train_step_end()
  local file = p.nap_until ~= "" and io.open(p.nap_until)
  if file then
    file:close()
  else
    os.execute("sleep " .. p.nap)
  end
end

local callbacks = {}
if p.dies > 0 then callbacks[#callbacks + 1] = Dies() end
if p.nap > 0 then callbacks[#callbacks + 1] = Nap() end

return ms.recipe {
  name = "lenet", seed = 3,
  dataset = function() return (p.generator and generated or images)(p.samples, p.batch) end,
  eval_dataset = p.evaluate and function() return images(64, 16) end or nil,
  eval = p.evaluate and { metrics = { "top1" } } or nil,
  network = function() return p.stages > 1 and nn.PipelineCell(Net(), p.stages) or Net() end,
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = nn.Momentum { learning_rate = 0.02, momentum = 0.9 },
  callbacks = callbacks,
  train = {
    epochs = p.epochs, accumulate_steps = p.accumulate > 1 and p.accumulate or nil, amp = p.amp ~= "" and p.amp or nil,
    loss_scale = p.scaled and ms.DynamicLossScaleManager(2 ^ 120, 2, 20) or nil,
    early_stopping = p.patience > 0 and { monitor = "eval_top1", patience = p.patience } or nil,
  },
  parallel = parallel,
  checkpoint = { save_checkpoint_steps = p.every, keep_checkpoint_max = 3, async_save = p.async },
}
