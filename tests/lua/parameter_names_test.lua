-- A parameter's name is its path from the trained root, whichever cell was asked first, and a checkpoint holds the
-- parameters of the Model that saves it.
local check = require "check"
local ms = require "mslua"
local nn = ms.nn

local folder = os.getenv "TEST_TMPDIR" or os.tmpname() .. ".d"

local Net = nn.Cell:extend "Net"
function Net:init()
  self.body = nn.SequentialCell { nn.Dense(4, 3), nn.ReLU() }
  self.head = nn.Dense(3, 2)
end
function Net:construct(x) return self.head(self.body(x)) end

local PLAIN = { "body.0.weight", "body.0.bias", "head.weight", "head.bias" }

local function names(cell)
  local found = {}
  for i, p in ipairs(cell:get_parameters()) do found[i] = p.name end
  return found
end

local function rows(width)
  return ms.dataset.NumpySlicesDataset({ ms.rand { 8, 4 }, ms.rand { 8, width or 2 } }, { "x", "y" }):batch(4)
end

-- Trains for a step with checkpoints in `name`; gives the checkpoint, by name.
local function train(net, name, optimizer, width)
  local place = folder .. "/" .. name
  optimizer = optimizer or nn.Momentum { learning_rate = 0.1, momentum = 0.9 }
  local save = ms.ModelCheckpoint {
    prefix = "net", directory = place, config = ms.CheckpointConfig { save_checkpoint_steps = 2 },
  }
  ms.Model(net, { loss_fn = nn.MSELoss(), optimizer = optimizer }):train { 1, rows(width), callbacks = save }
  return ms.load_checkpoint(place)
end

local function keys(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = key end
  table.sort(list)
  return list
end

local ALL = { "body.0.bias", "body.0.weight", "head.bias", "head.weight", "moments.body.0.bias",
  "moments.body.0.weight", "moments.head.bias", "moments.head.weight" }

-- What people do with a part of a network before the whole is trained.
local looks = {
  nothing = function() end,
  get_parameters = function(net) net.body:get_parameters() end,
  trainable_params = function(net) net.body:trainable_params() end,
  parameters_dict = function(net) net.body:parameters_dict() end,
  ["a call"] = function(net) net.body(ms.ones { 1, 4 }) end,
  ["a call of an item"] = function(net) net.body[1](ms.ones { 1, 4 }) end,
  ["a value"] = function(net) return net.body[1].weight.value end,
  printing = function(net) return tostring(net.body) end,
  ["a wrapper that is thrown away"] = function(net) names(nn.SequentialCell { net.body }) end,
  ["a loss cell"] = function(net) names(nn.WithLossCell(net, nn.MSELoss())) end,
  saving = function(net) ms.save_checkpoint(net.body, folder .. "/body.safetensors") end,
}

for what, look in pairs(looks) do
  check.case("names after " .. what, function()
    local net = Net()
    look(net)
    ms.Model(net, { loss_fn = nn.MSELoss() })
    check.equal(names(net), PLAIN)
    check.equal(net.body[1].weight.name, "body.0.weight")
  end)
  check.case("a checkpoint after " .. what, function()
    local net = Net()
    look(net)
    check.equal(keys(train(net, "after_" .. what:gsub("%W", "_"))), ALL)
  end)
end

check.case("the part first, then the whole", function()
  local body = nn.SequentialCell { nn.Dense(4, 3), nn.ReLU() }
  body:get_parameters()
  body(ms.ones { 1, 4 })
  local net = Net()
  net.body = body
  check.equal(keys(train(net, "assembled")), ALL)
end)

check.case("a frozen backbone, by its parameters' list", function()
  local net = Net()
  for _, p in ipairs(net.body:get_parameters()) do p.requires_grad = false end
  local saved = train(net, "frozen", nn.Momentum { net:trainable_params(), learning_rate = 0.1, momentum = 0.9 })
  check.equal(keys(saved), { "body.0.bias", "body.0.weight", "head.bias", "head.weight", "moments.head.bias",
    "moments.head.weight" })
end)

check.case("groups of an optimizer choose by names from the root", function()
  local net = Net()
  net.body:get_parameters()
  train(net, "groups", nn.Momentum {
    { { params = "^body", weight_decay = 0.1 }, { params = "^head" } }, learning_rate = 0.1, momentum = 0.9 })
end)

check.case("the network of a wrapper keeps its names", function()
  for _, look in ipairs { function() end, function(net) net:trainable_params() end } do
    local net = Net()
    look(net)
    local step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()),
      nn.Momentum { learning_rate = 0.1, momentum = 0.9 })
    step(ms.ones { 2, 4 }, ms.ones { 2, 2 })
    check.equal(names(net), PLAIN)
    check.equal(names(step), PLAIN)
  end
end)

check.case("two networks in one model", function()
  local Gan = nn.Cell:extend "Gan"
  function Gan:init(g, d) self.g, self.d = g, d end
  function Gan:construct(x) return self.d(self.g(x)) end
  local g, d = nn.SequentialCell { nn.Dense(4, 3) }, nn.SequentialCell { nn.Dense(3, 2) }
  check.equal({ #g:trainable_params(), #d:trainable_params() }, { 2, 2 })
  local saved = train(Gan(g, d), "gan")
  check.equal(keys(saved), { "d.0.bias", "d.0.weight", "g.0.bias", "g.0.weight", "moments.d.0.bias",
    "moments.d.0.weight", "moments.g.0.bias", "moments.g.0.weight" })
  -- Each by itself again: the root that is trained names.
  check.equal(keys(train(g, "g", nn.SGD { learning_rate = 0.1 }, 3)), { "0.bias", "0.weight" })
end)

check.case("a tied parameter has one name", function()
  local Tied = nn.Cell:extend "Tied"
  function Tied:init()
    self.a = nn.Dense(4, 4)
    self.b = nn.Dense(4, 4)
    self.b.weight = self.a.weight
  end
  function Tied:construct(x) return self.b(self.a(x)) end
  local net = Tied()
  net.b:get_parameters()
  ms.Model(net, { loss_fn = nn.MSELoss() })
  check.equal(names(net), { "a.weight", "a.bias", "b.bias" })
end)

check.case("a name that the user gave", function()
  local net = Net()
  net.head.weight.name = "classifier"
  net:get_parameters()
  check.equal(names(net), { "body.0.weight", "body.0.bias", "classifier", "head.bias" })
  net.body[1].bias.name = "b"
  check.equal(names(net), { "body.0.weight", "b", "classifier", "head.bias" })
end)

check.case("a second network of the script has a checkpoint of its own", function()
  local first, second = Net(), Net()
  train(first, "first")
  local saved = train(second, "second")
  check.equal(keys(saved), ALL)
  check.equal(saved["head.weight"]:totable(), second.head.weight.value:totable())
  assert(saved["head.weight"]:totable()[1][1] ~= first.head.weight.value:totable()[1][1])
end)

check.case("two Models that take turns", function()
  local first, second = Net(), Net()
  train(first, "turn_1")
  train(second, "turn_2")
  local again = train(first, "turn_3")
  check.equal(keys(again), ALL)
  check.equal(again["head.weight"]:totable(), first.head.weight.value:totable())
end)

check.case("a Model again over the same network", function()
  local net = Net()
  train(net, "adam", nn.Adam { learning_rate = 0.01 })
  local saved = train(net, "momentum")
  check.equal(keys(saved), ALL)
  check.equal(saved["head.weight"]:totable(), net.head.weight.value:totable())
end)

check.case("a checkpoint has what no step reads", function()
  local Spare = Net:extend "Spare"
  function Spare:init()
    Net.init(self)
    self.spare = nn.Dense(3, 3)
  end
  local saved = train(Spare(), "spare")
  assert(saved["spare.weight"] and saved["spare.bias"])
  local net = Spare()
  ms.load_param_into_net(net, saved)
  check.equal(net.spare.weight.value:totable(), saved["spare.weight"]:totable())
end)

check.case("names of older versions", function()
  local net, values = Net(), {}
  for _, p in ipairs(net:get_parameters()) do values[p.name:gsub("^body%.", "")] = ms.full(p.shape, 3) end
  check.equal(keys(values), { "0.bias", "0.weight", "head.bias", "head.weight" })
  ms.load_param_into_net(net, values)
  check.equal(net.body[1].bias.value:totable(), { 3, 3, 3 })
  local wrapped = {}
  for _, p in ipairs(net:get_parameters()) do wrapped["backbone." .. p.name] = ms.full(p.shape, 4) end
  ms.load_param_into_net(net, wrapped)
  check.equal(net.body[1].bias.value:totable(), { 4, 4, 4 })
end)

check.case("what stops", function()
  local Twice = nn.Cell:extend "Twice"
  function Twice:init()
    self.a = ms.Parameter(ms.initializer("zeros", { 1 }), "same")
    self.b = ms.Parameter(ms.initializer("zeros", { 1 }), "same")
  end
  check.fails_here("give one of them another name, ms.Parameter(init, {name = ...})", function()
    Twice():get_parameters()
  end)
end)

check.done()
