-- GPT-2 on Shakespeare's characters, or from a folder with published weights on tokens of its tokenizer.
--
--   mslua train recipes/gpt2.lua data_path=/data/tinyshakespeare
--   mslua generate recipes/gpt2.lua data_path=/data/tinyshakespeare --prompt ROMEO:
--   mslua data tokenize /data/tinyshakespeare/input.txt --tokenizer /models/gpt2 -o tokens
--   mslua train recipes/gpt2.lua data_path=tokens format=tokens lr=3e-5 weights=/models/gpt2
local ms = require "mslua"
local nn = ms.nn
local GPT = require "gpt"

local p = ms.params {
  data_path = "",
  format = "characters",  -- "tokens": those that mslua data tokenize has written
  weights = "",  -- a folder as Hugging Face has it: the network is then that of the folder, and so is its size
  vocab = 65,    -- distinct characters of the text, or the tokenizer's tokens
  layers = 4, heads = 4, dim = 128, block = 64, dropout = 0.05,
  batch_size = 16, steps = 800, warmup = 100, eval_every = 200,
  lr = 1e-3, min_lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1, clip_norm = 1,
  eval_loss = 2.14,  -- expected after the last step
  presets = {
    smoke = { layers = 2, heads = 2, dim = 32, block = 32, dropout = 0, steps = 40, warmup = 5, eval_every = 20,
      eval_loss = 4.0 },
  },
}

local function create_dataset(usage)
  local train = usage == "train"
  local ds = ms.dataset.TextDataset(p.data_path, {
    usage = usage, block = p.block, stride = train and 1 or p.block,
    format = p.format,
  })
  if train then ds = ds:shuffle(2 ^ 24) end
  return ds:batch(train and p.batch_size or 64, { drop_remainder = train })
end

return ms.recipe {
  name = "gpt2",
  doc = "GPT-2 on Shakespeare, from random or published weights",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
  },
  network = function()
    if p.weights ~= "" then return ms.from_pretrained(p.weights) end
    return GPT {
      vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, dim = p.dim, dropout = p.dropout,
      activation = "gelu_new",
    }
  end,
  loss = nn.CrossEntropyLoss(),
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
      { params = function(q) return #q.shape > 1 end, weight_decay = p.weight_decay },
      { params = function(q) return #q.shape == 1 end, weight_decay = 0 },
    },
  },
  train = { epochs = 1, max_steps = p.steps, clip_norm = p.clip_norm },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  eval = { every_epochs = 1, every_steps = p.eval_every },
  checkpoint = { save_checkpoint_steps = p.eval_every, keep_checkpoint_max = 2 },
  expect = { eval_loss_below = p.eval_loss },
}
