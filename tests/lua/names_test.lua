-- Every exported name can be written in Lua, and every name that MindSpore users know at another home says where it is.
local check = require "check"
local ms = require "mslua"

local keywords = {}
local list = [[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]
for word in list:gmatch "%a+" do keywords[word] = true end

local function refuse_keywords(path, t, seen)
  if seen[t] then return end
  seen[t] = true
  for name, v in pairs(t) do
    if type(name) == "string" then
      if keywords[name] or not name:match "^[%a_][%w_]*$" then
        error(path .. "." .. name .. " cannot be written in Lua")
      end
      if type(v) == "table" then refuse_keywords(path .. "." .. name, v, seen) end
    end
  end
end

check.case("no exported name is a keyword", function() refuse_keywords("ms", ms, {}) end)

check.case("an attribute whose name is a keyword is written with an underscore", function()
  local x = ms.arange(5)
  local wanted = ms.ops.strided_slice(x, { 2 }, { 4 }, { 1 }):totable()
  check.equal(ms.ops.strided_slice(x, { begin = { 2 }, end_ = { 4 }, strides = { 1 } }):totable(), wanted)
  check.equal(ms.ops.strided_slice(x, { begin = { 2 }, ["end"] = { 4 } }):totable(), wanted)
  check.fails_here("attribute 'end' is given twice, as 'end_' too", function()
    return (ms.ops.strided_slice(x, { begin = { 2 }, ["end"] = { 4 }, end_ = { 3 } }))
  end)
  check.equal(ms.ops.StridedSlice { begin = { 2 }, end_ = { 4 }, strides = { 1 } }(x):totable(), wanted)
end)

check.case("bounds of a slice count from 1, the end is not taken", function()
  local x, ops = ms.arange(12):reshape(3, 4), ms.ops
  check.equal(ops.strided_slice(x, { 1, 2 }, { 3, 5 }, { 1, 2 }):totable(), { { 1, 3 }, { 5, 7 } })
  check.equal(ops.strided_slice(x, { -1, -2 }, { 4, -1 }):totable(), { { 10 } })
  check.equal(tostring(ops.StridedSlice { begin = { 2 }, end_ = { 3 } }), "StridedSlice(begin = {2}, end = {3})")
  check.fails("subscripts count from 1", function() return (ops.strided_slice(x, { 0 }, { 2 })) end)
  check.equal((ops.strided_slice(x, { 3 }, { 3 })).shape, { 0, 4 })
end)

check.case("a number that an integer type does not have", function()
  local u8 = ms.Tensor({ 3, 200 }, ms.uint8)
  check.fails("the number -1 is not in uint8, which holds 0 to 255: cast the tensor first",
    function() return (ms.ops.greater(u8, -1)) end)
  check.fails("the number 300 is not in uint8", function() return (ms.ops.less(u8, 300)) end)
  check.fails("Tensor: the number 300 is not in uint8", function() return (ms.Tensor({ 1, 300 }, ms.uint8)) end)
  check.fails("is not in int32", function() return (ms.full({ 2 }, 3e9, ms.int32)) end)
  check.fails("is not in int64", function() return (ms.Tensor({ 0 / 0 }, ms.int64)) end)
  check.equal(ms.Tensor({ -2 ^ 31, 2 ^ 31 - 1, 1.5 }, ms.int32):totable(), { -2 ^ 31, 2 ^ 31 - 1, 1 })
  check.equal((ms.Tensor({ 250 }, ms.uint8) + 10):totable(), { 4 })
end)

check.case("a method called with a dot", function()
  local net, ds, model = ms.nn.Dense(2, 2), ms.dataset.NumpySlicesDataset(ms.ones { 2 }), ms.Model(ms.nn.Dense(2, 2))
  for call, f in pairs {
    ["trainable_params: expected a Cell before the colon, got nil: net:trainable_params()"] = net.trainable_params,
    ["set_train: expected a Cell before the colon"] = net.set_train,
    ["parameter: expected a Cell before the colon"] = net.parameter,
    ["batch: expected a dataset before the colon"] = ds.batch,
    ["get_dataset_size: expected a dataset before the colon"] = ds.get_dataset_size,
    ["take: expected a dataset before the colon"] = ds.take,
    ["train: expected a Model before the colon, got nil: model:train(epoch, dataset)"] = model.train,
    ["eval: expected a Model before the colon"] = model.eval,
    ["shard: expected an operator before the colon"] = ms.ops.MatMul().shard,
  } do
    check.fails(call, f)
  end
end)

check.case("a field that a tensor does not have", function()
  check.fails("a tensor has no field or method 'summ' (did you mean 'sum'?)", function() ms.ones { 2 }:summ() end)
  check.fails("no field or method 'asnumpy': x:totable()", function() ms.ones { 2 }:asnumpy() end)
  check.fails("no field or method 'T': x:transpose(2, 1)", function() return ms.ones { 2, 2 }.T end)
  local x = ms.ones { 2, 3 }
  check.equal({ x:transpose(2, 1).shape, x:reshape(-1).shape }, { { 3, 2 }, { 6 } })
  check.fails("there is no ms.nn.ModuleList: ms.nn.CellList", function() return ms.nn.ModuleList end)
  check.fails("there is no ms.no_grad: gradients are computed where", function() return ms.no_grad end)
  check.fails('there is no ms.amp: amp = "bf16" or "f16" of ms.Model', function() return ms.amp end)
  check.fails("Model: unknown key 'amp_level' (did you mean 'amp'?)", function()
    ms.Model(ms.nn.Dense(2, 2), { amp_level = "O2" })
  end)
  check.fails("there is no ms.ops.interpolate: ms.nn.Upsample", function() return ms.ops.interpolate end)
  check.fails("there is no ms.ops.unsqueeze: ms.ops.expand_dims(x, axis)", function() return ms.ops.unsqueeze end)
  local a, b = ms.Tensor { { -5, 3 }, { 4, 6 } }, ms.Tensor { { 3, 2 }, { 3, 4 } }
  check.equal(ms.ops.floor_mod(a, b):totable(), { { 1, 1 }, { 1, 2 } })  -- what is said of ms.ops.mod
  local signs = ms.ops.cast(ms.ops.greater(a, 0), ms.int32)
  check.equal({ ms.ops.reduce_max(signs):item(), ms.ops.reduce_min(signs):item() }, { 1, 0 })  -- of any and all
end)

check.case("the keyword test can fail", function()
  check.fails("x.end cannot be written", refuse_keywords, "x", { ["end"] = 1 }, {})
end)

-- The library as docs promise it.
local promised = {
  ms = [[
    Tensor Parameter initializer float16 bfloat16 float32 float64 int32 int64 uint8 bool zeros ones full eye arange
    rand randn set_seed GRAPH_MODE PYNATIVE_MODE ParallelMode set_context get_context set_auto_parallel_context
    get_auto_parallel_context reset_auto_parallel_context set_ps_context get_ps_context reset_ps_context Model
    Callback LossMonitor TimeMonitor ModelCheckpoint CheckpointConfig EvalCallback EarlyStopping ReduceLROnPlateau
    save_checkpoint load_checkpoint load_param_into_net grad value_and_grad params recipe DynamicLossScaleManager
    FixedLossScaleManager]],
  nn = [[
    Cell SequentialCell CellList Dense Conv2d BatchNorm2d GroupNorm LayerNorm RMSNorm Embedding Dropout MaxPool2d
    AvgPool2d AdaptiveAvgPool2d Flatten ReLU GELU SiLU Sigmoid Tanh Softmax LogSoftmax MultiheadAttention MSELoss
    SoftmaxCrossEntropyWithLogits CrossEntropyLoss SGD Momentum Adam AdamWeightDecay Lamb cosine_decay_lr
    polynomial_decay_lr warmup_lr piecewise_constant_lr ClipByNorm WithLossCell TrainOneStepCell PipelineCell]],
  ops = [[
    MatMul Add Sub Mul Div RealDiv Exp Log Sqrt Rsqrt Pow Neg Abs Maximum Minimum Equal NotEqual Greater
    GreaterEqual Less LessEqual Select Cast ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd Argmax Argmin OneHot
    ReLU GeLU SiLU Sigmoid Tanh Softmax LogSoftmax Reshape Transpose Concat Split StridedSlice Pad Stack Gather
    Conv2D MaxPool AvgPool BatchNorm GroupNorm LayerNorm Dropout AllReduce AllGather
    ReduceScatter Broadcast AlltoAll Send Receive ReduceOp shape scalar_to_array stop_gradient]],
  dataset = [[
    Cifar10Dataset Cifar100Dataset MnistDataset ImageFolderDataset TextDataset GeneratorDataset NumpySlicesDataset]],
  communication = [[
    init get_rank get_group_size get_local_rank get_local_size get_world_rank_from_group_rank
    get_group_rank_from_world_rank create_group destroy_group]],
}

for home, names in pairs(promised) do
  check.case("names of " .. home, function()
    local missing, t = {}, home == "ms" and ms or ms[home]
    for name in names:gmatch "%S+" do
      if rawget(t, name) == nil then missing[#missing + 1] = name end
    end
    if #missing > 0 then error("missing: " .. table.concat(missing, " ")) end
  end)
end

check.case("a name at a wrong home says the right one", function()
  check.fails_here("ms.set_context", function() return ms.context.set_context end)
  check.fails_here("ms.communication.init", function() return ms.init end)
  check.fails_here("its names are in ms.dataset.vision itself", function() return ms.dataset.vision.c_transforms end)
  check.fails_here("its names are in ms.dataset.transforms itself",
    function() return ms.dataset.transforms.c_transforms end)
  check.fails_here("ms.nn.Dense", function() return ms.nn.Linear end)
  check.fails_here("ms.ops.reduce_mean(x, axis), or x:mean(axis)", function() return ms.ops.mean end)
  check.fails_here("did you mean 'Momentum'?", function() return ms.nn.Momentun end)
  check.fails_here("did you mean 'MatMul'?", function() return ms.ops.Matmull end)
  for _, other in ipairs { "gamma", "svd", "inverse" } do
    local problem = check.fails("there is no ms.ops." .. other, function() return ms.ops[other] end)
    check.equal(problem:find "did you mean", nil)
  end
end)

check.case("core_api.lua declares the functions of the C module", function()
  local core, declared = require "mslua.core", {}
  local file = assert(io.open(arg[2]))
  for line in file:lines() do
    local name = line:match "^function core%.([%w_]+)%("
    if name then declared[name] = true end
  end
  file:close()
  local undeclared, absent = {}, {}
  for name, v in pairs(core) do
    if type(v) == "function" and not declared[name] then undeclared[#undeclared + 1] = name end
  end
  for name in pairs(declared) do
    if type(core[name]) ~= "function" then absent[#absent + 1] = name end
  end
  check.equal({ table.concat(undeclared, " "), table.concat(absent, " ") }, { "", "" })
end)

check.case("an unknown attribute of an operator lists those that it has", function()
  check.fails_here("unknown attribute 'num_groups'; attributes: groups, eps", function()
    ms.ops.group_norm(ms.ones { 2, 4, 3, 3 }, ms.ones { 4 }, ms.zeros { 4 }, { num_groups = 2 })
  end)
end)

check.done()
