-- A GPT whose feed-forward parts are mixtures of experts: of 8 experts each token is computed by 2, which together do
-- what char_gpt's one layer does.
--
--   mslua train recipes/moe_gpt.lua data_path=/data/tinyshakespeare
--   mslua generate recipes/moe_gpt.lua data_path=/data/tinyshakespeare --prompt ROMEO:
local ms = require "mslua"
local nn = ms.nn
local MoeGPT = require "mslua.models.moe_gpt"

local p = ms.params {
  data_path = "",
  vocab = 65,  -- distinct characters of the text
  layers = 4, heads = 4, dim = 128, block = 64, dropout = 0,
  experts = 8, top_k = 2, hidden = 256, capacity_factor = 1.25,
  balance = 0.01,  -- the weight of the balance loss
  batch_size = 12, steps = 2000, warmup = 100, eval_every = 250,
  lr = 1e-3, min_lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1, clip_norm = 1,
  eval_loss = 1.86,  -- expected after the last step
  presets = {
    smoke = {
      layers = 2, dim = 32, hidden = 64, experts = 4, steps = 30, warmup = 5, eval_every = 15, eval_loss = 4.2,
    },
  },
}

-- Training windows begin at any character, in random order; validation goes through the last tenth of the text once.
local function create_dataset(usage)
  local train = usage == "train"
  local ds = ms.dataset.TextDataset(p.data_path, { usage = usage, block = p.block, stride = train and 1 or p.block })
  if train then ds = ds:shuffle(2 ^ 24) end
  return ds:batch(train and p.batch_size or 64, { drop_remainder = train })
end

-- The cross entropy, and in training the balance loss of the experts beside it.
local Loss = nn.CrossEntropyLoss:extend "MoeLoss"

function Loss:construct(output, label)
  if type(output) ~= "table" or not output[2] then return nn.CrossEntropyLoss.construct(self, output, label) end
  return nn.CrossEntropyLoss.construct(self, output[1], label) + output[2] * p.balance
end

return ms.recipe {
  name = "moe_gpt",
  doc = "characters of Shakespeare, a GPT with mixtures of experts",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
  },
  network = function()
    return MoeGPT {
      vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, dim = p.dim, hidden = p.hidden,
      experts = p.experts, top_k = p.top_k, capacity_factor = p.capacity_factor, dropout = p.dropout,
    }
  end,
  loss = Loss(),
  optimizer = nn.AdamWeightDecay {
    learning_rate = nn.warmup_lr {
      learning_rate = nn.cosine_decay_lr {
        min_lr = math.min(p.min_lr, p.lr / 10), max_lr = p.lr, total_step = p.steps - p.warmup,
      },
      warmup_epoch = p.warmup,
    },
    beta1 = p.beta1, beta2 = p.beta2, eps = 1e-8,
    -- Matrices decay; biases and normalisation do not.
    params = {
      { params = function(q) return #q.shape > 1 and not q.name:find "bias$" end, weight_decay = p.weight_decay },
      { params = "", weight_decay = 0 },
    },
  },
  train = { epochs = 1, max_steps = p.steps, clip_norm = p.clip_norm },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  eval = { every_epochs = 1, every_steps = p.eval_every },
  checkpoint = { save_checkpoint_steps = p.eval_every, keep_checkpoint_max = 2 },
  expect = { eval_loss_below = p.eval_loss },
}
