-- A Transformer (Vaswani et al., 2017) that translates English into German: batches of sentences of similar length, a
-- smoothed loss, and BLEU of beam search on the test of 2016.
--
--   mslua train recipes/transformer_en_de.lua data_path=/data/multi30k
--   mslua generate recipes/transformer_en_de.lua data_path=/data/multi30k --prompt "A man is reading a newspaper."
local ms = require "mslua"
local nn, text = ms.nn, ms.text
local Transformer = require "mslua.models.transformer"

local p = ms.params {
  data_path = "",  -- a folder with train, val and test_2016_flickr, each .en and .de, or .en.gz and .de.gz
  tokenizer = "",  -- a folder; "": a byte-level BPE of the training's sentences
  vocab = 4000,
  layers = 3, heads = 4, dim = 128, hidden = 256, dropout = 0.1, block = 72,
  longest = 32,  -- tokens of a sentence to train on; pairs with a longer one are left out
  buckets = { 12, 16, 20, 24 },  -- tokens of the longest sentence in batches that are shorter
  epochs = 6, batch_size = 64, warmup = 400, lr = 3e-3, smoothing = 0.1, clip_norm = 1, amp = "bf16",
  beams = 5, length_penalty = 1, eval_every = 3,  -- epochs
  bleu = 33,  -- expected after the last epoch
  presets = {
    smoke = {
      vocab = 320, layers = 1, heads = 2, dim = 64, hidden = 128, dropout = 0, block = 192, longest = 32, epochs = 5,
      batch_size = 16, warmup = 40, lr = 5e-3, beams = 2, eval_every = 5, bleu = 40, amp = "",
    },
  },
}

-- The lines of one side of a part of the data.
local function lines_of(part, language)
  if p.data_path == "" then
    error("transformer_en_de: data_path is empty: give data_path=FOLDER, a folder with train.en, train.de and so on", 0)
  end
  local path = ("%s/%s.%s"):format(p.data_path, part, language)
  local file = io.open(path, "rb")
  if file then file:close() end
  return text.lines(file and path or path .. ".gz")
end

local pairs_of = {}

-- The English and German sentences of a part.
local function sentences(part)
  if not pairs_of[part] then
    local english, german = lines_of(part, "en"), lines_of(part, "de")
    if #english ~= #german then
      error(("%s: %s.en has %d lines and %s.de has %d: they should correspond"):format(p.data_path, part, #english,
        part, #german), 0)
    end
    pairs_of[part] = { english = english, german = german }
  end
  return pairs_of[part]
end

local found

-- The tokenizer, and the ids of padding, the begin and the end of a sentence.
local function tokens()
  if found then return found end
  local tokenizer
  if p.tokenizer ~= "" then
    tokenizer = text.Tokenizer(p.tokenizer)
  else
    local train = sentences "train"
    tokenizer = text.Tokenizer.train {
      texts = { table.concat(train.english, "\n"), table.concat(train.german, "\n") }, vocab_size = p.vocab,
      special = { "<pad>", "<s>", "</s>" },
    }
  end
  found = { tokenizer = tokenizer }
  for name, token in pairs { pad = "<pad>", begin = "<s>", stop = "</s>" } do
    found[name] = tokenizer:id_of(token)
      or error(("%s has no token %s"):format(p.tokenizer, token), 0)
  end
  return found
end

local function encode(line)
  return tokens().tokenizer:encode { text = line, add_special_tokens = false, parse_special_tokens = false }
end

-- Pairs of a part in batches of `rows` of similar length, at most `longest` tokens: source, the target behind its
-- begin, and the label, the target before its end.
local function create_dataset(part, rows, longest)
  local t, all, samples = tokens(), sentences(part), {}
  for i, line in ipairs(all.english) do
    local source, label = encode(line), encode(all.german[i])
    local target = { t.begin, unpack(label) }
    label[#label + 1] = t.stop
    if #source > 0 and #source <= longest and #label <= longest then
      local sample = { source, target, label }
      for k, ids in ipairs(sample) do sample[k] = ms.Tensor(ids, ms.int32) end
      samples[#samples + 1] = sample
    elseif part ~= "train" then
      error(("%s/%s: pair %d has %d and %d tokens: expected 1 to block = %d; give a larger block=, or a larger vocab="
        ):format(p.data_path, part, i, #source, #label, longest), 0)
    end
  end
  if #samples == 0 then error(("%s/%s: no pair has at most %d tokens"):format(p.data_path, part, longest), 0) end
  local ds = ms.dataset.GeneratorDataset(function(i) return unpack(samples[i]) end, { "source", "target", "label" },
    { length = #samples })
  local train, boundaries, sizes = part == "train", {}, {}
  if train then ds = ds:shuffle(2 ^ 24) end
  for _, most in ipairs(p.buckets) do
    if most < longest then boundaries[#boundaries + 1] = most + 1 end
  end
  boundaries[#boundaries + 1] = longest + 1
  for i = 1, #boundaries do sizes[i] = rows end
  local column = { { -1 }, t.pad }
  return ds:bucket_batch_by_length {
    column_names = { "source", "label" }, bucket_boundaries = boundaries, bucket_batch_sizes = sizes,
    element_length_function = function(source, label) return math.max(source.shape[1], label.shape[1]) end,
    pad_info = { source = column, target = column, label = column }, drop_remainder = train,
  }
end

-- BLEU of the test's translations.
local function bleu(net)
  local t, test, sources, translated = tokens(), sentences "test_2016_flickr", {}, {}
  for i, line in ipairs(test.english) do sources[i] = encode(line) end
  local targets = net:translate {
    sources = sources, begin = t.begin, stop = t.stop, beams = p.beams, length_penalty = p.length_penalty,
  }
  for i, ids in ipairs(targets) do translated[i] = t.tokenizer:decode(ids) end
  return (text.bleu(translated, test.german))
end

return ms.recipe {
  name = "transformer_en_de",
  doc = "a Transformer that translates English into German: padding masks, beam search, BLEU",
  seed = 1,
  dataset = function() return create_dataset("train", p.batch_size, p.longest) end,
  eval_dataset = function() return create_dataset("val", 32, p.block) end,
  input = {
    { dtype = ms.int32, shape = { p.batch_size, p.longest } },
    { dtype = ms.int32, shape = { p.batch_size, p.longest } },
    { dtype = ms.int32, shape = { p.batch_size, p.longest } },
  },
  tokenizer = p.data_path ~= "" and function() return tokens().tokenizer end or nil,
  network = function()
    local t = p.data_path ~= "" and tokens() or { pad = 0 }
    local net = Transformer {
      vocab = t.tokenizer and t.tokenizer.vocab_size or p.vocab, block = p.block, layers = p.layers, heads = p.heads,
      dim = p.dim, hidden = p.hidden, dropout = p.dropout, pad = t.pad,
    }
    net.translation = {
      begin = t.begin, stop = t.stop, beams = p.beams, length_penalty = p.length_penalty,
    }
    return net
  end,
  loss = nn.CrossEntropyLoss {
    ignore_index = p.data_path ~= "" and tokens().pad or 0, label_smoothing = p.smoothing,
  },
  optimizer = function(steps)
    return nn.AdamWeightDecay {
      learning_rate = nn.warmup_lr {
        learning_rate = nn.polynomial_decay_lr {
          learning_rate = p.lr, end_learning_rate = p.lr / 100, total_step = math.max(1, p.epochs * steps - p.warmup),
        },
        warmup_epoch = p.warmup,
      },
      beta1 = 0.9, beta2 = 0.98, eps = 1e-9, weight_decay = 0,
    }
  end,
  train = { epochs = p.epochs, clip_norm = p.clip_norm, amp = p.amp ~= "" and p.amp or nil },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  eval = { every_epochs = p.eval_every, metrics = { bleu = { compute = bleu } } },
  checkpoint = { save_checkpoint_steps = 250, keep_checkpoint_max = 2 },
  expect = { bleu_above = p.bleu },
}
