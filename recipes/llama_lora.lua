-- LoRA (Hu et al., 2021) of a Llama on the texts of AG's News: the base's weights stay, and adapters of low rank beside
-- its dense layers are trained and saved.
--
--   mslua data tokenizer /data/tinyshakespeare/input.txt --vocab 512 -o base
--   mslua data tokenize /data/tinyshakespeare/input.txt --tokenizer base -o tokens
--   mslua train recipes/llama.lua data_path=tokens format=tokens vocab=512 --out run
--   mslua ckpt convert run base
--   mslua train recipes/llama_lora.lua data_path=/data/ag_news weights=base
local ms = require "mslua"
local nn, text = ms.nn, ms.text
local Llama = require "mslua.models.llama"

local p = ms.params {
  data_path = "",  -- a folder with train.csv and test.csv: class, title, text
  weights = "",    -- the base, a folder as Hugging Face has it; "": random weights, to try the recipe
  tokenizer = "",  -- a folder; "": that in `weights`, or without it a byte-level BPE of the training's texts
  vocab = 512,     -- of the network and its tokenizer without `weights`
  layers = 4, heads = 4, kv_heads = 2, dim = 128, hidden = 352, block = 64,
  rank = 8, alpha = 16, dropout = 0, targets = "q_proj|v_proj",
  batch_size = 16, steps = 600, warmup = 50, eval_every = 200, lr = 2e-3, clip_norm = 1,
  eval_loss = 4.5,  -- expected after the last step, of a base as above; random weights, which stay: random_loss
  random_loss = 6.4,
  presets = {
    smoke = {
      vocab = 300, layers = 1, heads = 2, kv_heads = 1, dim = 32, hidden = 64, block = 16, steps = 30, warmup = 5,
      eval_every = 15, eval_loss = 6, random_loss = 6,
    },
  },
}

local function texts_of(part)
  if p.data_path == "" then
    error("llama_lora: data_path is empty: give data_path=FOLDER, a folder with train.csv and test.csv", 0)
  end
  local texts = {}
  for i, record in ipairs(text.csv_records(("%s/%s.csv"):format(p.data_path, part))) do
    texts[i] = table.concat(record, " ", 2)
  end
  return texts
end

local tokenizer

local function get_tokenizer()
  if tokenizer then return tokenizer end
  local folder = p.tokenizer ~= "" and p.tokenizer or p.weights
  if folder ~= "" then
    tokenizer = text.Tokenizer(folder)
  else
    tokenizer = text.Tokenizer.train { texts = texts_of "train", vocab_size = p.vocab }
  end
  return tokenizer
end

-- The texts one after another, a line each, in windows of `block` tokens: data and the tokens that follow, [n, block].
local function create_dataset(part)
  local tokens, all = get_tokenizer(), {}
  for _, line in ipairs(texts_of(part)) do
    local ids = tokens:encode { text = line .. "\n", add_special_tokens = false, parse_special_tokens = false }
    for _, id in ipairs(ids) do all[#all + 1] = id end
  end
  local data, labels = {}, {}
  for first = 1, #all - p.block, p.block do
    data[#data + 1] = { unpack(all, first, first + p.block - 1) }
    labels[#labels + 1] = { unpack(all, first + 1, first + p.block) }
  end
  if #data == 0 then
    error(("%s/%s.csv: the texts have %d tokens, expected more than block = %d"):format(p.data_path, part, #all,
      p.block), 0)
  end
  local train = part == "train"
  local ds = ms.dataset.NumpySlicesDataset({ ms.Tensor(data, ms.int32), ms.Tensor(labels, ms.int32) },
    { column_names = { "data", "label" } })
  if train then ds = ds:shuffle(2 ^ 24) end
  return ds:batch(p.batch_size, { drop_remainder = train })
end

local function base()
  if p.weights == "" then
    return Llama {
      vocab = p.vocab, block = p.block, layers = p.layers, heads = p.heads, kv_heads = p.kv_heads, dim = p.dim,
      hidden = p.hidden,
    }
  end
  local net = ms.from_pretrained(p.weights)
  if net.block < p.block then
    error(("%s takes %d tokens, block = %d: give a smaller block"):format(p.weights, net.block, p.block), 0)
  end
  if p.data_path ~= "" and get_tokenizer().vocab_size > net.config.vocab then
    error(("%s: the tokenizer has %d tokens, the network %d"):format(p.tokenizer ~= "" and p.tokenizer or p.weights,
      get_tokenizer().vocab_size, net.config.vocab), 0)
  end
  return net
end

return ms.recipe {
  name = "llama_lora",
  doc = "LoRA of a Llama on the texts of AG's News",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
  },
  tokenizer = (p.data_path ~= "" or p.tokenizer ~= "" or p.weights ~= "") and get_tokenizer or nil,
  network = function()
    return nn.LoRA.apply(base(), { rank = p.rank, alpha = p.alpha, dropout = p.dropout, targets = p.targets })
  end,
  weights = p.weights ~= "" and p.weights or nil,
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.AdamW {
    learning_rate = nn.warmup_lr {
      learning_rate = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = math.max(1, p.steps - p.warmup) },
      warmup_epoch = p.warmup,
    },
    weight_decay = 0,
  },
  train = { steps = p.steps, clip_norm = p.clip_norm },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  eval = { every_epochs = 0, every_steps = p.eval_every },
  checkpoint = { save_checkpoint_steps = p.eval_every, keep_checkpoint_max = 2 },
  expect = { eval_loss_below = p.weights ~= "" and p.eval_loss or p.random_loss },
}
