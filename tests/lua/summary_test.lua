-- ms.summary in callbacks: what it records, and what it refuses.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local data = ms.dataset.NumpySlicesDataset({ ms.rand({ 8, 3 }), ms.zeros { 8, 1 } }):batch(4)

local Does = ms.Callback:extend "Does"
function Does:init(f) self.f = f end
function Does:on_train_step_end(context) self.f(context) end

-- Trains for two epochs of two steps with `f` after each step.
local function train(f, more)
  local model = ms.Model(nn.Dense(3, 1), { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
  local callbacks = { Does(f) }
  for _, callback in ipairs(more or {}) do callbacks[#callbacks + 1] = callback end
  model:train(2, data, { callbacks = callbacks })
end

local function lines_of(folder)
  local lines = {}
  for line in io.lines(folder .. "/summaries.jsonl") do lines[#lines + 1] = line end
  return lines
end

check.case("each kind is a line of summaries.jsonl, and pictures are files", function()
  local folder
  train(function(context)
    folder = context.folder
    ms.summary.scalar("x", ms.Tensor { 0.5 }, 7)
    ms.summary.histogram("h", ms.Tensor { 0, 1, 0 / 0 })
    ms.summary.text("t", "To \"be\"\n")
    ms.summary.image("group/p q", ms.ones { 2, 1, 4, 4 }, { padding = 0 })
  end)
  local lines = lines_of(folder)
  check.equal(#lines, 4 * 4)
  check.equal(lines[1], '{"step":7,"at":1,"x":0.5}')
  check.equal(lines[5], '{"step":7,"at":2,"x":0.5}')
  check.equal(lines[2]:match '"count":(%d+).-"high":([%d.]+).-"nan":(%d+)', "2")
  check.equal(select(3, lines[2]:match '"count":(%d+).-"high":([%d.]+).-"nan":(%d+)'), "1")
  check.equal(lines[3], [[{"step":1,"at":1,"text":{"name":"t","text":"To \"be\"\n"}}]])
  check.equal(lines[16]:match '"file":"(.-)","height":4,"name":"group/p q","width":8', "summaries/group/p%20q_4.png")
  local png = assert(io.open(folder .. "/summaries/group/p%20q_4.png", "rb"))
  check.equal(png:read(4), "\137PNG")
  png:close()
end)

check.case("histograms of parameters and gradients", function()
  local folder
  train(function(context) folder = context.folder end, { ms.Histograms { every_steps = 2, gradients = true } })
  local names = {}
  for _, line in ipairs(lines_of(folder)) do
    names[#names + 1] = line:match '"step":(%d+)' .. " " .. line:match '"name":"(.-)"'
  end
  check.equal(table.concat(names, ", "), "2 parameters/weight, 2 parameters/bias, 2 gradients/weight, "
    .. "2 gradients/bias, 4 parameters/weight, 4 parameters/bias, 4 gradients/weight, 4 gradients/bias")
  check.fails("Histograms: parameters and gradients are both false", function()
    return ms.Histograms { parameters = false }
  end)
end)

check.case("a gradient is that of the step: SGD moves by it", function()
  local folder
  train(function(context) folder = context.folder end, { ms.Histograms { every_steps = 1, gradients = true } })
  local bias = {}
  for _, line in ipairs(lines_of(folder)) do
    local step, name, low = line:match '"step":(%d+)', line:match '"name":"(.-)"', line:match '"low":([^,]+)'
    bias[name .. step] = tonumber(low)
  end
  for step = 2, 4 do
    local moved = bias["parameters/bias" .. step - 1] - bias["parameters/bias" .. step]
    check.equal(math.abs(moved - 0.1 * bias["gradients/bias" .. step]) < 1e-6, true)
  end
end)

check.case("what cannot be recorded", function()
  check.fails("summary.scalar: no training runs here: call it in a callback", function()
    return ms.summary.scalar("x", 1)
  end)
  local function refused(text, f)
    check.fails(text, function() return train(f) end)
  end
  refused("summary.scalar: name: \"loss\" is a key of metrics.jsonl", function() ms.summary.scalar("loss", 1) end)
  refused("summary.text: name: expected a name such as", function() ms.summary.text("../x", "") end)
  refused("summary.scalar: x: expected a number or a tensor of one, got float32{2}", function()
    ms.summary.scalar("x", ms.ones { 2 })
  end)
  refused("summary.image: expected pictures [n, c, h, w], [c, h, w] or [h, w] with c = 1 or 3, got f32[2,4,4]",
    function() ms.summary.image("x", ms.ones { 2, 4, 4 }) end)
  refused("summary.histogram: x: expected values, got f32[0]", function() ms.summary.histogram("x", ms.ones { 0 }) end)
  refused("summary.histogram: value: expected a Tensor, got", function() ms.summary.histogram("x", "y") end)
  refused("summary.scalar: step: expected an integer, at least 0, got -1", function() ms.summary.scalar("x", 1, -1) end)
  local Net = nn.Cell:extend "Net"
  function Net:init() self.w = self:parameter("w", { 3, 1 }, "zeros") end
  function Net:construct(x)
    ms.summary.histogram("x", x)
    return ops.matmul(x, self.w)
  end
  check.fails("summary.histogram: the network is traced here, and has no numbers yet", function()
    local model = ms.Model(Net(), { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
    return model:train(1, data)
  end)
end)

check.case("no scalar has the name of a key that metrics.jsonl has", function()
  local folder
  train(function(context) folder = context.folder end)
  local keys = { eval_loss = true }
  for line in io.lines(folder .. "/metrics.jsonl") do
    for key in line:gmatch '"([%w_]+)":' do keys[key] = true end
  end
  check.equal(keys.step and keys.loss and keys.lr and keys.samples_per_s and keys.peak_memory and keys.time, true)
  for key in pairs(keys) do
    check.fails(("%q is a key of metrics.jsonl"):format(key), function()
      return train(function() ms.summary.scalar(key, 1) end)
    end)
  end
end)

check.case("a scalar may be NaN", function()
  local folder
  train(function(context)
    folder = context.folder
    ms.summary.scalar("odd", 0 / 0)
  end)
  local lines = lines_of(folder)
  check.equal(#lines, 4)
  for _, line in ipairs(lines) do check.equal(line:find("null", 1, true) ~= nil, true) end
end)

check.done()
