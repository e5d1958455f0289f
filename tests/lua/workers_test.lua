-- num_parallel_workers: the samples are the same for any number, and what it does not fit is said.
local check = require "check"
local ms = require "mslua"
local ds, vision = ms.dataset, ms.dataset.vision

ms.set_seed(5)
local images, labels = ms.rand { 50, 12, 12, 3 }, ms.rand { 50, 1 }

-- The sums of the batches of two epochs, of random crops and colours.
local function sums(options)
  local set = ds.NumpySlicesDataset({ images, labels }, { "image", "label" },
    { shuffle = true, num_parallel_workers = options.source })
    :map { operations = { vision.RandomCrop({ 8, 8 }, 2), vision.RandomHorizontalFlip() }, input_columns = "image",
      num_parallel_workers = options.map }
    :batch(4, { num_parallel_workers = options.batch })
  local list = {}
  for image, label in set:create_tuple_iterator(2) do
    list[#list + 1] = ms.ops.reduce_sum(image):item() + ms.ops.reduce_sum(label):item()
  end
  return list
end

local one = sums { source = 1 }

check.case("the samples are the same for any number", function()
  check.equal(#one, 26)
  for _, options in ipairs { { source = 2 }, { map = 5 }, { batch = 16 }, { source = 3, map = 2, batch = 1 }, {} } do
    check.equal(sums(options), one)
  end
end)

check.case("a number for all datasets", function()
  ds.config.set_num_parallel_workers(4)
  check.equal(ds.config.get_num_parallel_workers(), 4)
  check.equal(sums {}, one)
end)

check.case("zero is an error", function()
  check.fails_here("num_parallel_workers: expected", function()
    ds.NumpySlicesDataset({ images }, { "image" }, { num_parallel_workers = 0 })
  end)
  check.fails_here("num_parallel_workers: expected", function()
    ds.NumpySlicesDataset({ images }, { "image" }):map { operations = vision.HWC2CHW(), num_parallel_workers = 0 }
  end)
  check.fails_here("num: expected", function() ds.config.set_num_parallel_workers(0) end)
end)

check.done()
