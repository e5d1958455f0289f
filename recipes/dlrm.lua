-- DLRM (Naumov et al., 2019) on Criteo's click logs: will a user click on an advertisement? Each of 26 categories has
-- a table of embeddings, of which a step updates the rows that its batch names. Ranks share the rows of every table.
--
--   mslua data make criteo /data/criteo --samples 200000
--   mslua train recipes/dlrm.lua data_path=/data/criteo
--   mslua train recipes/dlrm.lua data_path=/data/criteo rows=1000000 -n 3
local Dlrm = require "mslua.models.dlrm"
local ms = require "mslua"
local nn = ms.nn

local p = ms.params {
  data_path = "",  -- a folder with train.txt and test.txt
  rows = 100000,   -- of each table: categories are hashed
  dim = 16, epochs = 1, batch_size = 384, lr = 2e-3,
  auc = 0.866,  -- expected of the last epoch, on the stand-in of 200000 rows
  presets = { smoke = { rows = 2000, dim = 8, epochs = 3, batch_size = 96, lr = 4e-3, auc = 0.6 } },
}

local ranks = ms.communication.get_group_size()

-- Columns: numbers float32 [n, 13], categories int32 [n, 26], click int32 [n].
local function create_dataset(usage)
  if p.data_path == "" then
    error("dlrm: data_path is empty: give data_path=FOLDER, a folder with train.txt and test.txt in the format of "
      .. "Criteo's logs, or make one: mslua data make criteo FOLDER", 0)
  end
  local ds = ms.dataset.CriteoDataset(("%s/%s.txt"):format(p.data_path, usage), {
    hash = p.rows, shuffle = usage == "train",
  })
  return ds:batch(p.batch_size, { drop_remainder = usage == "train" })
end

return ms.recipe {
  name = "dlrm",
  doc = "DLRM on Criteo's click logs: tables of embeddings whose rows ranks share",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { p.batch_size, 13 } },
    { dtype = ms.int32, shape = { p.batch_size, 26 } },
    { dtype = ms.int32, shape = { p.batch_size } },
  },
  -- Heights that 48 divides suit 2, 3, 4, 6, 8, .. ranks, and a checkpoint of any of them suits the others.
  network = function() return Dlrm { rows = p.rows, dim = p.dim, multiple_of = 48, shards = ranks } end,
  labels = { "no click", "click" },
  loss = nn.CrossEntropyLoss(),
  optimizer = nn.LazyAdam { learning_rate = p.lr },
  train = { epochs = p.epochs },
  eval = { metrics = { "accuracy", "auc" } },
  parallel = { parallel_mode = ms.ParallelMode.SEMI_AUTO_PARALLEL, full_batch = true },
  checkpoint = { save_checkpoint_steps = 500, keep_checkpoint_max = 2 },
  expect = { auc_above = p.auc },
}
