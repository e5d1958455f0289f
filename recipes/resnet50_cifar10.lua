-- The tutorials' job: ResNet-50 on CIFAR-10, images enlarged to 224x224, momentum 0.9, learning rate 0.01.
--
--   mslua train recipes/resnet50_cifar10.lua data_path=/data/cifar-10-batches-bin
--   mslua train recipes/resnet50_cifar10.lua data_path=/data/cifar-10-batches-bin image_size=32 epochs=1
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms
local resnet = require "resnet"
local SoftmaxCrossEntropyExpand = require "softmax_cross_entropy_expand"

local p = ms.params {
  data_path = "",
  epochs = 10, batch_size = 32, lr = 0.01, momentum = 0.9,
  image_size = 224,
  width = 64,           -- channels of the first stage
  expand_loss = false,  -- the loss written out in small operators, as in the tutorials
  loss = 1.6,           -- expected of the last epoch
  presets = { smoke = { epochs = 1, image_size = 32, width = 8, loss = 2.5, ["train.max_steps"] = 10 } },
}

local function create_dataset(usage)
  local ds = ms.dataset.Cifar10Dataset(p.data_path, { usage = usage })
  local image = {
    vision.Resize { p.image_size, p.image_size },
    vision.Rescale(1 / 255, 0),
    vision.Normalize({ 0.4914, 0.4822, 0.4465 }, { 0.2023, 0.1994, 0.2010 }),
    vision.HWC2CHW(),
  }
  if usage == "train" then
    image = { vision.RandomCrop({ 32, 32 }, { 4, 4, 4, 4 }), vision.RandomHorizontalFlip(), image }
  end
  ds = ds:map { operations = transforms.TypeCast(ms.int32), input_columns = "label" }
  ds = ds:map { operations = image, input_columns = "image" }
  if usage == "train" then ds = ds:shuffle(50000) end
  return ds:batch(p.batch_size, { drop_remainder = usage == "train" })
end

return ms.recipe {
  name = "resnet50_cifar10",
  doc = "ResNet-50 on CIFAR-10, the tutorials' job",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { p.batch_size, 3, p.image_size, p.image_size } },
    { dtype = ms.int32, shape = { p.batch_size } },
  },
  network = function() return resnet.resnet50 { num_classes = 10, width = p.width } end,
  labels = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" },
  loss = p.expand_loss and SoftmaxCrossEntropyExpand(true)
    or nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = p.momentum },
  train = { epochs = p.epochs, dataset_sink_mode = true },
  eval = { metrics = { "top1" } },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 100, keep_checkpoint_max = 5 },
  expect = { loss_below = p.loss },
}
