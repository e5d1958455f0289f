-- A Vision Transformer on CIFAR-10: patches of 4x4 pixels as tokens, branches that rows skip, averages of parameters.
--
--   mslua train recipes/vit_cifar10.lua data_path=/data/cifar-10-batches-bin
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms
local Vit = require "vit"

local p = ms.params {
  data_path = "",
  epochs = 8, warmup = 1,  -- epochs
  lr = 1e-3, beta1 = 0.9, beta2 = 0.999, weight_decay = 0.05, clip_norm = 1, ema = 0.99,
  batch_size = 0,  -- rows of a rank; 0: a share of 64, so that several ranks learn as one does
  patch = 4, layers = 4, heads = 4, dim = 128, dropout = 0, drop_path = 0.1,
  top1 = 0.36,  -- expected of the last epoch
  presets = {
    smoke = {
      epochs = 1, warmup = 0.1, batch_size = 32, layers = 2, heads = 2, dim = 32, ema = 0.9, top1 = 0.12,
      ["train.max_steps"] = 40, ["eval.every_steps"] = 40,
    },
  },
}

ms.communication.init()
local rows = p.batch_size > 0 and p.batch_size or math.ceil(64 / ms.communication.get_group_size())
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
  name = "vit_cifar10",
  doc = "a Vision Transformer on CIFAR-10: drop path and averages of parameters",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { rows, 3, 32, 32 } },
    { dtype = ms.int32, shape = { rows } },
  },
  network = function()
    return Vit {
      image_size = 32, patch = p.patch, classes = 10, layers = p.layers, heads = p.heads, dim = p.dim,
      dropout = p.dropout, drop_path = p.drop_path, epsilon = 1e-6,
    }
  end,
  labels = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" },
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = function(steps)
    local warmup = math.floor(p.warmup * steps)
    return nn.AdamWeightDecay {
      learning_rate = nn.warmup_lr {
        learning_rate = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = p.epochs * steps - warmup },
        warmup_epoch = warmup,
      },
      beta1 = p.beta1, beta2 = p.beta2, eps = 1e-8,
      -- Matrices and kernels decay; biases and normalisation do not.
      params = {
        { params = function(q) return #q.shape > 1 end, weight_decay = p.weight_decay },
        { params = function(q) return #q.shape == 1 end, weight_decay = 0 },
      },
    }
  end,
  train = { epochs = p.epochs, clip_norm = p.clip_norm, ema = p.ema },
  eval = { metrics = { "top1" } },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 156, keep_checkpoint_max = 2 },
  expect = { top1_above = p.top1 },
}
