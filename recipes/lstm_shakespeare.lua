-- Two layers of LSTM, or GRU, that predict Shakespeare's next character; the state is carried over batches.
--
--   mslua train recipes/lstm_shakespeare.lua data_path=/data/tinyshakespeare
--   mslua train recipes/lstm_shakespeare.lua data_path=/data/tinyshakespeare cell=GRU
local ms = require "mslua"
local core = require "mslua.core"
local nn, ops = ms.nn, ms.ops

local p = ms.params {
  data_path = "",
  vocab = 65,  -- distinct characters of the text
  cell = "LSTM", layers = 2, hidden = 256, dropout = 0.2, block = 128,
  carry = true,  -- a batch begins with the state that the one before ended with
  batch_size = 32, steps = 400, eval_every = 100, lr = 2e-3, weight_decay = 0.01, clip_norm = 1,
  eval_loss = 2.13,  -- expected after the last step
  presets = {
    smoke = { layers = 1, hidden = 48, dropout = 0, block = 32, batch_size = 8, steps = 60, eval_every = 30,
      eval_loss = 3.2 },
  },
}

-- Row r of every training batch is the next window of the r-th part of the text.
local function create_dataset(usage)
  local train = usage == "train"
  local ds = ms.dataset.TextDataset(p.data_path, { usage = usage, block = p.block, rows = train and p.batch_size or 1 })
  return ds:batch(p.batch_size, { drop_remainder = train })
end

local Net = nn.Cell:extend "CharRnn"

function Net:init(batches)
  self.embed = nn.Embedding(p.vocab, p.hidden)
  local cells = { LSTM = nn.LSTM, GRU = nn.GRU }
  local Rnn = cells[p.cell]
  if not Rnn then error(("cell = %s: expected LSTM or GRU"):format(p.cell), 0) end
  self.rnn = Rnn(p.hidden, p.hidden, { num_layers = p.layers, batch_first = true, dropout = p.dropout })
  self.head = nn.Dense(p.hidden, p.vocab)
  self.batches, self.states = batches, {}
  if not p.carry then return end
  if ms.communication.get_group_size() > 1 then
    error("lstm_shakespeare: a state that is carried over batches belongs to one rank: give carry=false", 0)
  end
  self:state("batch", { 1 }, "zeros")
  for i = 1, p.cell == "LSTM" and 2 or 1 do
    self.states[i] = self:state("state" .. i, { p.layers, p.batch_size, p.hidden }, "zeros")
  end
end

-- Ids [n, block] give logits [n, block, vocab]. The first batch of an epoch begins with zeros, as evaluation does.
function Net:construct(ids)
  local x = self.embed(ids)
  if not p.carry or not core.training() then return self.head((self.rnn(x))) end
  local goes_on = ops.greater(self.batch, 0):astype(x.dtype)
  local before = {}
  for i, state in ipairs(self.states) do before[i] = state * goes_on end
  local y, after = self.rnn(x, #before == 2 and before or before[1])
  for i, state in ipairs(self.states) do core.assign(state, ops.stop_gradient(#before == 2 and after[i] or after)) end
  local number = self.batch + 1
  core.assign(self.batch, number * ops.less(number, self.batches):astype(x.dtype))
  return self.head(y)
end

return ms.recipe {
  name = "lstm_shakespeare",
  doc = "characters of Shakespeare, recurrent layers whose state is carried over batches",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
    { dtype = ms.int32, shape = { p.batch_size, p.block } },
  },
  network = function() return Net(create_dataset("train"):get_dataset_size()) end,
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.AdamWeightDecay { learning_rate = p.lr, weight_decay = p.weight_decay },
  train = { steps = p.steps, clip_norm = p.clip_norm },
  eval = { every_epochs = 0, every_steps = p.eval_every },
  checkpoint = { save_checkpoint_steps = p.eval_every, keep_checkpoint_max = 2 },
  expect = { eval_loss_below = p.eval_loss },
}
