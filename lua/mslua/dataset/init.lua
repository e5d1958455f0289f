--- ms.dataset: sources of samples (mindspore.dataset).
local core = require "mslua.core"
local errors = require "mslua.errors"
local define = require("mslua.dataset.dataset").define

local M = {
  vision = require "mslua.dataset.vision",
  transforms = require "mslua.dataset.transforms",
}

local function check_folder(path)
  if path == "" then return "expected a folder, got \"\": give data_path=... on the command line, or set DATA_PATH" end
end

local function folder(name) return { name, "string", required = true, check = check_folder } end
local usage = { "usage", "string", "train", choices = { "train", "test", "all" } }

local function files(kind)
  return function(a) return { kind = kind, path = a.dataset_dir, usage = a.usage } end
end

--- CIFAR-10, binary or python files: image uint8 [32, 32, 3], label int32 [] from 0. (dataset_dir, usage = "train")
M.Cifar10Dataset = define("Cifar10Dataset", { folder "dataset_dir", usage }, files "cifar10")
--- CIFAR-100: image, coarse_label, fine_label. (dataset_dir, usage = "train")
M.Cifar100Dataset = define("Cifar100Dataset", { folder "dataset_dir", usage }, files "cifar100")
--- MNIST's IDX files, plain or .gz: image uint8 [28, 28, 1], label int32 []. (dataset_dir, usage = "train")
M.MnistDataset = define("MnistDataset", { folder "dataset_dir", usage }, files "mnist")
--- A folder for each class with JPEG or PNG files: image uint8 [h, w, 3], label int32 []. (dataset_dir)
M.ImageFolderDataset = define("ImageFolderDataset", { folder "dataset_dir" }, files "image_folder")

--- Windows of a text for next-token prediction: x int32 [block], y int32 [block], y being x moved on by one. `stride`
--- tokens lie between two windows (default: block). format "characters": bytes, ids in order of their values; "uint16":
--- tokens.
M.TextDataset = define("TextDataset", {
  folder "dataset_files", usage,
  { "block", "integer", 64, min = 1, unit = "tokens" },
  { "stride", "integer", min = 1, unit = "tokens" },
  { "format", "string", "characters", choices = { "characters", "uint16" } },
  { "test_fraction", "number", 0.1, min = 0, below = 1 },
  { "vocab_size", "integer", min = 1 },
}, function(a)
  return {
    kind = "text", path = a.dataset_files, usage = a.usage, block = a.block, stride = a.stride, format = a.format,
    test_fraction = a.test_fraction, vocab_size = a.vocab_size,
  }
end)

--- Samples that Lua makes: a function that returns an iterator, called each epoch, or, with `length`, `function(i)` for
--- i from 1. Both give a value for each column: a tensor, a number or a list of numbers.
M.GeneratorDataset = define("GeneratorDataset", {
  { "source", "function", required = true },
  { "column_names", "strings", required = true },
  { "length", "integer", min = 1 },
}, function(a)
  if #a.column_names == 0 then errors.fail "GeneratorDataset: column_names: expected at least one name, got {}" end
  return {
    kind = "generator", column_names = a.column_names, length = a.length,
    get = a.length and a.source or nil, iterator = not a.length and a.source or nil,
  }
end)

-- { x, y } with their names, or { data = x, label = y }: then the names are the keys, sorted unless column_names says
-- their order (a Lua table has none).
local function named_columns(data, column_names)
  local keys = errors.names(data)
  if #keys == 0 then return data, column_names end
  if #data > 0 then errors.fail "NumpySlicesDataset: data: expected a list of arrays or named arrays, got both" end
  local names, arrays = column_names or keys, {}
  if #names ~= #keys then
    errors.fail("NumpySlicesDataset: column_names: expected the %d keys of data in their order, got %s", #keys,
      errors.show(names))
  end
  for i, name in ipairs(names) do
    if data[name] == nil then
      errors.fail("NumpySlicesDataset: column_names: data has no '%s'%s", name, core.did_you_mean(name, keys))
    end
    arrays[i] = data[name]
  end
  return arrays, names
end

--- Tensors (or nested lists) whose rows are the samples: `NumpySlicesDataset({x, y}, {"data", "label"})`, or
--- `NumpySlicesDataset({data = x, label = y}, {"data", "label"})`; a tensor or a list of numbers is one column.
M.NumpySlicesDataset = define("NumpySlicesDataset", {
  { "data", "table|tensor", required = true },
  { "column_names", "strings" },
}, function(a)
  local data = a.data
  if core.kind(data) == "Tensor" or type(data[1]) == "number" then data = { data } end
  local columns, arrays, names = {}, named_columns(data, a.column_names)
  for i, v in ipairs(arrays) do
    local t = core.kind(v) == "Tensor" and v or core.tensor(v)
    columns[i] = { name = names and names[i] or "column_" .. i - 1, value = t }
  end
  if names and #names ~= #columns then
    errors.fail("NumpySlicesDataset: %d arrays and %d column_names", #columns, #names)
  end
  if #columns == 0 then errors.fail "NumpySlicesDataset: data: expected at least one array, got {}" end
  return { kind = "numpy_slices", columns = columns }
end)

return require("mslua.namespace").strict("ms.dataset", M)
