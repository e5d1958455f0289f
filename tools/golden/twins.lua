-- What tools/golden/twins.py trains the PyTorch twin of a recipe on:
--   mslua run twins.lua --seed S [--preset P] [key=value ...] -- write RECIPE FOLDER
-- writes settings.json, the initial values of the seed as initial.npz, and the rows of both datasets, in their order,
-- as train.npz and eval.npz: neither shuffled, nor cropped or flipped at random. Of characters to train on any window
-- of, it is the characters themselves.
--   mslua run twins.lua --seed S [--preset P] [key=value ...] -- score RECIPE FOLDER
-- prints what the recipe's metric makes of the translations in translated.lua, a table of lists of ids.
local ms = require "mslua"
local core = require "mslua.core"
local Dataset = require "mslua.dataset.dataset"
local Model = require "mslua.model"
local pretrained = require "mslua.pretrained"
local vision = ms.dataset.vision

local action, path, folder = ...
ms.communication.init()

local batch, bucket_batch = Dataset.batch, Dataset.bucket_batch_by_length

function Dataset:shuffle() return self end

function Dataset:batch() return batch(self, self:get_dataset_size()) end

-- Padded to the longest of all.
function Dataset:bucket_batch_by_length(options)
  local boundaries = options.bucket_boundaries
  options.bucket_boundaries, options.bucket_batch_sizes = { boundaries[#boundaries] }, { self:get_dataset_size() }
  options.drop_remainder = false
  return bucket_batch(self, options)
end

local crop, flip = vision.RandomCrop, vision.RandomHorizontalFlip
vision.RandomCrop = function(size) return crop(size) end
vision.RandomHorizontalFlip = function() return flip(0) end

local TextDataset = ms.dataset.TextDataset
ms.dataset.TextDataset = function(source, options)
  if options.stride == 1 then options.block = 1 end
  return TextDataset(source, options)
end

local params, chosen = ms.params, {}
ms.params = function(defaults)
  local p = params(defaults)
  for name in pairs(defaults) do
    if name ~= "presets" then chosen[name] = p[name] end
  end
  return p
end

-- Parameters of the command line, and what they are said to be of, are the recipe's.
core.options.verb, core.options.file = "train", path
local recipe = assert(loadfile(path))()
core.set_seed(recipe.seed)

local function write_rows(name)
  local data = recipe:make_dataset(name == "train" and "dataset" or "eval_dataset")
  local columns = {}
  for i, column in ipairs { data:create_tuple_iterator(1)() } do columns["column" .. i] = column end
  ms.save_checkpoint(columns, ("%s/%s.npz"):format(folder, name))
end

local function write()
  local train, eval, settings = recipe.train, recipe.eval, { params = chosen }
  settings.train = {
    epochs = train.epochs, steps = train.steps, max_steps = train.max_steps, clip_norm = train.clip_norm,
    ema = train.ema,
  }
  settings.eval = { every_epochs = eval.every_epochs, every_steps = eval.every_steps }
  local model = Model(recipe:make_network(), {
    loss_fn = recipe.loss, steps = recipe.steps and recipe:make_steps(1000),  -- of an epoch: schedules want a number
  })
  model.network:_as_root()
  local config = model.network.config or {}
  settings.network = { vocab = config.vocab, pad = config.pad }
  ms.save_checkpoint(model.network, folder .. "/initial.npz")
  write_rows "train"
  write_rows "eval"
  local compute = eval.metrics and eval.metrics.bleu and eval.metrics.bleu.compute
  if compute then
    -- The sentences that the metric wants translated.
    pcall(compute, { translate = function(_, options)
      settings.translate = options
      error "enough"
    end })
  end
  pretrained.write_json(folder .. "/settings.json", settings)
end

local function score()
  local translated = dofile(folder .. "/translated.lua")
  print(("%.9g"):format(recipe.eval.metrics.bleu.compute { translate = function() return translated end }))
end

({ write = write, score = score })[action]()
