-- Denoising diffusion on MNIST: a U-Net with time embedding and attention learns to find noise; averages of its
-- parameters draw digits out of noise, and LeNet judges them.
--
--   mslua train recipes/ddpm_mnist.lua data_path=/data/mnist
--   mslua train recipes/ddpm_mnist.lua data_path=/data/mnist judge=runs/lenet/ckpt   judged by that LeNet
--   mslua sample recipes/ddpm_mnist.lua digits.png --ckpt last
local ms = require "mslua"
local nn, vision, transforms = ms.nn, ms.dataset.vision, ms.dataset.transforms
local Ddpm, Judge = require "ddpm", require "digit_judge"

local p = ms.params {
  data_path = "",
  judge = "",  -- a checkpoint of lenet_mnist; empty: a LeNet is trained beside, in a step of its own
  patch = 2, width = 24, multiples = { 1, 2 }, ema = 0.99,
  epochs = 12, batch_size = 64, lr = 2e-3, warmup = 50, clip_norm = 1, judge_lr = 0.02,
  draw_steps = 20,  -- from noise to digit
  judged = 300,  -- digits that an evaluation draws
  confident = 0.3, entropy = 1.9,  -- expected of the last evaluation
  presets = {
    smoke = {
      epochs = 1, batch_size = 8, width = 4, draw_steps = 2, judged = 8, warmup = 2,
      confident = -1, entropy = -1, ["train.max_steps"] = 4,
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

-- The noise that an evaluation draws digits out of: the same each time.
local function create_eval_dataset()
  local noise = ms.randn({ p.judged, 1, 32, 32 }, ms.float32, "judged")
  local ds = ms.dataset.NumpySlicesDataset({ noise, ms.zeros { p.judged, 1 } }, { "noise", "none" })
  return ds:batch(math.min(100, p.judged))
end

local Diffusion = nn.Cell:extend "Diffusion"

function Diffusion:init()
  self.denoiser = Ddpm { width = p.width, multiples = p.multiples, patch = p.patch }
  self.judge = judge
end

function Diffusion:construct(noise) return self.denoiser:draw(noise, p.draw_steps) end

return ms.recipe {
  name = "ddpm_mnist",
  doc = "denoising diffusion draws MNIST's digits, LeNet judges them",
  seed = 1,
  dataset = create_dataset,
  eval_dataset = create_eval_dataset,
  network = function() return Diffusion() end,
  steps = {
    {
      name = "denoiser", params = "^denoiser%.",
      loss = function(net, pictures) return net.denoiser:loss(pictures) end,
      optimizer = function(steps)
        local rest = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = p.epochs * steps - p.warmup }
        return nn.AdamW { learning_rate = nn.warmup_lr { learning_rate = rest, warmup_epoch = p.warmup } }
      end,
    },
    judge:step(p.judge_lr),
  },
  train = { epochs = p.epochs, ema = p.ema, clip_norm = p.clip_norm },
  eval = { metrics = judge:metrics(), every_epochs = 4 },
  samples = {
    images = function(net) return net(ms.randn({ 64, 1, 32, 32 }, ms.float32, "samples")) end, low = -1,
    every_epochs = 2,
  },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 500, keep_checkpoint_max = 2 },
  expect = { confident_above = p.confident, entropy_above = p.entropy },
}
