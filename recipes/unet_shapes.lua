-- A U-Net finds strokes: MNIST's digits drawn on CIFAR-10's pictures. Picture and mask are augmented alike.
--
--   mslua train recipes/unet_shapes.lua data_path=/data/cifar-10-batches-bin digits_path=/data/mnist
local ms = require "mslua"
local nn, ops, vision, transforms = ms.nn, ms.ops, ms.dataset.vision, ms.dataset.transforms
local Unet = require "unet"

local p = ms.params {
  data_path = "", digits_path = "",  -- CIFAR-10 and MNIST
  width = 12, depth = 3,
  strength = 0.5,  -- of the strokes: 1 hides the picture
  epochs = 4, batch_size = 32, lr = 2e-3, weight_decay = 1e-4,
  iou = 0.76,  -- expected of the last epoch
  presets = {
    smoke = { epochs = 1, width = 4, depth = 2, batch_size = 8, iou = 0, ["train.max_steps"] = 8 },
  },
}

-- u8 [32, 32, 3] and the digit u8 [32, 32, 1]: the picture with strokes of another brightness, and the mask of their
-- pixels.
local function draw(picture, digit)
  local x, ink = ops.cast(picture, "float32"), ops.cast(digit, "float32") / 255
  local bright = ops.greater(ops.reduce_mean(x, { 1, 2, 3 }), 127.5)
  local target = ops.select(bright, x * (1 - p.strength), x * (1 - p.strength) + 255 * p.strength)
  return x + ink * (target - x), ops.cast(ops.greater(ink, 0.5), "float32")
end

local function create_dataset(usage)
  local pictures = ms.dataset.Cifar10Dataset(p.data_path, { usage = usage }):project "image"
  local digits = ms.dataset.MnistDataset(p.digits_path, { usage = usage }):project("image", "digit")
  digits = digits:map { operations = vision.Resize { 32, 32 }, input_columns = "digit" }
  local ds = pictures:zip(digits)
  ds = ds:map { operations = draw, input_columns = { "image", "digit" }, output_columns = { "image", "mask" } }
  if usage == "train" then
    ds = ds:map {
      operations = { vision.RandomCrop({ 32, 32 }, { 4, 4, 4, 4 }), vision.RandomHorizontalFlip() },
      input_columns = { "image", "mask" },
    }
    ds = ds:shuffle(60000)
  end
  ds = ds:map { operations = { vision.Rescale(1 / 128, -1), vision.HWC2CHW() }, input_columns = "image" }
  ds = ds:map { operations = { vision.HWC2CHW(), transforms.TypeCast(ms.int32) }, input_columns = "mask" }
  return ds:batch(p.batch_size, { drop_remainder = usage == "train" })
end

-- The cross entropy of the pixels of a picture.
local PixelLoss = nn.Cell:extend "PixelLoss"

function PixelLoss:init() self.each = nn.CrossEntropyLoss() end
function PixelLoss:rows(logits, mask) return self.each:rows(ops.transpose(logits, { 1, 3, 4, 2 }), mask) end
function PixelLoss:construct(logits, mask) return ops.reduce_mean((self:rows(logits, mask))) end

return ms.recipe {
  name = "unet_shapes",
  doc = "a U-Net finds strokes on pictures: a class for each pixel",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { p.batch_size, 3, 32, 32 } },
    { dtype = ms.int32, shape = { p.batch_size, 1, 32, 32 } },
  },
  network = function() return Unet { channels = 3, classes = 2, width = p.width, depth = p.depth } end,
  labels = { "picture", "stroke" },
  loss = PixelLoss(),
  optimizer = function(steps)
    return nn.AdamW {
      learning_rate = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = p.epochs * steps },
      weight_decay = p.weight_decay,
    }
  end,
  train = { epochs = p.epochs },
  eval = { metrics = { "iou" } },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 250, keep_checkpoint_max = 2 },
  expect = { iou_above = p.iou },
}
