-- A variational autoencoder of convolutions on MNIST.
--
--   mslua train recipes/vae_mnist.lua data_path=/data/mnist
--   mslua sample recipes/vae_mnist.lua digits.png --ckpt last
local ms = require "mslua"
local nn, ops, vision = ms.nn, ms.ops, ms.dataset.vision
local vae = require "vae"

local p = ms.params {
  data_path = "",
  latent = 16, width = 16,
  epochs = 20, batch_size = 64, lr = 2e-3,
  eval_loss = 161,  -- nats of a picture, expected after the last epoch
  presets = { smoke = { epochs = 1, width = 4, latent = 4, eval_loss = 700, ["train.max_steps"] = 20 } },
}

-- The picture is what goes in and what is to come out.
local function create_dataset(usage)
  local ds = ms.dataset.MnistDataset(p.data_path, { usage = usage })
  ds = ds:map {
    operations = { vision.Resize { 32, 32 }, vision.Rescale(1 / 255), vision.HWC2CHW() }, input_columns = "image",
  }
  ds = ds:project({ "image", "image" }, { "image", "target" })
  if usage == "train" then ds = ds:shuffle(60000) end
  return ds:batch(p.batch_size, { drop_remainder = usage == "train" })
end

return ms.recipe {
  name = "vae_mnist",
  doc = "a variational autoencoder draws MNIST's digits",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { p.batch_size, 1, 32, 32 } },
    { dtype = ms.float32, shape = { p.batch_size, 1, 32, 32 } },
  },
  network = function() return vae.Vae { latent = p.latent, width = p.width } end,
  loss = vae.Elbo(),
  optimizer = function(steps)
    return nn.Adam { learning_rate = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = p.epochs * steps } }
  end,
  train = { epochs = p.epochs },
  samples = {
    images = function(net) return ops.sigmoid(net:decode(ms.randn({ 64, p.latent }, ms.float32, "samples"))) end,
    every_epochs = 5,
  },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 500, keep_checkpoint_max = 2 },
  expect = { eval_loss_below = p.eval_loss },
}
