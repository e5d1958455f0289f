-- LeNet-5 on MNIST's digits.
--
--   mslua train recipes/lenet_mnist.lua data_path=/data/mnist
--   mslua data make mnist /data/mnist          a stand-in with the real file format
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms
local LeNet5 = require "lenet"

local p = ms.params {
  data_path = "",
  epochs = 8, batch_size = 32, lr = 0.02, momentum = 0.9,
  top1 = 0.98,  -- expected of the last epoch
  presets = { smoke = { epochs = 1, top1 = 0.2, ["train.max_steps"] = 60, ["eval.every_steps"] = 60 } },
}

local function create_dataset(usage)
  local ds = ms.dataset.MnistDataset(p.data_path, { usage = usage })
  ds = ds:map { operations = transforms.TypeCast(ms.int32), input_columns = "label" }
  ds = ds:map {
    operations = {
      vision.Resize { 32, 32 }, vision.Rescale(1 / 255), vision.Normalize({ 0.1307 }, { 0.3081 }), vision.HWC2CHW(),
    },
    input_columns = "image",
  }
  if usage == "train" then ds = ds:shuffle(60000) end
  return ds:batch(p.batch_size, { drop_remainder = usage == "train" })
end

return ms.recipe {
  name = "lenet_mnist",
  doc = "LeNet-5 on MNIST",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  network = function() return LeNet5(10) end,
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = function(steps)
    local rate = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = p.epochs * steps }
    return nn.Momentum { learning_rate = rate, momentum = p.momentum }
  end,
  train = { epochs = p.epochs },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  eval = { metrics = { "top1" } },
  checkpoint = { save_checkpoint_steps = 250, keep_checkpoint_max = 3 },
  expect = { top1_above = p.top1 },
}
