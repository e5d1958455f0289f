--- A dataset: where samples come from and what is done to them. Each method returns a longer one and leaves this one
--- alone; nothing is opened before a size, a batch or training asks (core.dataset).
local arity = require "mslua.arity"
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local notice = require "mslua.notice"
local Transform = require "mslua.dataset.transform"
local config = require "mslua.dataset.config"
local derive = require "mslua.dataset.derive"

---@class mslua.Dataset
local Dataset = class.Object:extend "Dataset"
Dataset.__index = Dataset

--- What `for x in dataset do` calls.
function Dataset:__call()
  errors.fail("%s: a dataset is no iterator: for x, y in dataset:create_tuple_iterator() do", self.class_name)
end

args.kind("dataset", function(v) return class.is(v, Dataset) end, "a dataset such as ms.dataset.Cifar10Dataset {...}")

local sharding = {
  { "num_samples", "integer", min = 1, doc = "only so many samples, the first ones after shuffle; default: all" },
  { "num_shards", "integer", min = 1,
    doc = "the number of parts of the source, of which this is one; default: all of it, and ranks share each batch" },
  { "shard_id", "integer", min = 0,
    doc = "which part, from 0: its samples are shard_id, shard_id + num_shards, ..., and the first ones again where "
      .. "parts would not be of one length" },
  { "shuffle", "boolean", false, doc = "true: all samples are shuffled, again in each epoch" },
  { "num_parallel_workers", "integer", min = 1, max = 256,
    doc = "threads that read and transform samples ahead; of all the chain's the largest counts; default: the "
      .. "rank's cores less one, from 1 to 8" },
}
local workers_field = sharding[#sharding]

-- A buffer that holds any dataset whole.
local WHOLE = 2 ^ 31 - 1

-- What users of other libraries call, and what does it here.
local elsewhere = {
  create_dict_iterator = "create_tuple_iterator gives the columns in their order",
  ["repeat"] = "repeat is a keyword of Lua: repeat_(n)",
  prefetch = "batches are made ahead in any case, by num_parallel_workers threads",
  shard = "num_shards and shard_id of the source",
  len = "get_dataset_size() gives the number of batches",
  as_numpy_iterator = "create_tuple_iterator gives tensors",
}

-- A method that there is not: an error that says what there is.
local function no_method(class, key)
  if type(key) == "number" then
    errors.fail("%s has no [%s]: `for x, y in ds:create_tuple_iterator() do` goes through its samples",
      class.class_name, key)
  end
  if type(key) ~= "string" then return nil end
  local known = {}
  for name, v in pairs(Dataset) do
    if type(v) == "function" and not name:find "^__" then known[#known + 1] = name end
  end
  table.sort(known)
  errors.fail("%s has no method '%s'%s", class.class_name, key,
    elsewhere[key] and ": " .. elsewhere[key] or core.did_you_mean(key, known))
end

--- Makes a dataset's class. `fields` are its own arguments, in MindSpore's order; num_samples, num_shards, shard_id,
--- shuffle (the whole dataset, again at each epoch) and num_parallel_workers follow.
---@param name string
---@param fields mslua.Field[]
---@param source_of fun(a: table): table the source, as core.dataset takes it
---@param doc string for help
---@return table class
---@package
function Dataset.define(name, fields, source_of, doc)
  local all = {}
  for _, f in ipairs(fields) do all[#all + 1] = f end
  for _, f in ipairs(sharding) do all[#all + 1] = f end
  local bind, made = args.signature(name, all), Dataset:extend(name)
  made.doc = doc
  made.__index = function(self, key)
    if key == "opened" then return nil end
    local v = made[key]
    return v ~= nil and v or no_method(made, key)
  end
  function made:init(...)
    local a = bind(...)
    if (a.num_shards == nil) ~= (a.shard_id == nil) then
      errors.fail("%s: num_shards and shard_id go together: give both or none", name)
    elseif a.num_shards and a.shard_id >= a.num_shards then
      errors.fail("%s: shard_id: expected an integer below num_shards = %d, got %d", name, a.num_shards, a.shard_id)
    end
    self.spec = { source = source_of(a), num_shards = a.num_shards, shard_id = a.shard_id, ops = {},
      num_parallel_workers = a.num_parallel_workers }
    if a.shuffle then table.insert(self.spec.ops, { kind = "shuffle", buffer_size = WHOLE, argument = "shuffle" }) end
    if a.num_samples then
      table.insert(self.spec.ops, { kind = "take", count = a.num_samples, argument = "num_samples" })
    end
    self.made_at = core.where()
  end
  return made
end

local function check_self(self, call) class.check_self(self, Dataset, "a dataset", "ds:" .. call) end

-- The larger of two numbers of workers, which may be nil.
local function most(a, b) return a and b and math.max(a, b) or a or b end

-- A copy, with one more operation when one is given.
local function with(self, op, workers)
  local longer = setmetatable({ made_at = core.where() or rawget(self, "made_at") }, getmetatable(self))
  longer.spec = { ops = { unpack(self.spec.ops) } }
  for _, key in ipairs { "source", "num_shards", "shard_id" } do longer.spec[key] = self.spec[key] end
  longer.spec.num_parallel_workers = most(self.spec.num_parallel_workers, workers)
  longer.spec.ops[#longer.spec.ops + 1] = op
  return longer
end

local function listed(v) return type(v) == "table" and v or v ~= nil and { v } or nil end

local bind_map = args.signature("map", {
  { "operations", "any", required = true, doc = "a transform, a function, a file of Lua, or a list of them" },
  { "input_columns", "string|strings", doc = "the columns that are transformed; default: the first" },
  { "output_columns", "string|strings", doc = "new names for them; default: as before" },
  workers_field,
  { "arguments", "any", doc = "what a file gets as `...`: a number, string, boolean or a table of them" },
})

-- Functions, files and runs of transforms out of nested lists, in order.
local function flatten(v, into)
  if type(v) == "function" or type(v) == "string" then
    into[#into + 1] = v
  elseif args.is_list(v) then
    for _, item in ipairs(v) do flatten(item, into) end
  else
    if type(into[#into]) ~= "table" then into[#into + 1] = {} end
    table.insert(into[#into], v)
  end
  return into
end

--- Transforms of a column: `ds:map { operations = {vision.Resize {224, 224}, ...}, input_columns = "image" }`; without
--- a name the first column. Each of several columns goes through the transforms, with the same random numbers: an image
--- and the mask of its pixels are cropped in the same place. output_columns are new names. A function of Lua gets a
--- tensor of each of the input_columns, of one sample, and gives the tensors, numbers or lists that take their place.
--- It must depend on its arguments alone and comes before batch.
---
--- A file of Lua, `operations = "augment.lua"`, returns such a function. It runs on the threads of
--- num_parallel_workers, in a Lua state of each: it has tensors, ms.ops and ms.text, no global of the recipe, and gets
--- `arguments` as `...`.
--- It may draw random numbers, ms.rand and math.random: each sample has its own, by the seed, the epoch and its place.
--- The path is relative to the recipe's folder, or to the current one.
---
--- After batch, vision.MixUpBatch and vision.CutMixBatch take the columns of the images and of their labels.
---@return mslua.Dataset
function Dataset:map(...)
  check_self(self, "map {...}")
  local a = bind_map(...)
  local inputs, outputs = listed(a.input_columns), listed(a.output_columns)
  local steps = flatten(a.operations, {})
  if #steps == 0 then steps[1] = {} end
  if inputs and #inputs == 0 then errors.fail "map: input_columns: expected names of columns, got an empty list" end
  local takes_arguments = false
  local longer = a.num_parallel_workers and with(self, nil, a.num_parallel_workers) or self
  for i, step in ipairs(steps) do
    if type(step) == "string" then
      takes_arguments = true
      longer = with(longer, derive.code("map: operations", step, a.arguments,
        { kind = "code", inputs = inputs, outputs = i == #steps and outputs or nil }))
    elseif type(step) == "function" then
      longer = with(longer, { kind = "call", f = step, inputs = inputs, outputs = i == #steps and outputs or nil,
        made_at = core.where() })
    else
      local transforms, names = Transform.collect(step, "map: operations", {}), i == #steps and outputs or nil
      local mix = transforms[1] and transforms[1].kind == "mix" and transforms[1]
      if mix and (#transforms > 1 or names or not inputs or #inputs ~= 2) then
        errors.fail("map: %s: expected it alone, with input_columns = {images, labels}, got %s%s", step[1].name,
          #transforms > 1 and ("%d transforms and "):format(#transforms) or "", errors.show(inputs))
      end
      if mix then
        longer = with(longer, { kind = "mix", box = mix.box, alpha = mix.alpha, prob = mix.prob, image = inputs[1],
          label = inputs[2] })
      elseif names and #names ~= (inputs and #inputs or 1) then
        errors.fail("map: output_columns: a transform gives a column for each of input_columns: expected %d, got %s",
          inputs and #inputs or 1, errors.show(names))
      end
      if not mix then
        longer = with(longer, { kind = "map", transforms = transforms, columns = inputs, names = names })
      end
    end
  end
  if a.arguments ~= nil and not takes_arguments then
    errors.fail "map: arguments: they are for an operation that is a file; a function has its upvalues"
  end
  return longer
end

local bind_filter = args.signature("filter", {
  { "predicate", "function", required = true, doc = "gets the tensors of a sample, gives whether it stays" },
  { "input_columns", "string|strings", doc = "the columns that predicate gets; default: all" },
})

--- The samples for which a function is true: `ds:filter(function(image, label) return label:item() < 5 end)`. It gets a
--- tensor of each of the input_columns, of all without a name, and is asked once for each sample when the dataset is
--- opened. Call it before batch.
function Dataset:filter(...)
  check_self(self, "filter(predicate)")
  local a = bind_filter(...)
  return with(self, { kind = "filter", f = a.predicate, inputs = listed(a.input_columns), made_at = core.where() })
end

local bind_project = args.signature("project", {
  { "columns", "string|strings", required = true, doc = "the columns that stay, in their new order" },
  { "names", "string|strings", doc = "their new names, as many; default: as before" },
})

--- The columns of these names alone, in this order, under new names where `names` gives them: an autoencoder's
--- `ds:project({"image", "image"}, {"image", "target"})`.
function Dataset:project(...)
  check_self(self, "project(columns)")
  local a = bind_project(...)
  local columns, names = listed(a.columns), listed(a.names)
  if #columns == 0 or names and #names ~= #columns then
    errors.fail("project: expected at least one column%s, got %s%s", names and " and as many names" or "",
      errors.show(columns), names and " and " .. errors.show(names) or "")
  end
  return with(self, { kind = "project", columns = columns, names = names })
end

local bind_rename = args.signature("rename", {
  { "input_columns", "string|strings", required = true, doc = "the columns' names" },
  { "output_columns", "string|strings", required = true, doc = "their new names, as many" },
})

--- Other names for columns: `ds:rename("image", "data")`.
function Dataset:rename(...)
  check_self(self, "rename(input_columns, output_columns)")
  local a = bind_rename(...)
  local from, to = listed(a.input_columns), listed(a.output_columns)
  if #from ~= #to then
    errors.fail("rename: %d input_columns and %d output_columns", #from, #to)
  end
  return with(self, { kind = "rename", columns = from, names = to })
end

-- A dataset of a source that is made of others.
local function derived(name, self, ...)
  local parts, workers = { self.spec }, self.spec.num_parallel_workers
  for i, other in ipairs { ... } do
    if not class.is(other, Dataset) then errors.fail("%s: expected a dataset, got %s", name, errors.show(other)) end
    parts[i + 1], workers = other.spec, most(workers, other.spec.num_parallel_workers)
  end
  if name ~= "cache" and (#parts < 2 or #parts ~= select("#", ...) + 1) then
    errors.fail("%s: expected another dataset", name)
  end
  local made = setmetatable({ made_at = core.where() }, getmetatable(self))
  made.spec = { source = { kind = name, parts = parts }, ops = {}, num_parallel_workers = workers }
  return made
end

--- Datasets side by side: sample i has the columns of sample i of each, as many samples as the shortest has. Shuffle
--- and batch the result, not its parts.
---@param ... mslua.Dataset
function Dataset:zip(...)
  check_self(self, "zip(other)")
  return derived("zip", self, ...)
end

--- Datasets behind each other: `a:concat(b)` has the samples of a, then those of b. All have the same columns. Shuffle
--- and batch the result, not its parts; random transforms come after it.
---@param ... mslua.Dataset
function Dataset:concat(...)
  check_self(self, "concat(other)")
  return derived("concat", self, ...)
end

local bind_cache = args.signature("cache", {
  { "folder", "string", doc = "a folder for the samples, which later trainings use again; default: memory" },
})

--- Keeps each sample when it is read first, as the operations before have made it, so that later epochs neither decode
--- nor transform again: `ds:map { operations = vision.Resize { 256, 256 } }:cache()`. In memory; in files of `folder`
--- where it is given, which later trainings of the same data use again. Random transforms come after it.
function Dataset:cache(...)
  check_self(self, "cache()")
  local folder = bind_cache(...).folder
  if folder == "" then errors.fail "cache: folder: expected a path, got \"\"" end
  local made = derived("cache", self)
  made.spec.source.folder = folder
  return made
end

local bind_weighted = args.signature("weighted", {
  { "weights", "any", required = true, doc = "a number of at least 0 for each sample: a list or a tensor" },
  { "num_samples", "integer", min = 1, doc = "samples of an epoch; default: as many as there are" },
  { "replacement", "boolean", true, doc = "whether a sample may be drawn again in an epoch" },
})

--- Samples drawn by their weights, other ones in each epoch: `ds:weighted(weights)` makes rare classes as frequent as
--- others where a sample's weight is 1 / (samples of its class). PyTorch's WeightedRandomSampler. Call it before batch,
--- and not after shuffle.
function Dataset:weighted(...)
  check_self(self, "weighted(weights)")
  local a = bind_weighted(...)
  local weights = a.weights
  if core.kind(weights) == "Tensor" and #weights.shape == 1 then weights = weights:totable() end
  local good = args.is_list(weights) and #weights > 0
  for _, w in ipairs(good and weights or {}) do good = good and type(w) == "number" end
  if not good then
    errors.fail("weighted: weights: expected a list or a tensor [n] of numbers, got %s", errors.show(a.weights))
  end
  return with(self, { kind = "weighted", weights = weights, count = a.num_samples or 0, replacement = a.replacement })
end

local bind_split = args.signature("split", {
  { "sizes", "numbers", required = true, above = 0,
    doc = "two or more fractions that add up to 1, or numbers of samples" },
  { "randomize", "boolean", true, doc = "true: each part's samples are drawn, by the seed; false: parts are in a row" },
})

--- Parts of the dataset that have no sample in common: `local train, test = ds:split {0.9, 0.1}`. sizes: fractions
--- that add up to 1, or numbers of samples. randomize: which part a sample is in is drawn once for all parts, by the
--- seed when the first of them is used; else the parts follow each other. Call it before shuffle and batch.
---@return mslua.Dataset ... a dataset for each size
function Dataset:split(...)
  check_self(self, "split(sizes)")
  local a, parts = bind_split(...), {}
  if #a.sizes < 2 then errors.fail("split: sizes: expected at least two, got %s", errors.show(a.sizes)) end
  local shared = {}  -- by all parts: the order that is drawn
  for i in ipairs(a.sizes) do
    parts[i] = with(self, { kind = "part", sizes = a.sizes, part = i, randomize = a.randomize, shared = shared })
  end
  return unpack(parts)
end

local bind_shuffle = args.signature("shuffle", {
  { "buffer_size", "integer", required = true, min = 1, doc = "samples to draw the next one from" },
})

--- A random one out of a buffer of `buffer_size` samples, again and again; a buffer as long as the dataset shuffles it
--- whole.
function Dataset:shuffle(...)
  check_self(self, "shuffle(buffer_size)")
  return with(self, { kind = "shuffle", buffer_size = bind_shuffle(...).buffer_size })
end

local batch_size = { "batch_size", "integer", required = true, min = 1, doc = "samples of one batch of a rank" }
local drop_remainder = { "drop_remainder", "boolean", false, doc = "true: a last, smaller batch is left out" }
local pad_info_doc = "sizes and the value for the rest of each column, { tokens = { {128}, 0 } }"

local bind_batch = args.signature("batch", {
  batch_size, drop_remainder, workers_field,
})

--- Joins `batch_size` samples; a last, smaller batch is kept unless drop_remainder. Training leaves it out, for a step
--- is compiled for whole batches, and says so.
function Dataset:batch(...)
  check_self(self, "batch(batch_size)")
  local a = bind_batch(...)
  return with(self, { kind = "batch", size = a.batch_size, drop_remainder = a.drop_remainder },
    a.num_parallel_workers)
end

local bind_padded = args.signature("padded_batch", {
  batch_size, drop_remainder, { "pad_info", "table", required = true, doc = pad_info_doc },
})

-- What pad_info says, by the names of columns. With `any`, -1 is a size too.
local function padding_of(what, pad_info, any)
  local padding = {}
  for name, info in pairs(pad_info) do
    local shape, value = nil, nil
    if type(info) == "table" then shape, value = listed(info[1]), info[2] end
    local good = type(name) == "string" and shape ~= nil and (value == nil or type(value) == "number")
    for _, size in ipairs(shape or {}) do
      good = good and type(size) == "number" and size % 1 == 0 and (size >= 1 or any and size == -1)
    end
    if not good then
      errors.fail("%s: pad_info: expected { column = { {sizes}, value } }%s, got %s for %s", what,
        any and ", with -1 for the longest length of a bucket" or "", errors.show(info), errors.show(name))
    end
    padding[#padding + 1] = { name = name, shape = shape, value = value or 0 }
  end
  table.sort(padding, function(x, y) return x.name < y.name end)
  return padding
end

--- As batch, of columns whose samples differ in shape: `ds:padded_batch(32, true, { tokens = { { 128 }, 0 } })` gives
--- each column that pad_info names the shape, and the value behind what a sample has. A larger sample is an error.
--- Batches have one shape, so that each size is a number. Of a GeneratorDataset's columns those may differ in shape.
function Dataset:padded_batch(...)
  check_self(self, "padded_batch(batch_size, drop_remainder, pad_info)")
  local a = bind_padded(...)
  local padding = padding_of("padded_batch", a.pad_info)
  if #padding == 0 then errors.fail "padded_batch: pad_info: expected at least one column, got none: call batch" end
  return with(self, { kind = "batch", size = a.batch_size, drop_remainder = a.drop_remainder, padding = padding })
end

local bind_buckets = args.signature("bucket_batch_by_length", {
  { "column_names", "string|strings", required = true, doc = "the columns that the length of a sample is found by" },
  { "bucket_boundaries", "integers", required = true,
    doc = "ascending; samples shorter than a boundary are in its bucket, or in an earlier one" },
  { "bucket_batch_sizes", "integers", required = true,
    doc = "samples of a batch of each bucket; one more than boundaries: of longer samples too" },
  { "element_length_function", "function",
    doc = "gets a tensor of each of column_names and gives the length; default: the first size of the one column" },
  { "pad_info", "table", doc = pad_info_doc .. "; -1: the bucket's boundary - 1" },
  { "pad_to_bucket_boundary", "boolean", true, doc = "only true: all batches of a bucket have one shape" },
  drop_remainder,
})

--- Joins samples of similar length: `ds:bucket_batch_by_length { column_names = "tokens", bucket_boundaries = {17, 33},
--- bucket_batch_sizes = {64, 32}, pad_info = { tokens = { {-1}, 0 } } }` gives batches of 64 samples shorter than 17,
--- and of 32 that are shorter than 33. With one size more than there are boundaries the last bucket has the longer
--- samples; without it they are an error. pad_info is as padded_batch's; -1 stands for the longest length of a bucket,
--- its boundary - 1. Batches of a bucket have one shape, for which a training compiles one step: pad_to_bucket_boundary
--- = false is an error. (MindSpore then pads to the longest sample of a batch.) The length of each sample is asked for
--- once, when the dataset is opened. A batch comes when its bucket is full; smaller ones at the end of the epoch are
--- kept unless drop_remainder. All ranks have the same bucket in a step.
---@return mslua.Dataset
function Dataset:bucket_batch_by_length(...)
  local name = "bucket_batch_by_length"
  check_self(self, name .. " {...}")
  local a = bind_buckets(...)
  local columns, largest = listed(a.column_names), 0
  for _, size in ipairs(a.bucket_batch_sizes) do largest = math.max(largest, size) end
  if #columns == 0 then errors.fail("%s: column_names: expected at least one column, got {}", name) end
  if #columns > 1 and not a.element_length_function then
    errors.fail("%s: column_names: %d columns need an element_length_function", name, #columns)
  end
  if not a.pad_to_bucket_boundary then
    errors.fail("%s: pad_to_bucket_boundary = false: batches of a bucket have one shape here: leave it out, and give "
      .. "-1 in pad_info for the longest length of the bucket", name)
  end
  return with(self, { kind = "batch", size = largest, drop_remainder = a.drop_remainder,
    padding = padding_of(name, a.pad_info or {}, true), columns = columns, f = a.element_length_function,
    boundaries = a.bucket_boundaries, sizes = a.bucket_batch_sizes, made_at = core.where() })
end

local function counted(name, kind, doc, least)
  local bind = args.signature(name, {
    { "count", "integer", required = true, min = least or 1, doc = doc },
  })
  return function(self, ...)
    check_self(self, name .. "(count)")
    return with(self, { kind = kind, count = bind(...).count })
  end
end

--- Everything before it, `count` times an epoch. (MindSpore's repeat, which is a keyword in Lua.)
Dataset.repeat_ = counted("repeat_", "repeat", "how often to go through the samples in an epoch")
--- The first `count` elements: samples before a batch, batches after it.
Dataset.take = counted("take", "take", "how many elements there are at most")
--- All but the first `count` elements.
Dataset.skip = counted("skip", "skip", "how many elements to leave out", 0)

--- The dataset, opened: core's object.
---@package
function Dataset:open()
  if not self.opened then
    local made_at = rawget(self, "made_at")
    local spec = errors.at(made_at, derive.resolve, self.spec)
    spec.made_at = made_at
    local by_function = spec.source.kind == "generator" and type(spec.source.source) == "function"
    if by_function and (spec.num_parallel_workers or 1) > 1 then
      notice(("note: %snum_parallel_workers = %d has no effect: a function makes the samples, on the training's own "
        .. "thread; a file of Lua, operations = \"augment.lua\", runs on those of workers")
        :format(made_at and made_at .. ": " or "", spec.num_parallel_workers))
    end
    spec.num_parallel_workers = spec.num_parallel_workers or config.get_num_parallel_workers()
    self.opened = errors.at(made_at, core.dataset, spec)
  end
  return self.opened
end

--- Batches in an epoch; samples when there is no batch, those of all ranks.
---@return integer
function Dataset:get_dataset_size(...)
  check_self(self, "get_dataset_size()")
  arity.take("get_dataset_size", 0, ...)
  local opened = self:open()
  return not opened:batch_size() and opened:length() or opened:size()
end

--- Steps that an epoch has.
---@return integer
---@package
function Dataset:steps() return self:open():size() end

--- Samples in a batch, of bucket_batch_by_length in the largest; 1 when there is no batch.
---@return integer
function Dataset:get_batch_size(...)
  check_self(self, "get_batch_size()")
  arity.take("get_batch_size", 0, ...)
  return self:open():batch_size() or 1
end

-- How large a whole batch is and how many rows there are, as far as core.dataset's error about it says.
local function missing_batch(rows, problem)
  local of, samples = tostring(problem):match "no full batch of (.-) in (%d+) samples"
  local ranks = tonumber(of and of:match "x (%d+) feeds" or 1)
  return (" of %d rows%s%s; make the batch smaller%s"):format(rows * ranks,
    ranks > 1 and (" (%d rows x %d ranks that share a batch)"):format(rows, ranks) or "",
    samples and (": it has %s"):format(samples) or "", ranks > 1 and " or start fewer ranks" or "")
end

--- The dataset as training reads it: without a smaller last batch.
---@param what string for messages
---@return mslua.Dataset
---@package
function Dataset:whole_batches(what)
  local opened = self:open()
  if not opened:batch_size() or opened:full_batches() then return self end
  local whole, buckets = with(self), false
  for i, op in ipairs(whole.spec.ops) do
    if op.kind == "batch" then
      local copy = {}
      for key, v in pairs(op) do copy[key] = v end
      copy.drop_remainder, whole.spec.ops[i] = true, copy
      buckets = op.boundaries ~= nil
    end
  end
  local found, size = pcall(whole.get_dataset_size, whole)
  if not found or size == 0 then
    errors.at(rawget(self, "made_at"), error, ("%s: training takes whole batches, and the dataset has none%s")
      :format(what, buckets and "" or missing_batch(opened:batch_size(), not found and size or "")), 0)
  end
  local left = opened:size() - size
  if left > 0 then
    local verb, does = "have", "are"
    if left == 1 then verb, does = "has", "is" end
    notice(("note: %s: %d of %d batches of an epoch %s fewer %s and %s left out (drop_remainder = true)")
      :format(what, left, opened:size(), verb, buckets and "rows than full batches of their buckets"
        or ("than %d rows"):format(opened:batch_size()), does))
  end
  return whole
end

--- Names of the classes that labels 0, 1, ... stand for; nil where the source knows none. Those of an
--- ImageFolderDataset are the names of its folders.
---@return string[]?
function Dataset:get_class_names(...)
  check_self(self, "get_class_names()")
  arity.take("get_class_names", 0, ...)
  return self:open():class_names()
end

local bind_iterator = args.signature("create_tuple_iterator", {
  { "num_epochs", "integer", 1, min = 1, doc = "how often to go through the dataset" },
})

local epochs_begun = setmetatable({}, { __mode = "k" })  -- dataset -> the epochs of the iterators made of it

--- `for image, label in ds:create_tuple_iterator() do`: tensors of each batch, `num_epochs` times over. The first
--- iterator of a dataset begins with epoch 1, the next one with the epoch after those of the one before: a loop that
--- makes one in each epoch has another order and other random transforms in each. They depend on the seed and the
--- number of the epoch alone.
function Dataset:create_tuple_iterator(...)
  check_self(self, "create_tuple_iterator()")
  local epochs, begun = bind_iterator(...).num_epochs, epochs_begun[self] or 0
  local iterator = self:open():iterator(epochs, begun)
  epochs_begun[self] = begun + epochs
  return iterator
end

function Dataset:__tostring()
  local words = { self.class_name }
  for _, op in ipairs(self.spec.ops) do words[#words + 1] = op.kind end
  return table.concat(words, ":")
end

return Dataset
