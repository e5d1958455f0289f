-- Files of Lua that make and change samples on the threads of workers.
local check = require "check"
local ms = require "mslua"
local ds, vision = ms.dataset, ms.dataset.vision

local written = {}

-- A file with this text; gives its path.
local function file(text)
  local path = os.tmpname()
  written[#written + 1] = path
  local out = assert(io.open(path, "w"))
  out:write(text)
  out:close()
  return path
end

local function numbers(n) return ds.NumpySlicesDataset({ ms.arange(n), ms.arange(n) * 10 }, { "x", "y" }) end

-- The first column of so many epochs, flat.
local function values(set, epochs)
  local list = {}
  for x in set:create_tuple_iterator(epochs or 1) do
    for _, v in ipairs(x:reshape(x.size):totable()) do list[#list + 1] = v end
  end
  return list
end

local augment = file [[
local ms = require "mslua"
local scale = ...
local function noise() return math.random() + ms.rand({ 1 }):item() end
return function(x) return x:item() * scale + noise() end
]]

check.case("the same samples for any number of workers, other ones in each epoch", function()
  local function of(workers)
    return values(numbers(20):map { operations = augment, arguments = 100, num_parallel_workers = workers }
      :shuffle(20):batch(3), 2)
  end
  local one = of(1)
  check.equal(#one, 40)
  check.equal(of(2), one)
  check.equal(of(5), one)
  local first = {}
  for i = 1, 20 do first[math.floor(one[i] / 100)] = one[i] end
  for i = 21, 40 do assert(first[math.floor(one[i] / 100)] ~= one[i], "an epoch repeats the numbers of another") end
end)

check.case("columns: several, new ones, and transforms behind", function()
  local swap = file "return function(a, b) return b, a end"
  check.equal(values(numbers(4):map { operations = swap, input_columns = { "x", "y" } }), { 0, 10, 20, 30 })
  local sum = file "return function(a, b) return a + b end"
  local set = numbers(4):map { operations = sum, input_columns = { "x", "y" }, output_columns = "sum" }
    :map { operations = vision.Rescale(1, 1), input_columns = "sum" }
  check.equal(values(set), { 1, 12, 23, 34 })
  local both = file "return function(a) return a, { a:item(), 7 } end"
  set = numbers(3):map { operations = both, output_columns = { "a", "b" } }:project "b"
  check.equal(values(set), { 0, 7, 1, 7, 2, 7 })
end)

check.case("GeneratorDataset of a file", function()
  local squares = file "return { length = 6, get = function(i) return i * i, { i } end }"
  check.equal(values(ds.GeneratorDataset(squares, { "x", "i" }, { num_parallel_workers = 3 })), { 1, 4, 9, 16, 25, 36 })
  local plain = file "local k = ... return function(i) return i * k.by end"
  check.equal(values(ds.GeneratorDataset(plain, { "x" }, { length = 3, arguments = { by = 3 } })), { 3, 6, 9 })
  check.fails("a file needs a length", function()
    values(ds.GeneratorDataset(plain, { "x" }, { arguments = { by = 3 } }))
  end)
  check.fails("a sample has 2 columns, column_names has 1", function()
    values(ds.GeneratorDataset(squares, { "x" }))
  end)
end)

check.case("errors name file, line and sample", function()
  local bad = file "return function(x)\n  if x:item() == 5 then error 'five' end\n  return x\nend"
  check.fails(bad .. ":2: five (NumpySlicesDataset, row 6)", function() values(numbers(9):map { operations = bad }) end)
  check.fails_here("no file 'nowhere.lua'", function() numbers(2):map { operations = "nowhere.lua" } end)
  check.fails("should return a function", function() values(numbers(2):map { operations = file "return 3" }) end)
  check.fails("should give 1 value, got 2", function()
    values(numbers(2):map { operations = file "return function(x) return x, x end" })
  end)
  check.fails_here("arguments: expected a number", function()
    numbers(2):map { operations = augment, arguments = print }
  end)
end)

check.case("what workers do not have is named", function()
  for text, problem in pairs {
    ["return function(x) return x * gain end"] = ":1: workers have no global 'gain'",
    ["return function(x)\n  count = 1\n  return x\nend"] = ":2: workers have no global 'count': write `local count`",
    ["local ms = require 'mslua'\nreturn function(x)\n  return ms.Model(x), 1\nend"] = ":3: workers have no ms.Model",
    ["return function(x) os.exit(3) end"] = ":1: workers have no os.exit: it would end the training",
    ["return function(x) math.randomseed(1) end"] = ":1: workers have no math.randomseed",
    ["local ms = require 'mslua'\nreturn function(x) return ms.onse(x), 1 end"] = ":2: there is no ms.onse",
  } do
    check.fails(problem, function() values(numbers(2):map { operations = file(text) }) end)
  end
end)

check.case("places: before batch, and functions of the recipe before files", function()
  check.fails_here("call it before batch", function() values(numbers(4):batch(2):map { operations = augment }) end)
  check.fails_here("put the function in a file too", function()
    values(numbers(4):map { operations = augment, arguments = 1 }:map { operations = function(x) return x end })
  end)
  local set = numbers(4):map { operations = function(x) return x + 1 end }
    :map { operations = file "return function(x) return x * 2 end" }
  check.equal(values(set), { 2, 4, 6, 8 })
end)

check.case("concat, cache and weighted", function()
  local set = numbers(3):map { operations = file "return function(x) return x * 2 end" }
  check.equal(values(set:concat(numbers(2))), { 0, 2, 4, 0, 1 })
  check.equal(values(set:cache():batch(2), 2), { 0, 2, 4, 0, 2, 4 })
  check.fails("draws random numbers", function()
    values(numbers(3):map { operations = augment, arguments = 1 }:cache())
  end)
  check.fails_here("RandomHorizontalFlip comes before", function()
    local images = ds.NumpySlicesDataset({ ms.rand { 2, 4, 4, 1 } }, { "image" })
    values(images:map { operations = vision.RandomHorizontalFlip() }:cache())
  end)
  check.equal(values(numbers(4):weighted({ 0, 1, 0, 0 }, 5)), { 1, 1, 1, 1, 1 })
  check.equal(#values(numbers(4):weighted(ms.ones { 4 })), 4)
  check.fails_here("a weight for each of 4 samples, got 2", function() values(numbers(4):weighted { 1, 1 }) end)
  check.fails_here("expected a list or a tensor [n]", function() numbers(4):weighted "x" end)
end)

check.case("MixUpBatch and CutMixBatch", function()
  local images, labels = ms.rand { 8, 4, 4, 1 }, ms.arange(8)
  local function mixed(mix)
    return ds.NumpySlicesDataset({ images, labels }, { "image", "label" })
      :map { operations = { ds.transforms.OneHot(8), ds.transforms.TypeCast(ms.float32) }, input_columns = "label" }
      :batch(4):map { operations = mix, input_columns = { "image", "label" } }
  end
  for _, mix in ipairs { vision.MixUpBatch(0.5), vision.CutMixBatch() } do
    for _, label in mixed(mix):create_tuple_iterator() do
      check.near(label:sum():item(), 4, 1e-5)
    end
  end
  -- Of a small alpha one of two images is nearly whole.
  for _, label in mixed(vision.MixUpBatch(1e-4)):create_tuple_iterator() do
    for _, shares in ipairs(label:totable()) do check.equal(math.max(unpack(shares)) > 0.99, true) end
  end
  -- Images in planes are known as such behind a dataset of datasets too, and where arrays have them: the box is the
  -- same in each plane, and the labels say its size.
  local levels = {}
  for i = 1, 8 do levels[i] = ms.full({ 8, 6, 3 }, i):totable() end
  local hot = { ds.transforms.OneHot(8), ds.transforms.TypeCast(ms.float32) }
  local function set(x)
    return ds.NumpySlicesDataset({ x, labels }, { "image", "label" }):map { operations = hot, input_columns = "label" }
  end
  local planes = set(ms.Tensor(levels)):map { operations = vision.HWC2CHW(), input_columns = "image" }
  local array = {}
  for image in planes:create_tuple_iterator() do array[#array + 1] = image:totable() end
  array = set(ms.Tensor(array))
  for _, images_in_planes in ipairs { planes, planes:cache(), array } do
    local cut = images_in_planes:batch(8)
      :map { operations = vision.CutMixBatch(), input_columns = { "image", "label" } }
    local image, label = cut:create_tuple_iterator()()
    local share = label:totable()[1][1]
    for _, plane in ipairs(image:totable()[1]) do
      local own = 0
      for _, row in ipairs(plane) do
        for _, level in ipairs(row) do own = own + (level == 1 and 1 or 0) end
      end
      check.near(own / 48, share, 1e-6)
    end
  end
  for _, images_in_planes in ipairs { planes:cache(), array } do
    check.fails_here("RandomVerticalFlip: expected an image [height,width,channels], got column 'image', f32[3,8,6]",
      function() values(images_in_planes:map { operations = vision.RandomVerticalFlip(), input_columns = "image" }) end)
  end
  check.fails_here("input_columns = {images, labels}", function()
    ds.NumpySlicesDataset({ images }, { "image" }):batch(2):map { operations = vision.MixUpBatch() }
  end)
end)

check.case("transforms by other operations", function()
  local image = ms.ops.cast(ms.rand { 1, 24, 20, 3 } * 255, "uint8")
  local transforms = { vision.RandAugment(), vision.TrivialAugmentWide(), vision.Resize({ 9, 7 }, "bicubic") }
  for _, transform in ipairs(transforms) do
    local x = ds.NumpySlicesDataset({ image }, { "image" }):map { operations = transform }:create_tuple_iterator()()
    check.equal(x.dtype, "uint8")
    check.equal(x.shape[3], 3)
  end
  check.fails_here("magnitude: expected a number below num_magnitude_bins = 5, got 9", function()
    values(ds.NumpySlicesDataset({ image }, { "image" })
      :map { operations = vision.RandAugment { num_magnitude_bins = 5 } })
  end)
end)

for _, path in ipairs(written) do os.remove(path) end
check.done()
