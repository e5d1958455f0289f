-- Lists as datasets, and datasets made of datasets: project, rename, filter, zip, split, functions of Lua in map.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local vision = ms.dataset.vision

local n = 12
local function numbers() return ms.dataset.NumpySlicesDataset({ ms.arange(n), ms.arange(n) * 10 }, { "x", "y" }) end

-- The values of all columns of a dataset of scalars, sample by sample.
local function all(ds)
  local list = {}
  for a, b, c in ds:create_tuple_iterator() do
    list[#list + 1] = { a:item(), b and b:item() or nil, c and c:item() or nil }
  end
  return list
end

local function firsts(ds)
  local list = {}
  for i, row in ipairs(all(ds)) do list[i] = row[1] end
  return list
end

local function names(ds)
  local list = {}
  for i, column in ipairs(ds:open():schema()) do list[i] = column.name end
  return list
end

check.case("a list of numbers or booleans is one column", function()
  check.equal(firsts(ms.dataset.NumpySlicesDataset { 3, 4 }), { 3, 4 })
  check.equal(firsts(ms.dataset.NumpySlicesDataset { true, false }), { true, false })
end)

check.case("columns have names of their own", function()
  check.fails_here("column_names: two columns have the name 'x'", function()
    ms.dataset.NumpySlicesDataset({ { 1, 2 }, { 3, 4 } }, { "x", "x" }):get_dataset_size()
  end)
  check.fails_here("column_names: two columns have the name 'x'", function()
    ms.dataset.GeneratorDataset(function(i) return i, i end, { "x", "x" }, { length = 2 }):get_dataset_size()
  end)
end)

check.case("a column that is not wanted may have any shapes", function()
  local ds = ms.dataset.GeneratorDataset(function(i) return ms.ones { i % 3 + 1 }, ms.ones { 4 } * i end, { "s", "x" },
    { length = 6 })
  local sizes = {}
  for x in ds:padded_batch(4, { pad_info = { s = { { 3 }, 0 } } }):project("x"):create_tuple_iterator() do
    sizes[#sizes + 1] = x.shape
  end
  check.equal(sizes, { { 4, 4 }, { 2, 4 } })
end)

check.case("an iterator gives no sample by its number", function()
  local function source()
    return ms.dataset.GeneratorDataset(function()
      local i = 0
      return function()
        i = i + 1
        return i < 4 and ms.Tensor { i } or nil
      end
    end, { "x" })
  end
  check.equal(source():batch(3):create_tuple_iterator()().shape, { 3, 1 })
  for what, make in pairs {
    cache = function() return source():cache() end,
    zip = function() return source():zip(numbers()) end,
    concat = function() return source():concat(source()) end,
  } do
    check.fails(what .. ": the source is an iterator", function() return make():batch(1):create_tuple_iterator()() end)
  end
end)

check.case("a second loop over an iterator does not move the first one", function()
  local ds = ms.dataset.GeneratorDataset(function()
    local i = 0
    return function()
      i = i + 1
      return i <= 50 and ms.Tensor { i } or nil
    end
  end, { "x" }):batch(1)
  check.equal(#all(ds), 50)
  local first = ds:create_tuple_iterator()
  first()
  ds:create_tuple_iterator()()
  check.fails("its iterator was started again, by another loop over the same dataset", function()
    for _ in first do end
  end)
  check.equal(#all(ds), 50)
end)

check.case("project and rename", function()
  local ds = numbers():project { "y", "x" }
  check.equal(names(ds), { "y", "x" })
  check.equal(all(ds)[2], { 10, 1 })
  check.equal(all(numbers():project "y")[3], { 20 })
  ds = numbers():project({ "x", "x" }, { "image", "target" })
  check.equal(names(ds), { "image", "target" })
  check.equal(all(ds)[4], { 3, 3 })
  check.equal(names(numbers():rename("x", "data")), { "data", "y" })
  check.equal(names(numbers():rename({ "x", "y" }, { "y", "x" })), { "y", "x" })
  ds = numbers():rename("x", "data"):map { operations = { vision.Rescale(2, 1) }, input_columns = "data" }
  check.equal(all(ds)[3], { 5, 20 })
  check.fails_here("project: no column 'z'; there are x, y", function() numbers():project("z"):get_dataset_size() end)
  ds = numbers():rename("x", "y")
  check.fails_here("rename: two columns have the name 'y'", function() ds:get_dataset_size() end)
end)

check.case("a copy of a column has the same random transforms as the column", function()
  local images = ms.rand({ 6, 4, 4, 1 })
  local ds = ms.dataset.NumpySlicesDataset({ images }, { "image" })
    :map { operations = { vision.RandomHorizontalFlip() } }
    :project({ "image", "image" }, { "image", "target" }):batch(6)
  local a, b = ds:create_tuple_iterator()()
  check.equal(a:totable(), b:totable())
  assert(a:reshape(96):totable() ~= images:reshape(96):totable())
end)

check.case("filter", function()
  local even = numbers():filter(function(x) return x:item() % 2 == 0 end, "x")
  check.equal(firsts(even), { 0, 2, 4, 6, 8, 10 })
  check.equal(firsts(even:filter(function(_, y) return y:item() > 50 end)), { 6, 8, 10 })
  check.equal(even:batch(4):get_dataset_size(), 2)
  check.equal(firsts(numbers():take(5):filter(function(x) return x > ms.Tensor(1) end, "x")), { 2, 3, 4 })
  local shuffled = firsts(numbers():shuffle(n):filter(function(x) return x:item() % 2 == 0 end, "x"))
  table.sort(shuffled)
  check.equal(shuffled, { 0, 2, 4, 6, 8, 10 })
  check.equal(#firsts(even:repeat_(3)), 18)
  check.fails_here("filter: the function keeps none of the 12 samples", function()
    numbers():filter(function() return false end):get_dataset_size()
  end)
  check.fails_here("should give true or false, got nil", function()
    numbers():filter(function() end):get_dataset_size()
  end)
  check.fails_here("call filter before batch", function()
    numbers():batch(2):filter(function() return true end):get_dataset_size()
  end)
  check.fails_here("would differ from epoch to epoch", function()
    numbers():shuffle(n):take(5):filter(function() return true end):get_dataset_size()
  end)
end)

check.case("the function of a filter is asked once for each sample", function()
  local asked = 0
  local ds = numbers():filter(function()
    asked = asked + 1
    return true
  end)
  local _ = firsts(ds), firsts(ds:shuffle(4)), ds:batch(2):get_dataset_size()
  check.equal(asked, n)
end)

check.case("a function in map", function()
  local ds = numbers():map(function(x) return x * 2 + 1 end)
  check.equal(all(ds)[3], { 5, 20 })
  ds = numbers():map { operations = function(x, y) return y, x end, input_columns = { "x", "y" } }
  check.equal(all(ds)[3], { 20, 2 })
  ds = numbers():map { operations = function(x) return x, x + 1 end, input_columns = "x",
    output_columns = { "x", "next" } }
  check.equal(names(ds), { "x", "next", "y" })
  check.equal(all(ds)[3], { 2, 3, 20 })
  ds = numbers():map { operations = function(x, y) return x + y end, input_columns = { "x", "y" },
    output_columns = "sum" }
  check.equal(names(ds), { "sum" })
  ds = numbers():map { operations = { vision.Rescale(2, 0), function(x) return x + 1 end, vision.Rescale(10, 0) } }
  check.equal(all(ds)[3], { 50, 20 })
  check.equal(all(numbers():map(function(x) return { x:item(), 7 } end):map(function(v) return v[2] end))[3], { 7, 20 })
  check.fails_here("map: the function should give 1 value, one for each of x, got 2", function()
    firsts(numbers():map(function(x) return x, x end))
  end)
  check.fails_here("the function draws random numbers", function()
    firsts(numbers():map(function(x) return x:astype(ms.float32) + ms.randn { 1 } end))
  end)
  check.fails_here("the function draws random numbers", function()
    firsts(numbers():map(function(x) return x + math.random(3) end))
  end)
  check.fails_here("a random transform comes before it: call map with the function before map with the", function()
    ms.dataset.NumpySlicesDataset({ ms.rand { 6, 4, 4, 1 } }):map { operations = { vision.RandomHorizontalFlip(),
      function(x) return x end } }:get_dataset_size()
  end)
  check.fails_here("call map before batch", function()
    numbers():batch(2):map(function(x) return x end):get_dataset_size()
  end)
  local problem = check.fails(": map: sample 2 is (f32[2], ", function()
    firsts(numbers():map(function(x) return ms.ones { x:item() + 1 } end))
  end)
  check.equal(problem:find "dataset/derive", nil)
end)

check.case("columns that are changed together have one size", function()
  local data = ms.dataset
  local function arrays(size)
    return data.NumpySlicesDataset({ ms.ones { 4, 8, 8, 3 }, ms.ones { 4, size, size, 1 } }, { "image", "mask" })
  end
  local function made(size)
    return data.GeneratorDataset(function(i) return ms.ones { 8, 8, 3 }, ms.ones { i < 3 and 8 or size, 8, 1 } end,
      { "image", "mask" }, { length = 4 })
  end
  local function read(ds, ...)
    local sizes = { image = { { 8, 8, 3 }, 0 }, mask = { { 8, 8, 1 }, 0 } }
    ds = ds:map { operations = { ... }, input_columns = { "image", "mask" } }:padded_batch(2, { pad_info = sizes })
    for _ in ds:create_tuple_iterator() do end
  end
  local crops = { vision.RandomCrop { 4, 4 }, vision.CenterCrop { 4, 4 }, vision.RandomResizedCrop { 4, 4 } }
  for _, crop in ipairs(crops) do
    read(arrays(8), crop)
    read(made(8), crop)
    read(arrays(6), vision.Resize { 8, 8 }, crop)
    read(made(6), vision.Resize { 8, 8 }, crop)
    check.fails("changes columns at the same places, and 'image' is 8 x 8, 'mask' is 6 x 6 pixels", read, arrays(6),
      crop)
    check.fails("'image' is 8 x 8, 'mask' is 6 x 8 pixels: map a Resize onto them", read, made(6), crop)
  end
  read(arrays(6), vision.RandomHorizontalFlip(), vision.Resize { 4, 4 })
end)

check.case("a folder's cache knows the text of functions", function()
  local folder = os.tmpname()
  os.remove(folder)
  -- Both functions agree on the samples that are made again when the folder is opened.
  local function cached(body, lines)
    local path = os.tmpname()
    local out = assert(io.open(path, "w"))
    out:write(lines or "", "return function(x)\n  local v = x:item()\n  return ", body, "\nend\n")
    out:close()
    local f = assert(loadfile(path))()
    local all_of = firsts(numbers():map(f):cache(folder))
    os.remove(path)
    return all_of
  end
  local first = cached "v == 3 and 7 or 0"
  check.equal(first[4], 7)
  check.fails("was made of other data, or with other transforms", cached, "v == 3 and 8 or 0")
  check.equal(cached("v == 3 and 7 or 0", "-- The same function in another line.\n"), first)
  os.execute("rm -r " .. folder)
end)

check.case("a function in map leaves order, ranks and batches as they are", function()
  local core = require "mslua.core"
  local function twice(ds) return ds:map(function(x) return x * 2 end) end
  local function order(make)
    local list = {}
    for i, v in ipairs(firsts(make(numbers()))) do list[i] = v end
    return list
  end
  local plain = order(function(ds) return ds:shuffle(5):repeat_(2) end)
  for i, v in ipairs(plain) do plain[i] = 2 * v end
  check.equal(order(function(ds) return twice(ds:shuffle(5):repeat_(2)) end), plain)
  check.equal(order(function(ds) return twice(ds):shuffle(5):repeat_(2) end), plain)
  -- Of two ranks each has its part of every batch.
  local seen = {}
  for rank = 0, 1 do
    core.set_feed(2, rank)
    for x in twice(numbers()):filter(function(v) return v:item() ~= 6 end, "x"):batch(2):create_tuple_iterator() do
      for _, v in ipairs(x:totable()) do seen[#seen + 1] = v end
    end
  end
  core.set_feed(1, 0)
  table.sort(seen)
  check.equal(seen, { 0, 2, 4, 8, 10, 12, 14, 16, 18, 20, 22 })
end)

check.case("zip", function()
  local other = ms.dataset.NumpySlicesDataset({ ms.arange(5) + 100 }, { "z" })
  local ds = numbers():zip(other)
  check.equal(names(ds), { "x", "y", "z" })
  check.equal(all(ds)[5], { 4, 40, 104 })
  check.equal(#all(ds), 5)
  check.equal(#all(numbers():skip(9):zip(other)), 3)
  check.equal(all(numbers():skip(9):zip(other))[1], { 9, 90, 100 })
  check.equal(ds:shuffle(5):batch(2):get_dataset_size(), 3)
  check.fails_here("zip: two datasets have a column 'x'", function() numbers():zip(numbers()):get_dataset_size() end)
  check.fails_here("zip: a part is shuffled: call shuffle on the result (dataset 2)", function()
    numbers():zip(other:shuffle(3)):get_dataset_size()
  end)
  check.fails_here("zip: expected a dataset, got 3", function() numbers():zip(3) end)
end)

check.case("fractions that add up to almost 1 lose no sample", function()
  local ds = ms.dataset.NumpySlicesDataset({ ms.zeros { 3000003 } }, { "x" })
  local sum = 0
  for _, part in ipairs { ds:split({ 0.3333331, 0.3333331, 0.3333333 }, { randomize = false }) } do
    sum = sum + part:get_dataset_size()
  end
  check.equal(sum, 3000003)
end)

check.case("arguments that map has no use for", function()
  check.fails_here("map: arguments: they are for an operation that is a file",
    function() numbers():map { operations = function(x) return x end, arguments = { size = 3 } } end)
  check.fails_here("map: input_columns: expected names of columns, got an empty list",
    function() numbers():map { operations = function(x) return x end, input_columns = {} } end)
end)

check.case("split", function()
  local a, b = numbers():split { 0.75, 0.25 }
  local one, two, both = firsts(a), firsts(b), {}
  check.equal({ #one, #two }, { 9, 3 })
  for _, part in ipairs { one, two } do
    for _, v in ipairs(part) do both[#both + 1] = v end
  end
  table.sort(both)
  check.equal(both, firsts(numbers()))
  check.equal(firsts(a), one)
  assert(one[9] ~= 8 or two[1] ~= 9, "the parts are not drawn")
  -- Of one draw, though the seed changes before the second part is used.
  local seed = require("mslua.core").seed()
  ms.set_seed(5)
  local first, second = numbers():split { 0.5, 0.5 }
  both = firsts(first)
  ms.set_seed(9)
  for _, v in ipairs(firsts(second)) do both[#both + 1] = v end
  ms.set_seed(seed)
  table.sort(both)
  check.equal(both, firsts(numbers()))
  local c, d, e = numbers():split({ 2, 4, 6 }, { randomize = false })
  check.equal({ firsts(c), firsts(d), firsts(e) }, { { 0, 1 }, { 2, 3, 4, 5 }, { 6, 7, 8, 9, 10, 11 } })
  local f = numbers():filter(function(x) return x:item() > 5 end, "x"):split({ 0.5, 0.5 }, false)
  check.equal(firsts(f), { 6, 7, 8 })
  check.fails_here("numbers of samples that add up to 12, got {2, 4}",
    function() local part = numbers():split { 2, 4 } part:get_dataset_size() end)
  check.fails_here("fractions that add up to 1", function() (numbers():split { 0.5, 0.4 }):get_dataset_size() end)
  check.fails_here("split: call it before shuffle", function()
    (numbers():shuffle(3):split { 0.5, 0.5 }):get_dataset_size()
  end)
  for argument, method in pairs { num_samples = "take", shuffle = "shuffle" } do
    local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 6, 1 } }, { "x" }, { [argument] = argument == "shuffle" or 4 })
    check.fails_here(("split: the dataset has %s: leave it out, and call %s on the parts"):format(argument, method),
      function() (ds:split { 0.5, 0.5 }):get_dataset_size() end)
  end
end)

check.case("a network that gives its own loss is evaluated", function()
  local Auto = nn.Cell:extend "Auto"
  function Auto:init() self.w = self:parameter("w", { 1 }, "ones") end
  function Auto:construct(image) return ops.reduce_mean(ops.square(image * self.w * 0.5 - image)) end
  local images = ms.dataset.NumpySlicesDataset({ ms.ones { 6, 2 } * 2 }, { "image" })
  local model = ms.Model(Auto(), { optimizer = nn.SGD { learning_rate = 0.1 } })
  check.near(model:eval(images:batch(3)).loss, 1, 1e-6)
  check.fails_here("give the network a method rows(...) of the columns, the loss of each row",
    function() model:eval(images:batch(4)) end)
  function Auto:rows(image) return ops.reduce_mean(ops.square(image * self.w * 0.5 - image), 2) end
  check.near(model:eval(images:batch(4)).loss, 1, 1e-6)
  model:train(1, images:batch(3), { callbacks = { ms.EvalCallback(images:batch(3)), ms.EarlyStopping() } })
end)

check.case("metrics beside the loss that a network gives", function()
  local Auto = nn.Cell:extend "Auto"
  function Auto:init() self.w = self:parameter("w", { 1 }, "ones") end
  function Auto:construct(x, y) return nn.MSELoss()(self.w * x, y) end
  function Auto:predict(x) return self.w * x end
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 1 } * 3, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
  local function eval(metrics)
    return ms.Model(Auto(), { optimizer = nn.SGD { learning_rate = 0.1 }, metrics = metrics }):eval(ds)
  end
  local computed = { compute = function(net) return net.w.value:item() * 7 end }
  check.equal(eval { sevenfold = computed }, { loss = 4, sevenfold = 7 })
  check.equal(eval { "loss" }, { loss = 4 })
  check.equal(eval { "loss", sevenfold = computed }, { loss = 4, sevenfold = 7 })
  check.near(eval({ "perplexity" }).perplexity, math.exp(4), 1e-4)
  local model = ms.Model(nn.Dense(1, 1), { metrics = { "loss", "mae" }, optimizer = nn.SGD { learning_rate = 0.1 } })
  check.fails("no loss is given", model.eval, model, ds)
  local steps = { { name = "a", loss = function(net, x, y) return nn.MSELoss()(net(x), y) end,
    optimizer = nn.SGD { learning_rate = 0.1 } } }
  check.equal(ms.Model(nn.Dense(1, 1), { steps = steps, metrics = { one = { compute = function() return 1 end } } })
    :eval(ds), { one = 1 })
end)

check.case("a network that gives its own loss predicts by its method", function()
  local Auto = nn.Cell:extend "Auto"
  function Auto:init() self.w = self:parameter("w", { 1 }, "ones") end
  function Auto:construct(image) return ops.reduce_mean(ops.square(self:predict(image) - image)) end
  local model = ms.Model(Auto(), { optimizer = nn.SGD { learning_rate = 0.1 } })
  local part = { columns = { { name = "image", dtype = ms.float32, shape = { 3, 2 } } }, inputs = 1 }
  check.fails("or what its method predict(x) gives", function() model:predict_graph(part) end)
  function Auto:predict(image) return image * self.w * 0.5 end
  check.equal(model:predict_graph(part):run(ms.ones { 3, 2 }):totable(), { { 0.5, 0.5 }, { 0.5, 0.5 }, { 0.5, 0.5 } })
end)

check.done()
