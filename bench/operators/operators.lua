-- Operators called at once, with their gradients, and some operators and predictions alone, on one thread: mslua run
-- operators.lua -- SECONDS. Prints a line for each: its name and the least processor time of a call in microseconds.
-- operators.py has the same cases.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local seconds = tonumber((...)) or 1

local function indices(rows, columns, below)
  local list = {}
  for i = 1, rows do
    list[i] = {}
    for j = 1, columns do list[i][j] = (i * 7919 + j * 104729) % below end
  end
  return ms.Tensor(list, ms.int32)
end

local function group_norm(shape, groups)
  local c = shape[2]
  return { shape, { c }, { c } }, function(x, scale, bias) return ops.group_norm(x, scale, bias, groups) end
end

local cases = {
  { "group_norm [16,64,32,32], 8 groups", group_norm({ 16, 64, 32, 32 }, 8) },
  { "group_norm [64,48,16,16], 8 groups", group_norm({ 64, 48, 16, 16 }, 8) },
  { "instance_norm [16,64,32,32]", group_norm({ 16, 64, 32, 32 }, 64) },
  { "layer_norm [2048,512]", { { 2048, 512 }, { 512 }, { 512 } },
    function(x, scale, bias) return (ops.layer_norm(x, scale, bias)) end },
  { "dropout [1024,1024]", { { 1024, 1024 } }, nn.Dropout { p = 0.1 } },
  { "roll [8,56,56,96] by 3, 3", { { 8, 56, 56, 96 } }, function(x) return ops.roll(x, { 3, 3 }, { 2, 3 }) end },
  { "gather_d [1024,1024], 256 of a row", { { 1024, 1024 } },
    function(x, index) return ops.gather_d(x, index, 2) end, indices(1024, 256, 1024) },
  { "gather_d [1024,1024], 256 of a column", { { 1024, 1024 } },
    function(x, index) return ops.gather_d(x, index, 1) end, indices(256, 1024, 1024) },
  { "top_k [1024,1024], 8 of a row", { { 1024, 1024 } }, function(x) return (ops.top_k(x, 8)) end },
  { "top_k [1024,1024], 256 of a row", { { 1024, 1024 } }, function(x) return (ops.top_k(x, 256)) end },
  { "sort [1024,1024]", { { 1024, 1024 } }, function(x) return (ops.sort(x)) end },
  { "matmul [4096,64] by [64,1]", { { 4096, 64 }, { 64, 1 } }, ops.matmul },
  { "matmul [8192,1024] by [1024,1]", { { 8192, 1024 }, { 1024, 1 } }, ops.matmul },
  { "x^3 [1024,1024]", { { 1024, 1024 } }, function(x) return x ^ 3 end },
  { "cumsum [1024,1024], along rows", { { 1024, 1024 } }, function(x) return ops.cumsum(x) end },
  { "avg_pool2d [16,64,32,32] by 2, 2", { { 16, 64, 32, 32 } }, nn.AvgPool2d { kernel_size = 2, stride = 2 } },
  { "adaptive_max_pool2d [8,64,28,28] to 1", { { 8, 64, 28, 28 } }, nn.AdaptiveMaxPool2d(1) },
  { "layer_norm [64,8192]", { { 64, 8192 }, { 8192 }, { 8192 } },
    function(x, scale, bias) return (ops.layer_norm(x, scale, bias)) end },
  { "adaptive_avg_pool2d [16,64,32,32] to 1", { { 16, 64, 32, 32 } }, nn.AdaptiveAvgPool2d(1) },
  { "upsample [8,32,32,32] by 2, 2, nearest", { { 8, 32, 32, 32 } }, nn.Upsample(2) },
  { "upsample [8,32,32,32] by 2, 2, bilinear", { { 8, 32, 32, 32 } }, nn.Upsample(2, "bilinear") },
}

-- Calls without gradients: what makes the function that is timed.
local function of(f, dtype, ...)
  local shapes = { ... }
  return function()
    local inputs = {}
    for i, shape in ipairs(shapes) do inputs[i] = ops.cast(ms.randn(shape) * 100, dtype) end
    return function() return f(unpack(inputs)) end
  end
end

local function add(x, y) return x + y end
local function mul(x, y) return x * y end

local function block(i, o)
  return nn.SequentialCell { nn.Conv2d(i, o, 3), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2) }
end

local calls = {
  { "matmul [256,256], float64", of(ops.matmul, "float64", { 256, 256 }, { 256, 256 }) },
  { "x * y [1024,1024], float64", of(mul, "float64", { 1024, 1024 }, { 1024, 1024 }) },
  { "sum along rows [1024,1024], float64", of(function(x) return x:sum(2) end, "float64", { 1024, 1024 }) },
  { "conv2d [8,64,32,32] by 64 of 3x3, float64", of(function(x, w) return ops.conv2d(x, w, { pad_mode = "same" }) end,
    "float64", { 8, 64, 32, 32 }, { 64, 64, 3, 3 }) },
  { "x + y [1024,1024], int32", of(add, "int32", { 1024, 1024 }, { 1024, 1024 }) },
  { "max along rows [1024,1024], int32", of(function(x) return ops.reduce_max(x, 2) end, "int32", { 1024, 1024 }) },
  { "max along rows [100000,3]", of(function(x) return ops.reduce_max(x, 2) end, "float32", { 100000, 3 }) },
  { "int32 to float32 [1024,1024]", of(function(x) return ops.cast(x, "float32") end, "int32", { 1024, 1024 }) },
  { "float32 to float16 [1024,1024]", of(function(x) return ops.cast(x, "float16") end, "float32", { 1024, 1024 }) },
  { "transpose [16,128,784]", of(function(x) return ops.transpose(x, { 1, 3, 2 }) end, "float32", { 16, 128, 784 }) },
  { "transpose [1024,1024]", of(function(x) return ops.transpose(x, { 2, 1 }) end, "float32", { 1024, 1024 }) },
  { "leaky_relu [1024,1024]", of(function(x) return ops.leaky_relu(x, 0.01) end, "float32", { 1024, 1024 }) },
  { "lerp [1024,1024]", of(function(x, y) return ops.lerp(x, y, 0.3) end, "float32", { 1024, 1024 }, { 1024, 1024 }) },
  { "zeros [1024,1024]", function() return function() return ms.zeros { 1024, 1024 } end end },
  { "tensor of a list of 1,000,000 numbers", function()
    local list = {}
    for i = 1, 1000000 do list[i] = i * 0.37 end
    return function() return ms.Tensor(list) end
  end },
  { "predict, 3 convolutions, batch 32", function()
    local model = ms.Model(nn.SequentialCell { block(3, 32), block(32, 64), block(64, 64), nn.Flatten(),
      nn.Dense(1024, 10) })
    local x = ms.randn { 32, 3, 32, 32 }
    return function() return model:predict(x) end
  end },
}

-- Prints the least time of a call, of those in some seconds.
local function measure(name, call)
  local least, stop = math.huge, os.clock() + seconds
  repeat
    local begun = os.clock()
    call()
    least = math.min(least, os.clock() - begun)
  until os.clock() > stop
  print(("%s\t%.0f"):format(name, least * 1e6))
end

ms.set_seed(1)
for _, case in ipairs(cases) do
  local name, shapes, f, index = unpack(case)
  local inputs, positions = {}, {}
  for i, shape in ipairs(shapes) do
    inputs[i], positions[i] = ms.randn(shape), i
  end
  if type(f) == "table" then f:set_train(true) end
  local all = { unpack(inputs) }
  all[#all + 1] = index
  local weight = ms.randn(f(unpack(all)).shape)
  local both = ms.value_and_grad(function(...) return (f(...) * weight):sum() end, positions)
  both(unpack(all))  -- compiles it
  measure(name, function() both(unpack(all)) end)
end
for _, case in ipairs(calls) do
  local call = case[2]()
  call()  -- compiles it
  measure(case[1] .. ", without gradients", call)
end
