-- Transforms of images and the columns they are in.
local check = require "check"
local ms = require "mslua"
local ds, vision, transforms = ms.dataset, ms.dataset.vision, ms.dataset.transforms

-- One row of pixels as a dataset of one image [1, n, 1].
local function row(values, dtype)
  return ds.NumpySlicesDataset({ ms.Tensor(values, dtype or ms.uint8):reshape { 1, 1, #values, 1 } }, { "image" })
end

local function first(dataset, column)
  for a, b in dataset:create_tuple_iterator() do return column == 2 and b or a end
end

local function values(dataset)
  local list = {}
  local x = first(dataset)
  x = x:reshape { x.size }
  for i = 1, x.size do list[i] = x[i] end
  return list, x.dtype
end

check.case("a cast inside a chain of images counts", function()
  local cast, rescale = transforms.TypeCast, vision.Rescale
  check.equal(values(row { 0, 7, 255 }:map { operations = { cast(ms.bool), cast(ms.float32) } }), { 0, 1, 1 })
  check.equal(values(row { 0, 7, 255 }:map { operations = { rescale(1 / 64, 0), cast(ms.int32), rescale(64, 0) } }),
    { 0, 0, 192 })
  check.equal(values(row { 0, 7, 255 }:map { operations = cast(ms.bool) }:map { operations = cast(ms.float32) }),
    { 0, 1, 1 })
  check.equal(values(row({ 0, 7, 255 }, ms.int32):map { operations = { vision.RandomHorizontalFlip(0),
    rescale(1 / 64, 0), cast(ms.int32), rescale(64, 0) } }), { 0, 0, 192 })
  check.equal(values(row { 0, 255 }:map { operations = { rescale(1 / 255, 2048.5), cast(ms.float16),
    cast(ms.float32) } }), { 2048, 2050 })
end)

check.case("what a type cannot hold is an error in images too", function()
  local cast, flip = transforms.TypeCast, vision.RandomHorizontalFlip(0)
  check.fails("NaN, expected a number for int32", values, row({ 0 / 0 }, ms.float32):map {
    operations = { flip, cast(ms.int32) } })
  check.fails("300, expected 0 to 255 of uint8", values, row({ 300 }, ms.int32):map {
    operations = { flip, cast(ms.uint8) } })
  check.fails("in float32, which does not have all whole numbers", values, row({ 3e9 }, ms.float32):map {
    operations = { flip, cast(ms.float64), cast(ms.int64) } })
  check.fails("16777217 in an image, and images are computed in float32", values,
    row({ 16777217, -1 }, ms.int32):map { operations = flip })
  check.fails("has no numbers that large", values, row({ 1e300 }, ms.float64):map { operations = flip })
  local _, dtype = values(row({ 0.5 }, ms.float64):map { operations = flip })
  check.equal(dtype, "float32")
end)

check.case("the means of planes are those of their channels", function()
  local x = ms.arange(3 * 5 * 6):astype(ms.float32):reshape { 1, 3, 5, 6 }
  local planes = ds.NumpySlicesDataset({ x }, { "image" })
    :map { operations = vision.Normalize({ 0, 30, 60 }, { 1, 2, 4 }) }
  local y = first(planes)
  check.equal(y.shape, { 3, 5, 6 })
  check.equal({ y[1][2][3], y[2][2][3], y[3][2][3] }, { 8, 4, 2 })
end)

check.case("nil in a list of operations is an error", function()
  local wanted = false
  local function chain(...) return row { 1, 2 }:map { operations = { ... } } end
  check.fails("got {Rescale, nil, HWC2CHW}", chain, vision.Rescale(1, 0), wanted and vision.Rescale(1, 0) or nil,
    vision.HWC2CHW())
  check.fails("mean: expected a list of numbers, got {8, nil, 8}", vision.Normalize, { 8, nil, 8 }, { 1, nil, 1 })
  check.fails("got {8, nil, 8, 3}", vision.Pad, { 8, nil, 8, 3 })
  check.equal(#values(chain(vision.Rescale(1, 0), nil)), 2)
  check.fails("SequentialCell: item 2: expected a Cell, got nil", ms.nn.SequentialCell, ms.nn.ReLU(), nil, ms.nn.ReLU())
  check.fails("got {2, nil, 2}", ms.nn.LayerNorm, { 2, nil, 2 })
  check.fails("Tensor: element 2 of the list is nil", ms.Tensor, { 1, nil, 3 })
  check.fails("Tensor: element 2 of the list is nil", ms.Tensor, { { 1, 2 }, nil, { 3, 4 } })
  check.fails("Tensor: element 1 of the list is nil", ms.Tensor, { nil, 3 })
  check.fails("metrics: item 2: expected a name, got nil", ms.Model, ms.nn.Dense(2, 2),
    { loss_fn = ms.nn.MSELoss(), metrics = { "loss", nil, "accuracy" } })
end)

check.case("RandAugment is for images of uint8", function()
  check.fails("RandAugment: expected an image of uint8, got float32; fix: put it before Rescale", values,
    row { 1, 2 }:map { operations = { transforms.TypeCast(ms.float32), vision.RandAugment() } })
end)

check.case("RandomErasing erases a share of the area", function()
  check.fails("RandomErasing: scale: expected a share of the area of at most 1, got 3", values,
    row { 1, 2 }:map { operations = vision.RandomErasing { scale = { 2, 3 } } })
end)

check.case("columns that are transformed one by one have random numbers of their own", function()
  local n = 16
  local x = ms.arange(n * 36):astype(ms.float32):reshape { n, 6, 6, 1 }
  local images = ds.NumpySlicesDataset({ x }, { "image" })
  local both = images:project({ "image", "image" }, { "image", "other" })
    :map { operations = vision.RandomCrop(3), input_columns = "image", output_columns = "view1" }
    :rename("other", "image")
    :map { operations = vision.RandomCrop(3), input_columns = "image", output_columns = "view2" }
  local same = 0
  for a, b in both:create_tuple_iterator() do
    if (a - b):abs():sum():item() == 0 then same = same + 1 end
  end
  check.equal(same < n / 2, true)
end)

check.case("set_seed counts for a dataset that was opened before", function()
  local function order(opened)
    ms.set_seed(1)
    local shuffled = ds.NumpySlicesDataset({ ms.arange(16) }, { "x" }, { shuffle = true })
    if opened then shuffled:get_dataset_size() end
    ms.set_seed(7)
    local list = {}
    for a in shuffled:create_tuple_iterator() do list[#list + 1] = a:item() end
    return list
  end
  check.equal(order(true), order(false))
end)

check.case("skip leaves out none as well", function()
  check.equal(ds.NumpySlicesDataset({ 1, 2, 3 }):skip(0):get_dataset_size(), 3)
end)

check.done()
