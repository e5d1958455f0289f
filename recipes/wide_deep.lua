-- Wide & Deep (Cheng et al., 2016) on UCI Adult: who earns more than 50 000 dollars a year. The logits of a linear
-- model of categories and their crosses are added to those of a multilayer perceptron of embeddings and numbers.
--
--   mslua train recipes/wide_deep.lua data_path=/data/census
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params {
  data_path = "",  -- a folder with train.csv and test.csv
  epochs = 12, batch_size = 256, lr = 2e-3, weight_decay = 1e-4,
  embedding = 8, hidden = 64, dropout = 0.2,
  buckets = 2000,  -- of each cross
  accuracy = 0.861, auc = 0.917,  -- expected of the last epoch
  presets = { smoke = { epochs = 1, hidden = 16, buckets = 200, accuracy = 0.78, auc = 0.80 } },
}

local numbers = { "age", "education_num", "capital_gain", "capital_loss", "hours_per_week" }
local categories = {
  "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country",
}
local most = 64  -- values of a category
local crosses = {
  education_occupation = "education * occupation",
  gain_marital = "capital_gain * marital_status",
  loss_marital = "capital_loss * marital_status",
  marital_occupation = "marital_status * occupation",
  marital_age = "marital_status * age",
}

local crossed = 0
for _ in pairs(crosses) do crossed = crossed + 1 end

-- Columns: numbers float32 [n, 5], categories int32 [n, 13] with the crosses last, income int32 [n]: 1 is ">50K".
local function create_dataset(usage)
  if p.data_path == "" then
    error("wide_deep: data_path is empty: give data_path=FOLDER, a folder with train.csv and test.csv", 0)
  end
  local types = { fnlwgt = "skip", income = "category(2)" }
  for _, name in ipairs(numbers) do types[name] = "float" end
  for _, name in ipairs(categories) do types[name] = "category(" .. most .. ")" end
  for name in pairs(crosses) do types[name] = "hash(" .. p.buckets .. ")" end
  local ds = ms.dataset.CsvDataset(p.data_path .. "/" .. usage .. ".csv", {
    columns = types, crosses = crosses, label = "income", pack = true, categories_from = p.data_path .. "/train.csv",
    shuffle = usage == "train",
  })
  return ds:batch(p.batch_size, { drop_remainder = usage == "train" })
end

local Net = nn.Cell:extend "WideDeep"

function Net:init()
  -- Each column has its own part of a table.
  local first, size = {}, 0
  for i = 1, #categories do first[i], size = size, size + most end
  self.deep = nn.Embedding(size, p.embedding)
  for _ = 1, crossed do first[#first + 1], size = size, size + p.buckets end
  self.wide = nn.Embedding(size, 2, { embedding_table = "zeros" })
  self.first = ms.Tensor({ first }, ms.int32)
  self.norm = nn.BatchNorm1d(2 * #numbers)
  self.layers = nn.SequentialCell {
    nn.Dense(#categories * p.embedding + 2 * #numbers, p.hidden), nn.ReLU(), nn.Dropout { p = p.dropout },
    nn.Dense(p.hidden, p.hidden), nn.ReLU(), nn.Dropout { p = p.dropout },
    nn.Dense(p.hidden, 2),
  }
end

-- Numbers and ids of a batch give logits [n, 2].
function Net:construct(x, ids)
  local n = x.shape[1]
  ids = ids + self.first
  local wide = ops.reduce_sum(self.wide(ids), { axis = 2 })
  local deep = self.deep(ops.strided_slice(ids, { 1, 1 }, { n + 1, #categories + 1 }))
  x = self.norm(ops.concat({ x, ops.log(x + 1) }, 2))
  return wide + self.layers(ops.concat({ ops.reshape(deep, { n, #categories * p.embedding }), x }, 2))
end

return ms.recipe {
  name = "wide_deep",
  doc = "Wide & Deep on UCI Adult: crosses of categories and a multilayer perceptron",
  seed = 1,
  dataset = function() return create_dataset "train" end,
  eval_dataset = function() return create_dataset "test" end,
  input = {
    { dtype = ms.float32, shape = { p.batch_size, #numbers } },
    { dtype = ms.int32, shape = { p.batch_size, #categories + crossed } },
    { dtype = ms.int32, shape = { p.batch_size } },
  },
  network = function() return Net() end,
  labels = { "<=50K", ">50K" },
  loss = nn.CrossEntropyLoss(),
  optimizer = function(steps)
    return nn.AdamWeightDecay {
      learning_rate = nn.cosine_decay_lr { min_lr = 0, max_lr = p.lr, total_step = p.epochs * steps },
      weight_decay = p.weight_decay,
    }
  end,
  train = { epochs = p.epochs },
  eval = { metrics = { "accuracy", "auc" } },
  parallel = { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 78, keep_checkpoint_max = 2 },
  expect = { accuracy_above = p.accuracy, auc_above = p.auc },
}
