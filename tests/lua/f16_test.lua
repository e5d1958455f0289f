-- Mixed precision in float16: numbers, the scale of the loss, what it cannot be combined with.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local function data(n)
  ms.set_seed(3)
  local x, y = ms.randn { n, 8 }, {}
  for i = 1, n do y[i] = i % 3 end
  return ms.dataset.NumpySlicesDataset({ x, ms.Tensor(y, ms.int32) }, { "x", "y" }, { shuffle = false }):batch(8)
end

local function net_of()
  ms.set_seed(4)
  return nn.SequentialCell { nn.Dense(8, 16), nn.LayerNorm { 16 }, nn.GELU(), nn.Dense(16, 3) }
end

local Losses = ms.Callback:extend "Losses"
function Losses:init() self.list = {} end
function Losses:on_train_step_end(run) table.insert(self.list, run.loss) end

-- The losses of a training, and its model.
local function trained(options)
  local net, losses = net_of(), Losses()
  local factor = options.factor or 1
  options.factor = nil
  local cross = nn.CrossEntropyLoss()
  options.loss_fn = function(output, label) return cross(output, label) * factor end
  options.optimizer = nn.Adam(net:trainable_params(), { learning_rate = 0.02 })
  local model = ms.Model(net, options)
  model:train(3, data(32), { callbacks = { losses } })
  return losses.list, model, net
end

check.case("losses in float16 are near those in float32, and nearer than those in bfloat16", function()
  local function distance(a, b)
    local most = 0
    for i = 1, #a do most = math.max(most, math.abs(a[i] - b[i])) end
    return most
  end
  local f32, f16, bf16 = trained {}, trained { amp = "f16" }, trained { amp = "bf16" }
  check.equal(#f16, 12)
  check.equal(distance(f16, f32) > 0 and distance(f16, f32) < 0.005, true)
  check.equal(distance(f16, f32) < distance(bf16, f32), true)
end)

check.case("the loss has a scale unless one is given", function()
  local _, model = trained { amp = "f16" }
  check.equal(model.loss_scale.spec, { kind = "dynamic", value = 65536, factor = 2, window = 2000 })
  local _, fixed = trained { amp = "f16", loss_scale_manager = ms.FixedLossScaleManager(8) }
  check.equal(fixed.loss_scale.spec, { kind = "fixed", value = 8 })
  local _, bf16 = trained { amp = "bf16" }
  check.equal(bf16.loss_scale, nil)
end)

check.case("a scale under which gradients are not finite is halved until they are", function()
  local losses, _, net = trained { amp = "f16", factor = 400 }
  check.equal(losses[1] == losses[5] and losses[5] ~= losses[9], true)  -- of the same batch
  for _, p in ipairs(net:get_parameters()) do
    check.equal(ops.reduce_min(ops.cast(ops.isfinite(p.value), "float32")):item(), 1)
  end
end)

check.case("an evaluation in float16 is near one in float32", function()
  local _, model, net = trained { amp = "f16" }
  local f32 = ms.Model(net, { loss_fn = nn.CrossEntropyLoss() }):eval(data(32)).loss
  local f16 = ms.Model(net, { loss_fn = nn.CrossEntropyLoss(), amp = "f16" }):eval(data(32)).loss
  check.near(f16, f32, 2e-3)
  check.equal(f16 ~= f32 and model.amp == "float16", true)
end)

check.case("several steps have no loss scale, and so no float16", function()
  check.fails('amp = "f16" and steps: f16 needs a loss scale, and several steps have none: use amp = "bf16"', function()
    ms.Model(net_of(), { amp = "f16", steps = {} })
  end)
end)

check.case("products and convolutions of float16 are those of float32, rounded once", function()
  local function pair(shape, name)
    local narrow = ops.cast(ms.randn(shape, "float32", name), "float16")
    return narrow, ops.cast(narrow, "float32")
  end
  local function same(f, ...)
    local narrow, wide = {}, {}
    for i, shape in ipairs { ... } do narrow[i], wide[i] = pair(shape, "operand" .. i) end
    local found, wanted = f(unpack(narrow)), f(unpack(wide))
    check.equal({ found.dtype, wanted.dtype }, { "float16", "float32" })
    check.near(ops.cast(found, "float32"):reshape(-1):totable(), wanted:reshape(-1):totable(), 0.02)
    return ops.reduce_max(ops.abs(ops.cast(found, "float32") - wanted)):item() > 0
  end
  check.equal(same(ops.matmul, { 65, 130 }, { 130, 67 }), true)
  local function convolve(x, w) return ops.conv2d(x, w, { pad_mode = "same" }) end
  check.equal(same(convolve, { 2, 16, 9, 9 }, { 24, 16, 3, 3 }), true)
  same(function(x) return ops.softmax(x, -1) end, { 33, 70 })
  same(function(x) return x:sum(2) end, { 33, 70 })
  local heads = { 2, 2, 9, 16 }
  same(function(q, k, v) return ops.scaled_dot_product_attention(q, k, v) end, heads, heads, heads)
end)

check.done()
