-- MobileNetV2 for small images on CIFAR-10: depthwise convolutions; crop and flip, Nesterov momentum, one cycle of the
-- learning rate.
--
--   mslua train recipes/mobilenetv2_cifar10.lua data_path=/data/cifar-10-batches-bin train.amp=bf16
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms
local MobileNetV2 = require "mobilenetv2"

local p = ms.params {
  data_path = "",
  epochs = 5, lr = 0.1, momentum = 0.9, weight_decay = 5e-4, dropout = 0.1,
  batch_size = 0,  -- rows of a rank; 0: a share of 128, so that several ranks learn as one does
  width = 0.5,  -- multiplies all channels
  top1 = 0.505,  -- expected of the last epoch
  presets = {
    smoke = {
      epochs = 1, lr = 0.03, width = 0.25, batch_size = 32, top1 = 0.12, ["train.max_steps"] = 40,
      ["eval.every_steps"] = 40,
    },
  },
}

ms.communication.init()
local rows = p.batch_size > 0 and p.batch_size or math.ceil(128 / ms.communication.get_group_size())
local mean, std = { 0.4914, 0.4822, 0.4465 }, { 0.2023, 0.1994, 0.2010 }

local function create_dataset(usage)
  local ds = ms.dataset.Cifar10Dataset(p.data_path, { usage = usage })
  local image = { vision.Rescale(1 / 255), vision.Normalize(mean, std) }
  if usage == "train" then
    -- After Normalize, so that what is padded is the mean colour.
    image = { image, vision.RandomCrop({ 32, 32 }, { 4, 4, 4, 4 }), vision.RandomHorizontalFlip() }
    ds = ds:shuffle(50000)
  end
  image = { image, vision.HWC2CHW() }
  ds = ds:map { operations = transforms.TypeCast(ms.int32), input_columns = "label" }
  ds = ds:map { operations = image, input_columns = "image" }
  return ds:batch(rows, { drop_remainder = usage == "train" })
end

return ms.recipe {
  name = "mobilenetv2_cifar10",
  doc = "MobileNetV2 on CIFAR-10, one cycle",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { rows, 3, 32, 32 } },
    { dtype = ms.int32, shape = { rows } },
  },
  network = function()
    return MobileNetV2 { classes = 10, width = p.width, dropout = p.dropout, stem = "cifar" }
  end,
  labels = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" },
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = function(steps)
    return nn.Momentum {
      learning_rate = nn.one_cycle_lr { max_lr = p.lr, total_step = p.epochs * steps },
      momentum = p.momentum, use_nesterov = true, weight_decay = p.weight_decay,
    }
  end,
  train = { epochs = p.epochs },
  eval = { metrics = { "top1" } },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 78, keep_checkpoint_max = 2 },
  expect = { top1_above = p.top1 },
}
