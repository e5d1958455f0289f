-- What is asked of a network beside its call is asked of the one in nn.PipelineCell, WithLossCell, TrainOneStepCell.
local ms = require "mslua"
local check = require "check"
local GPT, Transformer = require "gpt", require "mslua.models.transformer"
local load_into = require("mslua.pretrained").load_into
local nn, ops = ms.nn, ms.ops

local folder = (os.getenv "TEST_TMPDIR" or os.tmpname() .. ".d") .. "/wrapped"
os.execute(("mkdir -p '%s'"):format(folder))

local function make_folder(name)
  local path = folder .. "/" .. name:gsub("%W", "_")
  os.execute(("mkdir -p '%s'"):format(path))
  return path
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local wrappers = {
  ["a pipeline"] = function(net) return nn.PipelineCell(net, 2) end,
  ["a loss"] = function(net) return nn.WithLossCell(net, nn.CrossEntropyLoss()) end,
  ["a pipeline of a loss"] = function(net)
    return nn.PipelineCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), 2)
  end,
  ["a step"] = function(net)
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD { learning_rate = 0.1 })
  end,
}

local function make()
  ms.set_seed(1)
  return GPT { vocab = 20, block = 8, layers = 2, heads = 2, dim = 16, activation = "gelu_new" }
end

local function adapted(net)
  nn.LoRA.apply(net, { rank = 2, alpha = 4, targets = "in_proj" })
  for _, p in ipairs(net:trainable_params()) do p.value = ms.randn(p.shape, "float32", p.name) * 0.5 end
  return net
end

local function same_files(a, b, names)
  for _, name in ipairs(names) do assert(read(a .. "/" .. name) == read(b .. "/" .. name), name) end
end

local function values_of(net)
  local values = {}
  for _, p in ipairs(net:get_parameters()) do values[p.name] = p.value:totable() end
  return values
end

local bare = make_folder "bare"
ms.save_pretrained(make(), bare)
local bare_adapter = make_folder "bare adapter"
ms.save_adapter(adapted(make()), bare_adapter)
local prompt = { 1, 2, 3 }
local text = make():generate(prompt, { count = 12, temperature = 0 })

for name, wrap in pairs(wrappers) do
  check.case(name .. ": generate", function()
    check.equal(wrap(make()):generate(prompt, { count = 12, temperature = 0 }), text)
    check.fails_here("generate: Dense has no field block", function() wrap(nn.Dense(2, 2)):generate(prompt) end)
  end)

  check.case(name .. ": save_pretrained, and weights from its folder", function()
    local path = make_folder(name)
    ms.save_pretrained(wrap(make()), path)
    same_files(path, bare, { "config.json", "model.safetensors" })
    local net = GPT { vocab = 20, block = 8, layers = 2, heads = 2, dim = 16, activation = "gelu_new" }
    local wrapped = wrap(net)
    load_into(wrapped, path)
    check.equal(values_of(net), values_of(make()))
    check.equal(net.weights_folder, path)
    check.fails_here("heads is 4 in the network and 2 in the folder", function()
      load_into(wrap(GPT { vocab = 20, block = 8, layers = 2, heads = 4, dim = 16, activation = "gelu_new" }), path)
    end)
    check.fails_here("; ms.save_checkpoint writes any network", function()
      ms.save_pretrained(wrap(nn.Dense(2, 2)), path)
    end)
  end)

  check.case(name .. ": a published network in it", function()
    local path = make_folder(name .. " published")
    local wrapped = wrap(ms.from_pretrained(bare))
    check.equal(wrapped:generate(prompt, { count = 12, temperature = 0 }), text)
    ms.save_pretrained(wrapped, path)
    same_files(path, bare, { "config.json", "model.safetensors" })
    ms.save_adapter(adapted(wrapped), path)
    assert(read(path .. "/adapter_config.json"):find(('"base_model_name_or_path": %q'):format(bare), 1, true))
  end)

  check.case(name .. ": adapters have the names of PEFT", function()
    local before, behind = make_folder(name .. " before"), make_folder(name .. " behind")
    ms.save_adapter(adapted(wrap(make())), before)
    ms.save_adapter(wrap(adapted(make())), behind)
    same_files(before, bare_adapter, { "adapter_config.json", "adapter_model.safetensors" })
    same_files(behind, bare_adapter, { "adapter_config.json", "adapter_model.safetensors" })
    local net = make()
    local wrapped = wrap(net)
    check.equal(ms.load_adapter(wrapped, bare_adapter), wrapped)
    check.equal(values_of(net), values_of(adapted(make())))
    nn.LoRA.merge(wrapped)
    check.equal(values_of(net), values_of(nn.LoRA.merge(adapted(make()))))
  end)
end

check.case("translate", function()
  local net = Transformer { vocab = 13, block = 12, layers = 1, heads = 2, dim = 16, hidden = 24, dropout = 0 }
  local how = { sources = { { 3, 4, 5 }, { 6 } }, begin = 1, stop = 2 }
  local wanted = net:translate(how)
  for _, wrap in pairs(wrappers) do check.equal(wrap(net):translate(how), wanted) end
  check.fails_here("translate: Dense has no fields", function() nn.PipelineCell(nn.Dense(2, 2), 2):translate(how) end)
end)

-------------------------------------------------------------------------------------------------------- predictions

local Net = nn.Cell:extend "Net"
function Net:init() self.w = ms.Parameter(ms.ones { 2 }, { name = "w" }) end
function Net:construct(x, y) return ops.reduce_mean(ops.square(self:predict(x) - y)) end
function Net:predict(x) return x * self.w * 0.5 end
local Plain = nn.Cell:extend "Plain"
function Plain:init() self.w = ms.Parameter(ms.ones { 2 }, { name = "w" }) end
function Plain:construct(x) return x * self.w * 0.25 end

local function predictions(net, loss_fn)
  local part = { columns = { { name = "x", dtype = "float32", shape = { 1, 2 } } }, inputs = 1 }
  return ms.Model(net, { loss_fn = loss_fn }):predict_graph(part):run(ms.ones { 1, 2 }):totable()
end

check.case("predictions by the method predict, or of a network in a WithLossCell by its call", function()
  local mse = nn.MSELoss()
  check.equal(predictions(nn.PipelineCell(Net(), 2)), { { 0.5, 0.5 } })
  check.equal(predictions(nn.WithLossCell(Plain(), mse)), { { 0.25, 0.25 } })
  check.equal(predictions(nn.PipelineCell(nn.WithLossCell(Plain(), mse), 2)), { { 0.25, 0.25 } })
  local Two = Plain:extend "Two"
  function Two:predict(x) return self(x) * 2 end
  check.equal(predictions(nn.PipelineCell(Two(), 2), mse), predictions(Two(), mse))
  check.equal(predictions(nn.PipelineCell(Plain(), 2), mse), { { 0.25, 0.25 } })
  local Doubled = nn.PipelineCell:extend "Doubled"
  function Doubled:predict(x) return self.network:predict(x) * 2 end
  check.equal(predictions(Doubled(Net(), 2)), { { 1, 1 } })
  check.fails("or what its method predict(x) gives", function() predictions(nn.PipelineCell(Plain(), 2)) end)
end)

check.case("a class that computes something else with its network is no wrapper", function()
  local Scaled = nn.WithLossCell:extend "Scaled"
  function Scaled:construct(x, y) return self.loss_fn(self.backbone(x * 2), y) end
  local scaled = Scaled(Plain(), nn.MSELoss())
  check.fails("or what its method predict(x) gives", function() predictions(scaled) end)
  check.fails_here("Scaled has no field block", function() scaled:generate { 1 } end)
end)

-- The losses of rows that a network gives are its own, not those of a WithLossCell around it.
check.case("losses of rows in an evaluation", function()
  local Rows = Net:extend "Rows"
  function Rows:rows(x, y) return ops.reduce_mean(ops.square(self:predict(x) - y), 2) end
  local data = ms.dataset.NumpySlicesDataset({ ms.ones { 3, 2 }, ms.zeros { 3, 2 } }, { "x", "y" }):batch(2)
  check.near(ms.Model(nn.PipelineCell(Rows(), 2)):eval(data).loss, 0.25, 0)
  local Other = Plain:extend "Other"
  function Other.rows() error "of another loss" end
  local whole = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.zeros { 4, 2 } }, { "x", "y" }):batch(2)
  check.near(ms.Model(nn.PipelineCell(nn.WithLossCell(Other(), nn.MSELoss()), 2)):eval(whole).loss, 0.0625, 0)
end)

check.done()
