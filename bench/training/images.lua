-- An image classifier on random batches in memory, `batches` an epoch: LeNet, ResNet-18 for small images, ResNet-50,
-- MobileNetV2 and a Vision Transformer. With `loader=true` a batch is made of pictures of 32 x 32 bytes, which are
-- cropped, flipped, resized and normalised.
local ms = require "mslua"
local nn, vision = ms.nn, ms.dataset.vision

local p = ms.params {
  network = "resnet50", batch_size = 32, image_size = 32, lr = 0.01, batches = 1, loader = false,
}

-- Each requires what it needs: an mslua of before, which tools/bench --before runs, has not all of them.
local networks = {
  lenet = function() return require "lenet"(10) end,
  resnet18 = function() return require("resnet").resnet18 { num_classes = 10, stem = "cifar" } end,
  resnet50 = function() return require("resnet").resnet50 { num_classes = 10 } end,
  mobilenetv2 = function() return require "mobilenetv2" { classes = 10, stem = "cifar", dropout = 0 } end,
  vit = function()
    return require "vit" {
      image_size = p.image_size, patch = 4, classes = 10, layers = 6, heads = 3, dim = 192, epsilon = 1e-5,
    }
  end,
}

return ms.recipe {
  name = p.network,
  seed = 1,
  dataset = function()
    local n, channels, labels = p.batch_size * p.batches, p.network == "lenet" and 1 or 3, {}
    for i = 1, n do labels[i] = i % 10 end
    if p.loader then
      return ms.dataset.NumpySlicesDataset(
          { (ms.rand { n, 32, 32, channels } * 255):astype(ms.uint8), ms.Tensor(labels, ms.int32) },
          { "image", "label" })
        :map {
          operations = {
            vision.RandomCrop({ 32, 32 }, { 4, 4, 4, 4 }), vision.RandomHorizontalFlip(),
            vision.Resize { p.image_size, p.image_size }, vision.Rescale(1 / 255, 0),
            vision.Normalize({ 0.47 }, { 0.2 }), vision.HWC2CHW(),
          },
          input_columns = "image",
        }
        :batch(p.batch_size, { drop_remainder = true })
    end
    local images = ms.randn { n, channels, p.image_size, p.image_size }
    return ms.dataset.NumpySlicesDataset({ images, ms.Tensor(labels, ms.int32) }, { "image", "label" })
      :batch(p.batch_size, { drop_remainder = true })
  end,
  network = assert(networks[p.network], "network: lenet, resnet18, resnet50, mobilenetv2 or vit"),
  loss = nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = "mean" },
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 },
  train = { epochs = 100000 },
}
