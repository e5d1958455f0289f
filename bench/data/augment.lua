-- What one transform does to ResNet-18's accuracy on few pictures of CIFAR-10: the recipe resnet18_cifar10, with
-- `transform` in place of its crop and flip, on the first `train_rows` training pictures.
--
--   mslua sweep bench/data/augment.lua data_path=/data/cifar-10-batches-bin transform=none,RandomCrop,MixUpBatch
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms
local resnet = require "resnet"

local p = ms.params {
  data_path = "",
  transform = "none",
  train_rows = 1000, test_rows = 2000,
  epochs = 30, lr = 0.1, momentum = 0.9, weight_decay = 5e-4, batch_size = 32, test_batch = 50,
  width = 16,  -- channels of the first stage; resnet18_cifar10 has 64
  presets = { smoke = { epochs = 1, width = 8, train_rows = 64, test_rows = 50 } },
}
local mean, std = { 0.4914, 0.4822, 0.4465 }, { 0.2023, 0.1994, 0.2010 }

-- On pictures of uint8 (`picture`), on normalised ones (`normalised`), or on batches of these (`batch`).
local choices = {
  none = {},
  RandomHorizontalFlip = { picture = vision.RandomHorizontalFlip() },
  RandomVerticalFlip = { picture = vision.RandomVerticalFlip() },
  -- On normalised pictures, so that what is padded or erased is the mean colour.
  RandomCrop = { normalised = vision.RandomCrop(32, 4) },
  RandomErasing = { normalised = vision.RandomErasing() },
  RandomResizedCrop = { picture = vision.RandomResizedCrop(32, { 0.5, 1 }) },
  RandomRotation = { picture = vision.RandomRotation(15) },
  ColorJitter = { picture = vision.ColorJitter(0.4, 0.4, 0.4, 0.1) },
  GaussianBlur = { picture = vision.GaussianBlur(3) },
  RandAugment = { picture = vision.RandAugment() },
  TrivialAugmentWide = { picture = vision.TrivialAugmentWide() },
  MixUpBatch = { batch = vision.MixUpBatch(0.2) },
  CutMixBatch = { batch = vision.CutMixBatch(1) },
  recipe = { normalised = { vision.RandomCrop(32, 4), vision.RandomHorizontalFlip() } },
}
local names = {}
for name in pairs(choices) do names[#names + 1] = name end
table.sort(names)
local chosen = choices[p.transform] or error("transform: expected one of " .. table.concat(names, ", "), 0)

local function create_dataset(usage, rows)
  local trains = usage == "train"
  local extra = trains and chosen or {}
  local ds = ms.dataset.Cifar10Dataset(p.data_path, { usage = usage, num_samples = rows })
  if trains then ds = ds:shuffle(rows) end
  local label = extra.batch and { transforms.OneHot(10), transforms.TypeCast(ms.float32) }
  ds = ds:map { operations = label or transforms.TypeCast(ms.int32), input_columns = "label" }
  local image = { extra.picture or {}, vision.Rescale(1 / 255), vision.Normalize(mean, std), extra.normalised or {} }
  ds = ds:map { operations = { image, vision.HWC2CHW() }, input_columns = "image" }
  ds = ds:batch(trains and p.batch_size or p.test_batch, { drop_remainder = true })
  return extra.batch and ds:map { operations = extra.batch, input_columns = { "image", "label" } } or ds
end

-- Labels are ids, or rows of probabilities where batches are mixed.
local of_ids = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" }
local of_rows = nn.SoftmaxCrossEntropyWithLogits { sparse = false, reduction = "mean" }

return ms.recipe {
  name = "augment",
  doc = "ResNet-18 on few pictures of CIFAR-10 with one transform",
  seed = 1,
  dataset = function() return create_dataset("train", p.train_rows) end,
  eval_dataset = function() return create_dataset("test", p.test_rows) end,
  network = function() return resnet.resnet18 { num_classes = 10, stem = "cifar", width = p.width } end,
  labels = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" },
  loss = function(logits, label) return (#label.shape == 1 and of_ids or of_rows)(logits, label) end,
  optimizer = function(steps)
    return nn.Momentum {
      learning_rate = nn.one_cycle_lr { max_lr = p.lr, total_step = p.epochs * steps },
      momentum = p.momentum, use_nesterov = true, weight_decay = p.weight_decay,
    }
  end,
  train = { epochs = p.epochs },
  eval = { metrics = { "top1", "confusion_matrix" }, every_epochs = p.epochs },
}
