-- ds:bucket_batch_by_length: batches, training with a step for each bucket, bad input.
local ms = require "mslua"
local check = require "check"
local nn, ops = ms.nn, ms.ops

-- Sample i has i % 5 + 1 ids, all i.
local function ragged(n)
  return ms.dataset.GeneratorDataset(function(i)
    local ids = {}
    for k = 1, i % 5 + 1 do ids[k] = i end
    return ms.Tensor(ids, ms.int32), ms.Tensor(i % 2, ms.int32)
  end, { "ids", "label" }, { length = n })
end

local pad = { pad_info = { ids = { { -1 }, 0 } } }

local function batches(ds)
  local list = {}
  for ids, label in ds:create_tuple_iterator() do list[#list + 1] = { ids:totable(), label:totable() } end
  return list
end

check.case("batches of like lengths", function()
  -- Lengths of the samples from 1: 2 3 4 5 1 2 3.
  local found = batches(ragged(7):bucket_batch_by_length("ids", { 3, 6 }, { 2, 3 }, pad))
  check.equal(found, {
    { { { 2, 2, 2, 0, 0 }, { 3, 3, 3, 3, 0 }, { 4, 4, 4, 4, 4 } }, { 0, 1, 0 } },
    { { { 1, 1 }, { 5, 0 } }, { 1, 1 } },
    { { { 6, 6 } }, { 0 } },
    { { { 7, 7, 7, 0, 0 } }, { 1 } },
  })
  local whole = batches(ragged(7):bucket_batch_by_length("ids", { 3, 6 }, { 2, 3 },
    { pad_info = pad.pad_info, drop_remainder = true }))
  check.equal(#whole, 2)
end)

check.case("a length that a function gives, of columns with other names", function()
  -- Lengths: 4 0 8 0.
  local ds = ragged(4):rename("ids", "words"):bucket_batch_by_length({ "words", "label" }, { 2, 11 }, { 2, 2 }, {
    element_length_function = function(words, label) return words.shape[1] * 2 * label:item() end,
    pad_info = { words = { { 5 }, -1 } },
  })
  check.equal(batches(ds), {
    { { { 1, 1, -1, -1, -1 }, { 3, 3, 3, 3, -1 } }, { 1, 1 } },
    { { { 2, 2, 2, -1, -1 }, { 4, 4, 4, 4, 4 } }, { 0, 0 } },
  })
end)

-- The mean of the embeddings of the ids that are not 0, and two logits of it.
local Net = nn.Cell:extend "Net"
function Net:init()
  self.embed, self.head = nn.Embedding(50, 4), nn.Dense(4, 2)
end
function Net:construct(ids)
  local seen = ops.cast(ops.not_equal(ids, 0), "float32")
  local sum = ops.reduce_sum(self.embed(ids) * ops.expand_dims(seen, 3), 2)
  return self.head(sum / ops.reduce_sum(seen, 2, true))
end

-- The parameters after an epoch; padding changes nothing, so that only the batches matter.
local function train(ds)
  ms.set_seed(7)
  local net = Net()
  local model = ms.Model(net, { loss_fn = nn.CrossEntropyLoss(), optimizer = nn.Adam { learning_rate = 0.05 } })
  model:train(2, ds, { callbacks = {} })
  local values = {}
  for i, p in ipairs(net:get_parameters()) do values[i] = p.value:totable() end
  return values
end

check.case("training with a step for each bucket is that with padded batches of the same samples", function()
  -- The samples in the order of the buckets' batches.
  local order = {}
  for _, batch in ipairs(batches(ragged(20):bucket_batch_by_length("ids", { 3, 6 }, { 2, 2 }, pad))) do
    for _, row in ipairs(batch[1]) do order[#order + 1] = row[1] end
  end
  check.equal(#order, 20)
  local source = ragged(20)
  local samples = {}
  for ids, label in source:padded_batch(1, false, { ids = { { 5 }, 0 } }):create_tuple_iterator() do
    samples[ids:totable()[1][1]] = { ids[1], label[1] }
  end
  local same = ms.dataset.GeneratorDataset(function(i) return unpack(samples[order[i]]) end, { "ids", "label" },
    { length = 20 }):batch(2, true)
  check.near(train(ragged(20):bucket_batch_by_length("ids", { 3, 6 }, { 2, 2 }, pad)), train(same), 1e-5)
end)

check.case("bad input", function()
  check.fails("sample 4 has length 5, the longest bucket takes 4", function()
    ragged(7):bucket_batch_by_length("ids", { 3, 5 }, { 2, 2 }, pad):get_dataset_size()
  end)
  check.fails_here("expected 2, one for each boundary", function()
    ragged(7):bucket_batch_by_length("ids", { 3, 5 }, { 2, 2, 2 }, pad)
  end)
  check.fails_here("expected rising numbers", function()
    ragged(7):bucket_batch_by_length("ids", { 5, 5 }, { 2, 2 }, pad)
  end)
  check.fails_here("expected one column, or element_length_function", function()
    ragged(7):bucket_batch_by_length({ "ids", "label" }, { 6 }, { 2 }, pad)
  end)
  check.fails("column 'label' is one number, which has no length", function()
    ragged(7):bucket_batch_by_length("label", { 6 }, { 2 }, pad):get_dataset_size()
  end)
  check.fails("sample 1: element_length_function should give a length, got nil", function()
    ragged(7):bucket_batch_by_length("ids", { 6 }, { 2 }, { pad_info = pad.pad_info,
      element_length_function = function() end }):get_dataset_size()
  end)
  check.fails("give its dataset padded_batch, not bucket_batch_by_length", function()
    ms.Model(Net(), { loss_fn = nn.CrossEntropyLoss(), metrics = { "top1" } })
      :eval(ragged(20):bucket_batch_by_length("ids", { 3, 6 }, { 2, 2 }, pad))
  end)
end)

check.done()
