-- No function, cell or class of the library drops an argument in silence.
local check = require "check"
local ms = require "mslua"
local core = require "mslua.core"
local nn, ops = ms.nn, ms.ops

-- A function of Lua without `...` drops what it has no parameter for.
local function fixed(f)
  local info = debug.getinfo(f, "u")
  return info.what ~= "C" and not info.isvararg
end

local exempt = { ["ms.ops.Operator.__call"] = true }

check.case("every function that users call looks at all of its arguments", function()
  local found, seen = {}, {}
  local function visit(path, t)
    if seen[t] then return end
    seen[t] = true
    for key, v in pairs(t) do
      local name = path .. "." .. tostring(key)
      if type(v) == "function" and fixed(v) and not exempt[name] then found[#found + 1] = name end
      if type(v) == "table" and not rawget(v, "class_name") then visit(name, v) end
    end
  end
  visit("ms", ms)
  table.sort(found)
  check.equal(found, {})
end)

local x, y = ms.ones { 2, 4 }, ms.zeros { 2, 4 }

check.case("ready cells", function()
  local images, ids = ms.ones { 2, 3, 8, 8 }, ms.Tensor({ 1, 0 }, ms.int32)
  local cells = {
    { nn.Dense(4, 2), x }, { nn.Embedding(4, 2), ids }, { nn.Dropout { p = 0.5 }, x }, { nn.Flatten(), images },
    { nn.Conv2d(3, 4, 3), images }, { nn.Conv2dTranspose(3, 4, 3), images },
    { nn.MultiheadAttention(4, 2), ms.ones { 2, 3, 4 }, ms.ones { 2, 3, 4 }, ms.ones { 2, 3, 4 }, {} },
    { nn.BatchNorm2d(3), images }, { nn.BatchNorm1d(4), x }, { nn.GroupNorm(1, 3), images }, { nn.LayerNorm { 4 }, x },
    { nn.RMSNorm { 4 }, x }, { nn.MaxPool2d { kernel_size = 2, stride = 2 }, images },
    { nn.AvgPool2d { kernel_size = 2, stride = 2 }, images }, { nn.AdaptiveAvgPool2d(1), images },
    { nn.SequentialCell { nn.Dense(4, 2) }, x }, { nn.ReLU(), x }, { nn.ReLU6(), x }, { nn.LeakyReLU(), x },
    { nn.ELU(), x }, { nn.GELU(), x }, { nn.SiLU(), x }, { nn.Sigmoid(), x }, { nn.Tanh(), x }, { nn.Softmax(), x },
    { nn.LogSoftmax(), x }, { nn.Identity(), x }, { nn.ClipByNorm(), x, 1 }, { nn.MSELoss(), x, y },
    { nn.L1Loss(), x, y }, { nn.SmoothL1Loss(), x, y }, { nn.BCELoss(), y, y }, { nn.BCEWithLogitsLoss(), x, y },
    { nn.SoftmaxCrossEntropyWithLogits { sparse = true }, x, ids }, { nn.CrossEntropyLoss(), x, ids },
    { nn.WithLossCell(nn.Dense(4, 4), nn.MSELoss()), x, y },
  }
  for _, entry in ipairs(cells) do
    local cell, n = entry[1], #entry
    local _ = cell(unpack(entry, 2, n))
    entry[n + 1] = y
    local name = cell.class_name
    if name == "WithLossCell" then name = "Dense" end  -- which gets all columns but the last
    check.fails_here(name .. ": takes ", function() local _ = cell(unpack(entry, 2, n + 1)) end)
    entry[n + 1] = nil
    if name == cell.class_name then local _ = cell(unpack(entry, 2, n + 1)) end  -- nil is no argument
  end
end)

check.case("attention says what to do instead", function()
  local attention, q = nn.MultiheadAttention(4, 2), ms.ones { 2, 3, 4 }
  check.fails_here("MultiheadAttention: expected a table with attn_mask or key_padding_mask, got float32[2, 3, 4]",
    function() local _ = attention(q, q, q, q) end)
end)

check.case("cells of users, and constructors", function()
  local Net = nn.Cell:extend "Net"
  function Net:init(width) self.fc = nn.Dense(4, width) end
  function Net:construct(data) return self.fc(data) end
  check.fails_here("Net: takes 1 argument (width), got 2", function() Net(3, 4) end)
  check.fails_here("Net: takes 1 argument (data), got 2", function() local _ = Net(3)(x, y) end)
  check.fails_here("ReLU: takes no arguments, got 1", function() nn.ReLU(true) end)
  local Any = nn.Cell:extend "Any"
  function Any:init(...) self.n = select("#", ...) end
  function Any:construct(...) return (...) end
  local _ = Any(1, 2, 3)(x, y, x)
end)

check.case("functions of a class without a parameter for self", function()
  local Net = nn.Cell:extend "Net"
  Net.init = function() end
  Net.construct = function() return x end
  check.equal(Net()(), x)
  check.fails_here("Net: takes no arguments, got 1", function() Net(3) end)
  check.fails_here("Net: takes no arguments, got 1", function() local _ = Net()(x) end)
end)

check.case("a network that takes fewer columns than the dataset has", function()
  local ds = ms.dataset.NumpySlicesDataset({ x, x, y }, { "a", "b", "label" }):batch(2)
  local model = ms.Model(nn.Dense(4, 4), { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
  check.fails("Dense: takes 1 argument (x), got 2", function() model:train { 1, ds } end)
  check.fails("Dense: takes 1 argument (x), got 2", function() model:eval(ds) end)
end)

-- Calls that are right, each with one argument more.
local calls = {
  zeros = { { 2 }, "float32" }, ones = { { 2 }, "float32" }, full = { { 2 }, 1, "float32" }, eye = { 2, 2, "float32" },
  rand = { { 2 }, "float32", "a" }, randn = { { 2 }, "float32", "a" }, set_seed = { 1 },
  Tensor = { { 1, 2 }, "float32", { 2 } },
  get_context = { "mode" }, get_auto_parallel_context = { "device_num" }, get_ps_context = { "enable_ssl" },
  reset_auto_parallel_context = {}, reset_ps_context = {}, initializer = { "zeros", { 2 }, "float32" },
  LossMonitor = { 1 }, TimeMonitor = { 1 }, params = { {} },
}

check.case("functions of ms", function()
  for name, arguments in pairs(calls) do
    local n = table.maxn(arguments)
    local _ = ms[name](unpack(arguments, 1, n))
    arguments[n + 1] = 5
    check.fails_here("takes ", function() local _ = ms[name](unpack(arguments, 1, n + 1)) end)
  end
end)

check.case("operators and the functions beside them", function()
  for _, name in ipairs { "square", "shape", "stop_gradient", "relu", "exp" } do
    check.fails_here("takes ", function() local _ = ops[name](x, y) end)
  end
  check.fails_here("takes ", function() local _ = ops.scalar_to_array(1, 2) end)
  check.fails("MatMul", function() local _ = ops.MatMul()(x, x, y) end)
  check.fails("takes ", function() local _ = ops.matmul(x, ms.ones { 4, 2 }, false, false, 3) end)
  check.fails_here("ReduceSum: takes at most 1 argument (keep_dims)", function() ops.ReduceSum(true, 3) end)
  check.fails_here("shard: takes 2 arguments", function()
    ops.MatMul():shard({ { 1, 1 }, { 1, 1 } }, { { 1, 1 } }, 3)
  end)
end)

check.case("methods", function()
  for _, call in ipairs {
    { "sum", 1, false, 7 }, { "mean", 1, false, 7 }, { "astype", "float32", 7 }, { "totable", 7 },
    { "reshape", { 4, 2 }, 7 }, { "transpose", { 2, 1 }, 7 }, { "argmax", 1, "int32", 8 }, { "exp", 7 },
  } do
    check.fails_here("takes ", function() local _ = x[call[1]](x, unpack(call, 2)) end)
  end
  check.fails_here("item: takes no arguments, got 1", function() local _ = ms.ones({ 1 }):item(3) end)
  local net = nn.Dense(4, 2)
  for method, n in pairs { get_parameters = 1, trainable_params = 0, parameters_dict = 0, name_cells = 0, set_train = 1,
    set_comm_fusion = 1, recompute = 1 } do
    local arguments = {}
    for i = 1, n + 1 do arguments[i] = i end
    check.fails_here(method .. ": takes ", function() net[method](net, unpack(arguments)) end)
  end
  local ds = ms.dataset.NumpySlicesDataset(x)
  for _, call in ipairs { { "batch", 2, true, 2, 7 }, { "shuffle", 2, 7 }, { "take", 2, 7 }, { "skip", 1, 7 },
    { "repeat_", 1, 7 }, { "get_dataset_size", 7 }, { "get_batch_size", 7 }, { "create_tuple_iterator", 1, 7 } } do
    check.fails_here(call[1] .. ": takes ", function() local _ = ds[call[1]](ds, unpack(call, 2)) end)
  end
end)

check.case("integers of parameters and cells", function()
  local p = ms.Parameter(ms.initializer("zeros", { 1 }), "p")
  check.fails_here("comm_fusion: expected an integer, at least 0, got -1", function() p.comm_fusion = -1 end)
  check.fails_here("comm_fusion: expected an integer, at least 0, got -1", function()
    ms.Parameter(ms.initializer("zeros", { 1 }), { comm_fusion = -1 })
  end)
  check.fails_here("comm_fusion", function() core.parameter { name = "q", shape = { 1 }, comm_fusion = -1 } end)
  check.fails_here("comm_fusion", function() p.comm_fusion = 1.5 end)
  check.fails_here("expected an integer, at least 0", function() nn.Dense(2, 2):set_comm_fusion(-1) end)
  check.fails_here("pipeline_stage: expected a stage", function() nn.Dense(2, 2).pipeline_stage = -1 end)
  check.fails_here("at least 0", function() ops.MatMul():add_prim_attr("fusion", -1) end)
  check.equal(p.comm_fusion, 1)
end)

check.case("== and < of tensors", function()
  local p = ms.Parameter(ms.initializer("zeros", { 1 }), "p")
  for _, pair in ipairs { { x, y }, { x, p }, { p, x } } do
    check.fails_here("use ops.equal(x, y)", function() return pair[1] == pair[2] end)
    check.fails_here("use ops.equal(x, y)", function() return pair[1] ~= pair[2] end)
  end
  assert(p == p and p ~= ms.Parameter(ms.initializer("zeros", { 1 }), "p") and x == x)
  assert(x ~= nil and x ~= 1)
  check.fails_here("< gives one boolean in Lua, and f32[2,4] has 8 elements: use ops.less(x, y)",
    function() return x < y end)
  check.fails_here("use ops.less_equal(x, y)", function() return y >= x end)
  local f = ms.value_and_grad(function(t) return t == y and t:sum() or t:mean() end)
  check.fails("use ops.equal(x, y)", function() f(x) end)
  local ok, problem = pcall(function() return x > 0 end)
  assert(not ok and tostring(problem):find "attempt to compare")
end)

check.case("steps by hand are counted", function()
  local set = ms.dataset.NumpySlicesDataset({ ms.ones { 2, 1 }, ms.ones { 2, 1 } }):batch(2)
  local net = nn.Dense(1, 1)
  local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD(net:trainable_params()) })
  local m = require "mslua.by_hand"(model, set)
  for _, n in ipairs { "x", 0, -1, 1.5 } do
    local ok, problem = pcall(m.step, m, n)
    assert(not ok and problem:find("step: expected an integer, at least 1, got", 1, true), problem)
  end
  m:step(2)
  check.equal(m.steps, 2)
end)

check.done()
