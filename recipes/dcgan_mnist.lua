-- A generative adversarial network (DCGAN) on MNIST: two steps on each batch, each with its loss and its optimizer.
-- LeNet judges what is drawn.
--
--   mslua train recipes/dcgan_mnist.lua data_path=/data/mnist
--   mslua train recipes/dcgan_mnist.lua data_path=/data/mnist judge=runs/lenet/ckpt   judged by that LeNet
--   mslua sample recipes/dcgan_mnist.lua digits.png --ckpt last
local ms = require "mslua"
local nn, ops, vision, transforms = ms.nn, ms.ops, ms.dataset.vision, ms.dataset.transforms
local dcgan, Judge = require "dcgan", require "digit_judge"

local p = ms.params {
  data_path = "",
  judge = "",  -- a checkpoint of lenet_mnist; empty: a LeNet is trained beside, in a step of its own
  latent = 64, width = 24,
  epochs = 16, batch_size = 64, lr = 3e-4, beta1 = 0.5, judge_lr = 0.02,
  judged = 1000,  -- digits that an evaluation draws
  confident = 0.7, entropy = 2.1,  -- expected of the last evaluation
  presets = {
    smoke = {
      epochs = 1, batch_size = 16, latent = 16, width = 4, judged = 32, confident = -1, entropy = -1,
      ["train.max_steps"] = 8,
    },
  },
}

local judge = Judge(p.judge)

local function create_dataset()
  local ds = ms.dataset.MnistDataset(p.data_path, { usage = "train" })
  ds = ds:map { operations = transforms.TypeCast(ms.int32), input_columns = "label" }
  ds = ds:map {
    operations = { vision.Resize { 32, 32 }, vision.Rescale(2 / 255, -1), vision.HWC2CHW() }, input_columns = "image",
  }
  return ds:shuffle(60000):batch(p.batch_size, { drop_remainder = true })
end

-- What an evaluation draws from: the same numbers each time.
local function create_eval_dataset()
  local z = ms.randn({ p.judged, p.latent }, ms.float32, "judged")
  return ms.dataset.NumpySlicesDataset({ z, ms.zeros { p.judged, 1 } }, { "z", "none" }):batch(math.min(100, p.judged))
end

local Gan = nn.Cell:extend "Gan"

function Gan:init()
  self.generator = dcgan.Generator { latent = p.latent, width = p.width }
  self.discriminator = dcgan.Discriminator { width = p.width }
  self.judge = judge
end

function Gan:construct(z) return self.generator(z) end

local function drawn(net, n) return net.generator(ms.randn { n, p.latent }) end
-- The cross entropy of the discriminator's logits where all pictures are real; of -logits, where none is.
local function real(logits) return ops.reduce_mean(ops.softplus(-logits)) end

local function adam() return nn.Adam { learning_rate = p.lr, beta1 = p.beta1, beta2 = 0.999 } end

return ms.recipe {
  name = "dcgan_mnist",
  doc = "a generative adversarial network draws MNIST's digits, LeNet judges them",
  seed = 1,
  dataset = create_dataset,
  eval_dataset = create_eval_dataset,
  network = function() return Gan() end,
  steps = {
    {
      name = "discriminator", params = "^discriminator%.", optimizer = adam(),
      loss = function(net, pictures)
        local fakes = ops.stop_gradient(drawn(net, pictures.shape[1]))
        return real(net.discriminator(pictures)) + real(-net.discriminator(fakes))
      end,
    },
    {
      name = "generator", params = "^generator%.", optimizer = adam(),
      loss = function(net, pictures) return real(net.discriminator(drawn(net, pictures.shape[1]))) end,
    },
    judge:step(p.judge_lr),
  },
  train = { epochs = p.epochs },
  eval = { metrics = judge:metrics(), every_epochs = 2 },
  samples = {
    images = function(net) return net.generator(ms.randn({ 64, p.latent }, ms.float32, "samples")) end, low = -1,
  },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 500, keep_checkpoint_max = 2 },
  expect = { confident_above = p.confident, entropy_above = p.entropy },
}
