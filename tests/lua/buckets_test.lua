-- ds:bucket_batch_by_length: which samples make batches, what trainings and evaluations compute of them, and errors.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- Sample i of n has the tokens i, i, ..., lengths[i] of them, and the label i % 2.
local function sequences(lengths)
  return ms.dataset.GeneratorDataset(function(i)
    local tokens = {}
    for k = 1, lengths[i] do tokens[k] = i end
    return ms.Tensor(tokens, ms.int32), ms.Tensor(i % 2, ms.int32)
  end, { "tokens", "label" }, { length = #lengths })
end

local function bucketed(ds, changes)
  local a = { column_names = "tokens", bucket_boundaries = { 3, 6 }, bucket_batch_sizes = { 2, 3 },
    pad_info = { tokens = { { -1 }, -7 } } }
  for key, v in pairs(changes or {}) do a[key] = v end
  return ds:bucket_batch_by_length(a)
end

-- The columns of all batches of an epoch.
local function batches(ds)
  local list = {}
  for tokens, label in ds:create_tuple_iterator() do list[#list + 1] = { tokens:totable(), label:totable() } end
  return list
end

local lengths = { 1, 5, 2, 4, 2, 3, 5, 1, 2 }

check.case("batches of samples of one bucket, in the order in which they are full", function()
  local ds = bucketed(sequences(lengths))
  check.equal(ds:get_dataset_size(), 5)
  check.equal(ds:get_batch_size(), 3)
  check.equal(batches(ds), {
    { { { 1, -7 }, { 3, 3 } }, { 1, 1 } },
    { { { 2, 2, 2, 2, 2 }, { 4, 4, 4, 4, -7 }, { 6, 6, 6, -7, -7 } }, { 0, 0, 0 } },
    { { { 5, 5 }, { 8, -7 } }, { 1, 0 } },
    { { { 9, 9 } }, { 1 } },
    { { { 7, 7, 7, 7, 7 } }, { 1 } },
  })
  check.equal(#batches(bucketed(sequences(lengths), { drop_remainder = true })), 3)
  check.equal(#batches(bucketed(sequences(lengths)):take(2)), 2)
  check.equal(#batches(bucketed(sequences(lengths)):repeat_(2)), 10)
  -- Before the batches are made: remainders of the first pass fill up in the second.
  check.equal(bucketed(sequences(lengths):repeat_(2)):get_dataset_size(), 8)
end)

check.case("a bucket for longer samples, fixed sizes and lengths of a function", function()
  local asked = 0
  local ds = bucketed(sequences(lengths), {
    column_names = { "label", "tokens" }, bucket_boundaries = { 2, 4 }, bucket_batch_sizes = { 4, 4, 4 },
    element_length_function = function(label, tokens)
      asked = asked + 1
      return label:item() + tokens.shape[1]
    end,
    pad_info = { tokens = { { 6 }, 0 } },
  })
  local found = {}
  for _, batch in ipairs(batches(ds)) do
    check.equal(#batch[1][1], 6)
    found[#found + 1] = {}
    for k, row in ipairs(batch[1]) do found[#found][k] = row[1] end
  end
  check.equal(found, { { 1, 3, 5, 6 }, { 8 }, { 9 }, { 2, 4, 7 } })
  check.equal(ds:take(1):get_dataset_size(), 1)
  check.equal(asked, #lengths)
end)

check.case("a shuffled epoch has as many batches, of other samples", function()
  local long = {}
  for i = 1, 40 do long[i] = i % 5 + 1 end
  local ds = bucketed(sequences(long):shuffle(40))
  check.equal(#batches(ds), ds:get_dataset_size())
  local seen = {}
  for _, batch in ipairs(batches(ds)) do
    for _, row in ipairs(batch[1]) do seen[#seen + 1] = row[1] end
  end
  check.equal(#seen, 40)
  local sorted = { unpack(seen) }
  table.sort(sorted)
  for i = 1, 40 do check.equal(sorted[i], i) end
  assert(table.concat(seen, " ") ~= table.concat(sorted, " "), "the samples are not shuffled")
end)

check.case("filters and functions before it", function()
  local ds = sequences(lengths):filter(function(tokens) return tokens.shape[1] < 3 end, "tokens")
    :map(function(tokens) return ops.concat({ tokens, tokens }, 1) end)
  check.equal(bucketed(ds, { bucket_boundaries = { 3, 5 } }):get_dataset_size(), 2)
end)

check.case("bad input", function()
  local function fails(text, changes, ds)
    check.fails_here(text, function() bucketed(ds or sequences(lengths), changes):get_dataset_size() end)
  end
  fails("bucket_batch_by_length: sample 2 has length 5, and the longest bucket is for lengths below 5: give a last "
    .. "boundary above 5, or leave longer samples out with filter", { bucket_boundaries = { 3, 5 } })
  -- A size more, but nothing that the longer samples are padded to.
  fails("sample 2 has length 5, and the longest bucket", { bucket_boundaries = { 3, 5 },
    bucket_batch_sizes = { 2, 2, 2 } })
  fails("bucket_boundaries: expected positive integers, each larger than the one before, got {6, 3}",
    { bucket_boundaries = { 6, 3 } })
  fails("each larger than the one before, got {3, 3}", { bucket_boundaries = { 3, 3 } })
  fails("each larger than the one before, got {0, 6}", { bucket_boundaries = { 0, 6 } })
  fails("each larger than the one before, got {}", { bucket_boundaries = {}, bucket_batch_sizes = { 1 } })
  fails("bucket_batch_sizes: expected 2 sizes, one for each of bucket_boundaries, or 3 with one for longer samples, "
    .. "got 1", { bucket_batch_sizes = { 2 } })
  fails("bucket_batch_sizes: expected positive integers", { bucket_batch_sizes = { 2, 0 } })
  fails("bucket_batch_by_length: no column 'token'", { column_names = "token" })
  fails("bucket_batch_by_length: no column 'tokns'; there are tokens, label",
    { pad_info = { tokns = { { -1 }, 0 } } })
  fails("column_names: 2 columns need an element_length_function", { column_names = { "tokens", "label" } })
  fails("sample 1: expected a length, an integer of at least 0, got nil",
    { element_length_function = function() end })
  fails("column 'label' is one number", { column_names = "label" })
  fails("pad_to_bucket_boundary = false: batches of a bucket have one shape here", { pad_to_bucket_boundary = false })
  fails("pad_info: expected { column = { {sizes}, value } }, with -1 for the longest length of a bucket, got {0, 0}",
    { pad_info = { tokens = { 0, 0 } } })
  fails("the dataset is batched already", nil, sequences(lengths):padded_batch(2, false, { tokens = { { 9 }, 0 } }))
  fails("how many batches there are would differ from epoch to epoch: leave weighted before it out", nil,
    sequences(lengths):weighted(ms.ones { #lengths }))
  fails("leave shuffle and take or skip before it out", nil, sequences(lengths):shuffle(9):take(5))
  check.fails("bucket_batch_by_length: column 'tokens' is i32[2], larger than its bucket, which has 1", function()
    batches(bucketed(sequences { 1, 2 }, { bucket_boundaries = { 2 }, bucket_batch_sizes = { 2 },
      element_length_function = function() return 1 end }))
  end)
  -- Ragged samples, without padding.
  check.fails("sample 2 is (i32[5], i32[]), sample 1 was (i32[1], i32[]): all must be alike, but for columns "
    .. "that pad_info of padded_batch or bucket_batch_by_length names", function()
    batches(sequences(lengths):batch(3))
  end)
  check.fails("all must be alike", function()
    batches(sequences(lengths):bucket_batch_by_length { column_names = "tokens", bucket_boundaries = { 9 },
      bucket_batch_sizes = { 2 } })
  end)
end)

local Net = nn.Cell:extend "Net"

function Net:init()
  self.words = nn.Embedding(64, 8)
  self.out = nn.Dense(8, 2)
end

function Net:construct(tokens)
  local n, t = unpack(tokens.shape)
  local seen = ops.reshape(ops.cast(ops.not_equal(tokens, 0), ms.float32), { n, t, 1 })
  return self.out(ops.reduce_sum(self.words(tokens) * seen, { 2 }) / ops.reduce_sum(seen, { 2 }))
end

local some = {}
for i = 1, 50 do some[i] = i * 7 % 5 + 1 end

-- Batches of the same samples, padded to their bucket or all alike.
local function padded(ds, size) return bucketed(ds, { pad_info = { tokens = { { size }, 0 } } }) end

local function trained(size)
  ms.set_seed(4)
  local net = Net()
  local model = ms.Model(net, { loss_fn = nn.CrossEntropyLoss(), optimizer = nn.Adam { learning_rate = 0.05 },
    metrics = { "accuracy", "loss" } })
  model:train(4, padded(sequences(some):shuffle(50), size))
  return net, model
end

check.case("a training of several shapes updates the same parameters and state as one of one shape", function()
  local one, model = trained(5)
  local several = trained(-1)
  for i, p in ipairs(one:get_parameters()) do
    local q = several:get_parameters()[i]
    check.near(q.value:reshape(-1):totable(), p.value:reshape(-1):totable(), 1e-5)
  end
  -- All samples are evaluated, whatever the batches are.
  local found = model:eval(padded(sequences(some), -1))
  local plain = model:eval(sequences(some):padded_batch(50, false, { tokens = { { 5 }, 0 } }))
  check.near(found.loss, plain.loss, 1e-5)
  check.near(found.accuracy, plain.accuracy, 1e-9)
  assert(found.loss < 0.6, found.loss)
end)

check.done()
