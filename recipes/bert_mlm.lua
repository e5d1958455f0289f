-- BERT (Devlin et al., 2019) as a masked language model of AG's News: tokens are hidden again at every step, and the
-- network says what they were. bert_classify starts from its weights.
--
--   mslua train recipes/bert_mlm.lua data_path=/data/ag_news --out mlm
--   mkdir bert && mslua ckpt convert mlm bert
--   mslua train recipes/bert_classify.lua data_path=/data/ag_news weights=bert
local ms = require "mslua"
local core = require "mslua.core"
local nn, ops, text = ms.nn, ms.ops, ms.text
local Bert = require "mslua.models.bert"

local p = ms.params {
  data_path = "",  -- a folder with train.csv and test.csv: class, title, text
  tokenizer = "",  -- a folder; "": a WordPiece of the training's texts, as bert_classify has it
  vocab = 10000,
  layers = 4, heads = 4, dim = 128, hidden = 512, block = 80, dropout = 0,
  hide = 0.3,      -- the share of tokens that are hidden
  most = 24,       -- of a text, hidden tokens that the loss counts
  epochs = 28, batch_size = 32, warmup = 200, lr = 1e-3, weight_decay = 0.01, clip_norm = 1, amp = "bf16",
  eval_every = 4,
  eval_loss = 4.8,  -- expected of the last evaluation
  presets = {
    smoke = {
      vocab = 300, layers = 1, heads = 2, dim = 32, hidden = 64, block = 24, hide = 0.15, most = 6, epochs = 6,
      batch_size = 16, warmup = 10, lr = 5e-3, eval_every = 6, eval_loss = 3.6, amp = "",
    },
  },
}

local SPECIAL = 5  -- [PAD] [UNK] [CLS] [SEP] [MASK] have the ids from 0
local MASK = 4

local function records(part)
  if p.data_path == "" then
    error("bert_mlm: data_path is empty: give data_path=FOLDER, a folder with train.csv and test.csv", 0)
  end
  local rows = text.csv_records(("%s/%s.csv"):format(p.data_path, part))
  if #rows == 0 or #rows[1] < 2 then
    error(("%s/%s.csv: expected records of a class and texts"):format(p.data_path, part), 0)
  end
  return rows
end

local function text_of(record) return table.concat(record, " ", 2) end

local tokenizer

local function get_tokenizer()
  if tokenizer then return tokenizer end
  if p.tokenizer ~= "" then
    tokenizer = text.Tokenizer(p.tokenizer)
  else
    local texts = {}
    for i, record in ipairs(records "train") do texts[i] = text_of(record) end
    tokenizer = text.Tokenizer.train { texts = texts, vocab_size = p.vocab, kind = "wordpiece" }
  end
  for id, token in ipairs { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" } do
    if tokenizer:id_of(token) ~= id - 1 then
      error(("%s: expected %s as token %d"):format(p.tokenizer, token, id - 1), 0)
    end
  end
  return tokenizer
end

-- The ids of texts, [n, block]: cut off behind the block, padded before it.
local function create_dataset(part)
  local rows, tokens = {}, get_tokenizer()
  for i, record in ipairs(records(part)) do
    local ids = tokens:encode { text = text_of(record), parse_special_tokens = false }
    local sep = ids[#ids]
    for k = #ids + 1, p.block do ids[k] = 0 end
    for k = #ids, p.block + 1, -1 do ids[k], ids[p.block] = nil, sep end
    rows[i] = ids
  end
  local train = part == "train"
  local ds = ms.dataset.NumpySlicesDataset({ ms.Tensor(rows, ms.int32) }, { column_names = { "ids" } })
  if train then ds = ds:shuffle(2 ^ 24) end
  return ds:batch(p.batch_size, { drop_remainder = train })
end

-- The network gives its own loss. Evaluation hides the same places each time.
local Net = Bert:extend "BertMlm"

-- Ids [n, t] give the losses [n, most] of hidden tokens and 1 for each that counts.
function Net:losses(ids)
  local n, t = unpack(ids.shape)
  local function draw(name)
    return ms.rand(ids.shape, ms.float32, not core.training() and "bert_mlm." .. name or nil)
  end
  local which, how, other = draw "which", draw "how", draw "other"
  local free = ops.greater_equal(ids, SPECIAL)
  local chosen = ops.logical_and(free, ops.less(which, p.hide))
  local random = ops.cast(ops.floor(other * self.config.vocab), "int32")
  local instead = ops.select(ops.less(how, 0.8), MASK, ops.select(ops.less(how, 0.9), random, ids))
  local x = self:encode(ops.select(chosen, instead, ids), nil, ops.not_equal(ids, 0))
  -- The places of the smallest draws; special tokens come last.
  local _, places = ops.top_k(ops.select(free, which, 2) * -1, p.most)
  local from = ops.reshape(ops.iota { size = n }, { n, 1 }) * t
  local rows = ops.gather(ops.reshape(x, { n * t, self.config.dim }), places + from)
  local counted = ops.not_equal(ops.gather_d(ops.cast(chosen, "int32"), places, 2), 0)
  local labels = ops.select(counted, ops.gather_d(ids, places, 2), -100)
  local logits = self.mlm(rows, self.words.embedding_table)
  local losses = ops.sparse_softmax_cross_entropy(ops.reshape(logits, { n * p.most, self.config.vocab }),
    ops.reshape(labels, { n * p.most }), { ignore_index = -100 })
  local counts = ops.cast(ops.not_equal(labels, -100), losses.dtype)
  return ops.reshape(losses, { n, p.most }), counts
end

function Net:construct(ids)
  local losses, counts = self:losses(ids)
  return ops.reduce_sum(losses) / ops.maximum(ops.reduce_sum(counts), 1)
end

-- Ids give the logits of all tokens [n, t, vocab]: what is exported.
function Net:predict(ids) return Bert.construct(self, ids, nil, ops.not_equal(ids, 0)) end

function Net:rows(ids)
  local losses, counts = self:losses(ids)
  local counted = ops.reduce_sum(counts, 2)
  return ops.reduce_sum(losses, 2) / ops.maximum(counted, 1), counted
end

return ms.recipe {
  name = "bert_mlm",
  doc = "BERT as a masked language model of AG's News",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = { { dtype = ms.int32, shape = { p.batch_size, p.block } } },
  tokenizer = (p.data_path ~= "" or p.tokenizer ~= "") and get_tokenizer or nil,
  network = function()
    return Net {
      vocab = p.data_path ~= "" and get_tokenizer().vocab_size or p.vocab, block = p.block, layers = p.layers,
      heads = p.heads, dim = p.dim, hidden = p.hidden, dropout = p.dropout, head = "mlm", pooler = false,
    }
  end,
  optimizer = function(steps)
    return nn.AdamW {
      learning_rate = nn.warmup_lr {
        learning_rate = nn.polynomial_decay_lr {
          learning_rate = p.lr, end_learning_rate = p.lr / 100, total_step = math.max(1, p.epochs * steps - p.warmup),
        },
        warmup_epoch = p.warmup,
      },
      -- Matrices decay; biases and normalisation do not.
      params = {
        { params = function(q) return #q.shape > 1 end, weight_decay = p.weight_decay },
        { params = function(q) return #q.shape == 1 end, weight_decay = 0 },
      },
    }
  end,
  train = { epochs = p.epochs, clip_norm = p.clip_norm, amp = p.amp ~= "" and p.amp or nil },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  eval = { every_epochs = p.eval_every },
  checkpoint = { save_checkpoint_steps = 200, keep_checkpoint_max = 2 },
  expect = { eval_loss_below = p.eval_loss },
}
