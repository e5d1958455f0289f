-- Cells: registration, names, scopes, printing, and what is refused.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local Inner = nn.Cell:extend "Inner"
function Inner:init() self.w = self:parameter("w", { 2, 3 }, "ones") end
function Inner:construct(x) return ops.matmul(x, self.w) end

local Net = nn.Cell:extend "Net"
function Net:init()
  self.second = Inner()
  self.weight = ms.Parameter(ms.initializer("zeros", { 3 }), "own")
  self.frozen = ms.Parameter(ms.initializer("zeros", { 3 }), { requires_grad = false })
  self.list = nn.CellList { Inner(), Inner() }
  self.tied = self.second.w
end
function Net:construct(x) return self.second(x) + self.weight end

local function names(list)
  local found = {}
  for i, p in ipairs(list) do found[i] = p.name end
  return found
end

check.case("names are paths, in order of registration; a tied parameter counts once", function()
  local net = Net()
  check.equal(names(net:get_parameters()), { "own", "frozen", "second.w", "list.0.w", "list.1.w" })
  check.equal(names(net:trainable_params()), { "own", "second.w", "list.0.w", "list.1.w" })
  check.equal(names(net:get_parameters(function(p) return #p.shape == 2 end)), { "second.w", "list.0.w", "list.1.w" })
  check.equal(net.list[2].w.name, "list.1.w")
end)

check.case("a call computes", function()
  check.equal(Net()(ms.ones { 1, 2 }):totable(), { { 2, 2, 2 } })
end)

check.case("reassignment replaces, nil removes", function()
  local net = Net()
  net.second = Inner()
  net.tied = nil
  net.list = nil
  check.equal(names(net:get_parameters()), { "own", "frozen", "second.w" })
end)

check.case("a list of cells is a list", function()
  local list = nn.CellList { Inner(), Inner() }
  local first, last = list[1], Inner()
  list[#list + 1] = last
  local seen = {}
  for i, cell in ipairs(list) do seen[i] = cell end
  check.equal({ #list, #seen, seen[1] == first, seen[3] == last, list[4] == nil }, { 3, 3, true, true, true })
  list[1] = nn.ReLU()
  check.equal(names(list:get_parameters()), { "1.w", "2.w" })
  check.fails_here("the list has 3 items, the next is 4", function() list[6] = Inner() end)
  check.fails_here("expected a Cell, got 5", function() list[4] = 5 end)
  list[2] = 5
  check.fails_here("item 2: expected a Cell, got 5", function() local _ = list:parameters_dict() end)
  local Own = nn.SequentialCell:extend "Own"
  function Own:init() self:append(Inner()) end
  check.equal(#Own(), 1)
end)

check.case("two parameters of one name", function()
  local Twice = nn.Cell:extend "Twice"
  function Twice:init()
    self.a = ms.Parameter(ms.initializer("zeros", { 1 }), "same")
    self.b = ms.Parameter(ms.initializer("zeros", { 1 }), "same")
  end
  check.fails_here("two parameters have the name 'same'", function() Twice():get_parameters() end)
end)

check.case("print is a tree", function()
  check.equal(tostring(nn.SequentialCell { nn.Dense(2, 3, { has_bias = false }), nn.ReLU() }),
    "SequentialCell\n  0: Dense(2 -> 3, no bias)\n    weight: float32 {3, 2}\n  1: ReLU\n6 parameters")
end)

check.case("a class where its instance is expected", function()
  check.fails_here("SequentialCell: item 1: expected a Cell, got the class Inner; Inner(...) makes an instance of it",
    function() nn.SequentialCell(Inner) end)
  check.fails_here("Model: network: expected a Cell, got the class Net; Net(...) makes an instance of it",
    function() ms.Model(Net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 1 } }) end)
  check.fails_here("Model: optimizer: expected an optimizer such as nn.Momentum {...}, got the class SGD",
    function() ms.Model(Net(), { loss_fn = nn.MSELoss(), optimizer = nn.SGD }) end)
end)

check.case("what is refused", function()
  local net = Net()
  check.fails_here("use nn.CellList", function() net.cells = { Inner() } end)
  check.fails_here("the first argument is a Cell: call cells with a dot, self.second(x)",
    function() net.second(net, 1) end)
  check.fails_here("call operators with a dot, self.matmul(x), not self:matmul(x)", function() ops.MatMul()(net, 1) end)
  check.fails_here("Dense: the first argument is the module ms.nn: call with a dot, nn.Dense(...), not nn:Dense(...)",
    function() nn:Dense(2, 3) end)
  check.fails_here("ReLU: the first argument is the module ms.nn", function() nn:ReLU() end)
  check.fails_here("MatMul: the first argument is the module ms.ops", function() ops:MatMul() end)
  check.fails_here("ReLU: the first operand is the module ms.ops: call with a dot, ops.relu(x), not ops:relu(x)",
    function() ops:relu(ms.ones { 2 }) end)
  check.fails_here("Concat: the first operand is the module ms.ops", function() ops:concat({ ms.ones { 2 } }, 1) end)
  check.fails_here('extend: expected a class before the colon, got "Net": nn.Cell:extend "Net"',
    function() nn.Cell.extend "Net" end)
  check.fails_here('extend: expected a name, got nil: nn.Cell:extend "Net"', function() nn.Cell:extend() end)
  check.fails_here("Empty has no construct", function() nn.Cell:extend "Empty"()(1) end)
  check.fails_here("expected a stage, an integer from 0", function() net.pipeline_stage = -1 end)
  check.fails_here("expected an integer, at least 0, got -1", function() net:set_comm_fusion(-1) end)
  check.fails_here("the cell has no single operator", function() net:shard { { 1 } } end)
  check.fails_here("did you mean 'normal'?", function() ms.initializer("norml", { 1 }) end)
  check.fails_here("Dense: in_channels is missing", function() nn.Dense() end)
  check.fails_here("Dense: unknown key 'bias'", function() nn.Dense(2, 3, { bias = false }) end)
  check.fails_here("Dense: takes at most 6 arguments", function() nn.Dense(1, 2, "ones", "ones", true, nil, 3) end)
  check.fails_here("given twice", function() nn.Dense(1, { out_channels = 2, in_channels = 1 }) end)
end)

check.case("flags reach every parameter below", function()
  local net = Net():set_comm_fusion(2)
  for _, p in ipairs(net:get_parameters()) do check.equal(p.comm_fusion, 2) end
  net.weight.layerwise_parallel = true
  check.equal(net.weight.layerwise_parallel, true)
  check.equal(net:recompute(), net)
end)

check.case("a recomputed cell trains as it would without", function()
  local Block = nn.Cell:extend "Block"
  function Block:init()
    self.up, self.norm, self.drop = nn.Dense(6, 12), nn.BatchNorm1d(12), nn.Dropout { p = 0.5 }
    self.down, self.attention = nn.Dense(12, 6), nn.MultiheadAttention(6, 2)
  end
  function Block:construct(x)
    local h = ops.reshape(x + self.attention(x, x, x), { -1, 6 })
    return ops.reshape(self.down(self.drop(ops.gelu(self.norm(self.up(h))))), x.shape)
  end
  local x = ms.rand({ 8, 3, 6 }, "float32", "recomputed")
  local data = ms.dataset.NumpySlicesDataset({ x, x * 2 }, { "x", "y" }):batch(4)
  local function trained(recomputed)
    ms.set_seed(5)
    local net = nn.SequentialCell { Block(), Block() }
    if recomputed then
      for _, block in ipairs { net[1], net[2] } do block:recompute() end
    end
    ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = 0.1, momentum = 0.9 } })
      :train(3, data)
    local values = {}
    for i, p in ipairs(net:get_parameters()) do values[i] = p:totable() end
    return values
  end
  check.near(trained(true), trained(false), 1e-5)
end)

check.case("strategies", function()
  check.equal(tostring(ops.MatMul():shard { { 2, 4 }, { 4, 1 } }.attrs._in_strategy), "((2,4),(4,1))")
  check.equal(ops.ReLU():shard({ { 2, 4 } }, { { 8, 1 } }).attrs._out_strategy, "((8,1))")
  check.equal(nn.Dense(2, 2):shard { { 2, 1 }, { 1, 1 } }.op.attrs._in_strategy, "((2,1),(1,1))")
  check.fails_here("expected a list with the numbers of shards of each tensor", function() ops.MatMul():shard(3) end)
  check.fails_here("tensor 2: expected a list of integers", function() ops.MatMul():shard { { 2 }, 4 } end)
  check.fails_here("at least 1", function() ops.MatMul():shard { { 0, 1 } } end)
  check.fails_here("fusion: expected an integer, at least 0", function() ops.ReLU():add_prim_attr("fusion", -1) end)
  check.equal(ops.Mul():add_prim_attr("cross_batch", true).attrs._cross_batch, true)
  check.fails_here("expected cross_batch or fusion, got \"cros_batch\" (did you mean 'cross_batch'?)", function()
    ops.Mul():add_prim_attr("cros_batch", true)
  end)
end)

------------------------------------------------------------------------------------------- lists, and what is in tables

local function paths(cell)
  local found = {}
  for i, p in ipairs(cell:get_parameters()) do found[i] = p.name .. "/" .. p.shape[1] end
  return found
end

-- Dense cells of one input and 1, 2, ... outputs.
local function row(n)
  local cells = {}
  for i = 1, n do cells[i] = nn.Dense(1, i, { has_bias = false }) end
  return nn.SequentialCell(cells)
end

check.case("Lua's functions of tables work on lists of cells", function()
  local list = row(3)
  list:get_parameters()
  list[1], list[3] = list[3], list[1]
  check.equal(paths(list), { "0.weight/3", "1.weight/2", "2.weight/1" })
  table.insert(list, 2, nn.Dense(1, 7))
  check.equal(paths(list), { "0.weight/3", "1.weight/7", "1.bias/7", "2.weight/2", "3.weight/1" })
  table.insert(list, nn.Dense(1, 9, { has_bias = false }))
  check.equal(paths(list)[6], "4.weight/9")
  check.equal(table.remove(list).weight.shape, { 9, 1 })
  table.remove(list, 1)
  check.equal(paths(list), { "0.weight/7", "0.bias/7", "1.weight/2", "2.weight/1" })
  table.sort(list, function(a, b) return a.weight.shape[1] < b.weight.shape[1] end)
  check.equal(paths(list), { "0.weight/1", "1.weight/2", "2.weight/7", "2.bias/7" })
  list[3] = nil
  check.equal(paths(list), { "0.weight/1", "1.weight/2" })
  check.equal(tostring(list), "SequentialCell\n  0: Dense(1 -> 1, no bias)\n    weight: float32 {1, 1}\n"
    .. "  1: Dense(1 -> 2, no bias)\n    weight: float32 {2, 1}\n3 parameters")
  local seen = {}
  for name, cell in list:name_cells() do seen[#seen + 1] = name .. "/" .. cell.out_channels end
  check.equal(seen, { "0/1", "1/2" })
  list["1"] = nn.Dense(1, 5)
  check.equal(paths(list), { "0.weight/1", "1.weight/5", "1.bias/5" })
  list[1] = nil
  check.fails_here("SequentialCell: item 1: expected a Cell, got nil: table.remove(list, 1) leaves no gap",
    function() list(ms.ones { 1, 1 }) end)
end)

check.case("an item that is put in place trains as its list does, and has the names of its place", function()
  local Blocks = nn.Cell:extend "Blocks"
  function Blocks:init() self.blocks = nn.CellList { nn.ReLU(), nn.CellList { nn.ReLU() } } end
  function Blocks:construct(x)
    x = self.blocks[1](x)
    for _, block in ipairs(self.blocks[2]) do x = block(x) end
    return x
  end
  local net, x = Blocks():set_train(), ms.ones { 1000 }
  local function zeros() return ms.ops.reduce_sum(ops.cast(ops.equal(net(x), 0), "int32")):item() end
  check.equal(zeros(), 0)
  net.blocks[1] = nn.Dropout(0.5)
  check.equal(zeros() > 0, true)
  net.blocks[1] = nn.ReLU()
  check.equal(zeros(), 0)
  net.blocks[2][1] = nn.Dropout(0.5)
  check.equal(zeros() > 0, true)
  table.insert(net.blocks[2], 1, nn.Dense(1000, 1000))
  check.equal(paths(net), { "blocks.1.0.weight/1000", "blocks.1.0.bias/1000" })
  net:set_train(false)
end)

check.case("a list that changes between two trainings", function()
  local net = nn.SequentialCell { nn.Dense(2, 2) }
  local data = ms.dataset.NumpySlicesDataset({ ms.ones { 2, 2 }, ms.zeros { 2, 2 } }, { "x", "y" }):batch(2)
  local model = ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
  model:train(1, data)
  table.insert(net, 1, nn.Dense(2, 2))
  local before = net[1].weight.value:totable()
  model:train(1, data)
  check.equal(names(net:get_parameters()), { "0.weight", "0.bias", "1.weight", "1.bias" })
  assert(net[1].weight.value:totable()[1][1] ~= before[1][1])
end)

check.case("cells in plain tables", function()
  local net = Net()
  local text = "the cells of a plain table would not be found"
  check.fails_here("Net.heads: " .. text, function() net.heads = { cls = nn.Dense(2, 1) } end)
  check.fails_here("Net.heads: " .. text, function() net.heads = { 1, nn.Dense(2, 1) } end)
  local path = (os.getenv "TEST_TMPDIR" or os.tmpname() .. ".d") .. "/late.safetensors"
  net.late = {}
  net.late[1], net.late[2] = nn.ReLU(), net.second
  ms.save_checkpoint(net, path)
  net.late.head = nn.Dense(2, 2)
  check.fails_here("save_checkpoint: Net.late is a plain table, in which the parameters of a Dense are not found",
    function() ms.save_checkpoint(net, path) end)
end)

check.case("arguments of another kind", function()
  local net = Net()
  check.fails_here('set_train: expected true or false, got "false"', function() net:set_train "false" end)
  check.fails_here("set_train: expected true or false, got 0", function() net:set_train(0) end)
  check.fails_here('recompute: expected true or false, got "no"', function() net:recompute "no" end)
  check.fails_here("get_parameters: expected a function of a parameter, got true",
    function() net:get_parameters(true) end)
end)

check.case("what is no tensor", function()
  local images = ms.ones { 1, 2, 4, 4 }
  for _, cell in ipairs {
    nn.Dense(2, 2), nn.Conv1d(2, 2, 2), nn.Conv2d(2, 2, 2), nn.Conv3d(2, 2, 2), nn.Conv2dTranspose(2, 2, 2),
    nn.MaxPool1d(2), nn.AvgPool3d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.GLU(), nn.EmbeddingBag(4, 2),
    nn.BatchNorm1d(2), nn.BatchNorm3d(2), nn.InstanceNorm2d(2), nn.LayerNorm(2), nn.ClipByNorm(), nn.LogSigmoid(),
    nn.MultiheadAttention(2, 1), nn.Softmax(), nn.Dropout(0.5), nn.TransformerEncoderLayer(2, 1),
  } do
    local text = cell.class_name .. ": expected a tensor, got "
    check.fails_here(text .. "nil", function() cell() end)
    check.fails_here(text .. "{1, 2}", function() cell { 1, 2 } end)
    check.fails_here(text .. "3", function() cell(3) end)
  end
  local Own = nn.Dense:extend "Own"
  function Own:construct(pair) return Own.super.construct(self, pair[1]) end
  check.equal(Own(2, 3)({ ms.ones { 1, 2 } }).shape, { 1, 3 })
  check.fails_here("LSTM: x: expected [t, n, 2], got nil", function() nn.LSTM(2, 2)() end)
  check.fails_here("MultiheadAttention: query: expected [n, s, 2], got {}",
    function() nn.MultiheadAttention(2, 1)(ms.Tensor(1)) end)
  check.fails_here("MultiheadAttention: key: expected a tensor, got 3",
    function() nn.MultiheadAttention(2, 1)(ms.ones { 1, 2, 2 }, 3) end)
  check.equal(nn.Identity()(images), images)
end)

check.done()
