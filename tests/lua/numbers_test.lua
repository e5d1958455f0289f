-- Numbers that a careless formula loses: small results beside large terms, sums that 16 bits cannot hold, float64 that
-- passes through float32, steps that update nothing.
local check = require "check"
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

core.options.fast_dev_run = 1  -- no files

-- The gradient by x of the sum of f(x).
local function gradient(f, x)
  return ms.grad(function(v)
    local y = f(v)
    return #y.shape == 0 and y or ops.cast(y, "float32"):sum()
  end)(x)
end

-- Fails unless every |got - wanted| <= relative |wanted| + floor.
local function close(what, got, wanted, relative, floor)
  for i, w in ipairs(wanted) do
    local g = got[i]
    if not (math.abs(g - w) <= relative * math.abs(w) + floor) then
      error(("%s: number %d is %.9g, expected %.9g"):format(what, i, g, w), 2)
    end
  end
end

---------------------------------------------------------------------------------------------- second derivatives

check.case("second derivatives where a formula has several branches", function()
  local function second(f, x)
    local first = ms.grad(function(v) return ops.reduce_sum(f(v)) end)
    return ms.grad(function(v) return ops.reduce_sum(first(v)) end)(x):totable()
  end
  -- The row sums of the Hessian of a product.
  local function product(v) return ops.reduce_prod(v) end
  check.equal(second(product, ms.Tensor { 0, 2, 3 }), { 5, 3, 2 })
  check.equal(second(product, ms.Tensor { 0, 0, 3 }), { 3, 3, 0 })
  check.equal(second(product, ms.Tensor { 1, 2, 3 }), { 5, 4, 3 })
  check.equal(second(function(v) return ops.reduce_prod(v, 2) end, ms.Tensor { { 0, 4 }, { 2, 0 } }),
    { { 1, 1 }, { 1, 1 } })
  local mish = second(ops.mish, ms.Tensor { -1e-4, 0, 1e-4 })
  check.near(mish, { 0.64, 0.64, 0.64 }, 1e-4)
  for n, wanted in pairs { [0] = { 0, 0 }, [1] = { 0, 0 }, [2] = { 2, 2 }, [3] = { 0, 6 } } do
    check.equal(second(function(v) return v ^ n end, ms.Tensor { 0, 1 }), wanted)
  end
end)

-------------------------------------------------------------------------------------------- functions, -100 to 100

-- By type: a unit of the last place, and what is lost at most where a result, or the fourth of one that tanh's slope is
-- computed from, is denormal.
local types = { float32 = { 2 ^ -23, 4.8e-38 }, bfloat16 = { 2 ^ -8, 4.8e-38 }, float16 = { 2 ^ -11, 2 ^ -24 } }

-- Functions whose value, and whose slope, has its digits however small it is: units of the last place that may be lost.
local exact = { sigmoid = 8, tanh = 16, softplus = 8, exp = 8, expm1 = 8 }
-- Functions that add terms of another size, as PyTorch's do: errors are small beside 1.
local absolute = { silu = 1e-5, erf = 2e-6, gelu = 2e-5 }

local function points(low, high, dtype)
  local list = {}
  for i = 0, 4000 do list[i + 1] = low + (high - low) * i / 4000 end
  return ops.cast(ms.Tensor(list), dtype)
end

local function compare(name, f, x, dtype, relative, floor)
  local wide = ops.cast(x, "float64")
  local function numbers(t) return ops.cast(t, "float64"):totable() end
  local got, wanted = numbers(f(x)), numbers(f(wide))
  -- Results beyond the type's range are infinite.
  local largest = dtype == "float16" and 65504 or 3.38e38
  local function within(list)
    for i, w in ipairs(list) do
      if math.abs(w) > largest then list[i] = 0 end
    end
    return list
  end
  for i, w in ipairs(wanted) do
    if math.abs(w) > largest then got[i] = 0 end
  end
  close(name .. " in " .. dtype, got, within(wanted), relative, floor)
  local slope, slope_wanted = numbers(gradient(f, x)), numbers(gradient(f, wide))
  for i, w in ipairs(slope_wanted) do
    if math.abs(w) > largest then slope[i] = 0 end
  end
  close("gradient of " .. name .. " in " .. dtype, slope, within(slope_wanted), relative, floor)
end

check.case("functions and their gradients from -100 to 100", function()
  for dtype, t in pairs(types) do
    local unit, denormal = t[1], t[2]
    local x = points(-100, 100, dtype)
    for name, units in pairs(exact) do
      -- exp of a number of 100 magnifies the rounding of f32 constants; what 16 bits round is the result alone.
      compare(name, function(v) return (ops[name](v)) end, x, dtype, units * (dtype == "float32" and unit or unit / 8),
        denormal)
    end
    for name, error_of_f32 in pairs(absolute) do
      for _, approximate in ipairs(name == "gelu" and { false, true } or { false }) do
        local function f(v)
          if name == "gelu" then return (ops.gelu(v, { approximate = approximate })) end
          return (ops[name](v))
        end
        compare(name, f, x, dtype, unit, math.max(error_of_f32, denormal))
      end
    end
  end
end)

check.case("log1p and expm1 near 0", function()
  local list = {}
  for e = -120, -1 do
    list[#list + 1], list[#list + 2] = 1.37 * 2 ^ e, -0.93 * 2 ^ e
  end
  local x = ms.Tensor(list)
  for _, name in ipairs { "log1p", "expm1" } do
    compare(name, function(v) return (ops[name](v)) end, x, "float32", 2 * 2 ^ -23, 1.2e-38)
  end
  check.equal(tostring(ops.log1p(ms.Tensor { -1, -2, math.huge })), "[-inf,  nan,  inf]")
end)

check.case("an activation of a huge float16 has a gradient", function()
  for _, approximate in ipairs { false, true } do
    local g = gradient(function(v) return (ops.gelu(v, { approximate = approximate })) end,
      ops.cast(ms.Tensor { -30000, -300, 300, 30000 }, "float16"))
    check.equal(ops.cast(g, "float32"):totable(), { 0, 0, 1, 1 })
  end
end)

check.case("the gradient of relu at NaN is what comes back, as in PyTorch", function()
  check.equal(gradient(function(v) return ops.relu(v) * 3 end, ms.Tensor { 0 / 0, -1, 0, 2 }):totable(), { 3, 0, 0, 3 })
end)

check.case("the gradient of a power by its exponent is NaN at a negative base and 0 at 0, as in PyTorch", function()
  local base = ms.Tensor { -2, -2, 0, 2, 1 }
  local g = gradient(function(v) return (ops.pow(base, v)) end, ms.Tensor { 2, 3, 2, 3, 5 })
  for i = 1, 2 do check.equal(g:totable()[i] ~= g:totable()[i], true) end
  check.near({ unpack(g:totable(), 3) }, { 0, 8 * math.log(2), 0 }, 1e-6)
  check.equal(gradient(function(v) return (ops.pow(v, 2)) end, base):totable(), { -4, -4, 0, 4, 2 })
end)

---------------------------------------------------------------------------------------------------------- losses

check.case("a common offset of logits costs no digits", function()
  local base, z = { 0, -1, -2, -3 }, 0
  for _, b in ipairs(base) do z = z + math.exp(b) end
  local loss = math.log(z)
  local ids, one_hot = ms.Tensor({ 0 }, "int32"), ms.Tensor { { 1, 0, 0, 0 } }
  local smooth = nn.CrossEntropyLoss { label_smoothing = 0.1 }
  local functions = {
    sparse_softmax_cross_entropy = function(x) return ops.reduce_sum((ops.sparse_softmax_cross_entropy(x, ids))) end,
    softmax_cross_entropy = function(x)
      return ops.reduce_sum(ops.softmax_cross_entropy(x, ops.cast(one_hot, x.dtype)))
    end,
    log_softmax = function(x) return -ops.reduce_sum(ops.log_softmax(x, -1) * ops.cast(one_hot, x.dtype)) end,
    -- Not the last axis: another kernel.
    ["log_softmax of columns"] = function(x)
      local chosen = ops.cast(ops.reshape(one_hot, { 4, 1 }), x.dtype)
      return -ops.reduce_sum(ops.log_softmax(ops.reshape(x, { 4, 1 }), 1) * chosen)
    end,
  }
  for _, dtype in ipairs { "float32", "float64" } do
    local unit = dtype == "float32" and 2 ^ -23 or 2 ^ -52
    for _, offset in ipairs { 0, 100, -1000, 1e4, 1e5, -1e6, 1e7 } do
      local row = {}
      for i, b in ipairs(base) do row[i] = offset + b end
      local x = ms.Tensor({ row }, dtype)
      local function slopes(smoothing)
        local list = {}
        for i, b in ipairs(base) do
          list[i] = math.exp(b) / z - smoothing / 4 - (i == 1 and 1 - smoothing or 0)
        end
        return list
      end
      for name, f in pairs(functions) do
        local what = ("%s, %s, offset %g"):format(name, dtype, offset)
        close(what, { f(x):item() }, { loss }, 8 * unit, 0)
        close("gradient of " .. what, gradient(f, x)[1]:totable(), slopes(0), 8 * unit, 0)
      end
      local what = ("label_smoothing, %s, offset %g"):format(dtype, offset)
      close(what, { smooth(x, ids):item() }, { loss + 0.1 * 1.5 }, 8 * unit, 0)
      close("gradient of " .. what, gradient(function(v) return smooth(v, ids) end, x)[1]:totable(), slopes(0.1),
        16 * unit, 0)
    end
  end
end)

check.case("the gradient of lse is the softmax", function()
  local x = ms.Tensor { { 1e6, 1e6 - 1 } }
  local g = gradient(function(v)
    local _, lse = ops.sparse_softmax_cross_entropy.all(v, ms.Tensor({ 0 }, "int32"))
    return ops.reduce_sum(lse)
  end, x)
  check.near(g[1]:totable(), { 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)) }, 1e-6)
end)

check.case("attention of huge equal scores is their mean", function()
  for _, dtype in ipairs { "float32", "float64" } do
    local y = ops.scaled_dot_product_attention(ms.ones({ 1, 1, 1, 1 }, dtype), ms.full({ 1, 1, 3, 1 }, 1e20, dtype),
      ms.Tensor({ 3, 6, 9 }, dtype, { 1, 1, 3, 1 }), { scale = 1 })
    check.near(y:item(), 6, 1e-5)
  end
  -- The gradient of values is the weights.
  local g = gradient(function(v)
    return (ops.scaled_dot_product_attention(ms.ones({ 1, 1, 1, 1 }, "float64"),
      ms.full({ 1, 1, 3, 1 }, 1e20, "float64"), v, { scale = 1 }))
  end, ms.zeros({ 1, 1, 3, 1 }, "float64"))
  check.near(g:reshape(3):totable(), { 1 / 3, 1 / 3, 1 / 3 }, 1e-15)
end)

check.case("BCEWithLogitsLoss has small losses and small gradients", function()
  for _, dtype in ipairs { "float32", "bfloat16", "float16" } do
    local unit, denormal = types[dtype][1], types[dtype][2]
    for _, x in ipairs { -100, -80, -30, -17, -12, -8, -4, -1, 0, 1, 4, 8, 12, 17, 30, 80, 100 } do
      for _, y in ipairs { 0, 1 } do
        local label = ms.full({ 1 }, y, dtype)
        local function f(v) return nn.BCEWithLogitsLoss "sum"(v, label) end
        -- log(1 + e^s) and its slope, by their first term where that is all.
        local s = y == 1 and -x or x
        local e = math.exp(-math.abs(s))
        local loss = math.max(s, 0) + (e < 1e-9 and e or math.log(1 + e))
        local slope = (s > 0 and 1 or e) / (1 + e) * (y == 1 and -1 or 1)
        local logit = ms.full({ 1 }, x, dtype)
        local what = ("%s, x = %g, y = %g"):format(dtype, x, y)
        close("loss, " .. what, { ops.cast(f(logit), "float64"):item() }, { loss }, 4 * unit, denormal)
        close("gradient, " .. what, ops.cast(gradient(f, logit), "float64"):totable(), { slope }, 4 * unit, denormal)
      end
    end
  end
end)

check.case("means of float16 whose sums are beyond its range", function()
  local function half(v) return ops.cast(v, "float16") end
  local zeros, ones = half(ms.zeros { 100, 100 }), half(ms.ones { 100, 100 })
  local function is(loss, wanted) check.near(ops.cast(loss, "float32"):item(), wanted, wanted * 2 ^ -10) end
  is(ops.reduce_mean(ones * 1000), 1000)
  is(ops.reduce_mean(ops.reduce_mean(ones * 1000, { 1 }), { 1 }), 1000)
  is((ones * 1000):mean(), 1000)
  is(nn.MSELoss()(ones * 30, zeros), 900)
  is(nn.L1Loss()(ones * 30, zeros), 30)
  is(nn.SmoothL1Loss(1, "mean")(ones * 30, zeros), 29.5)
  is(nn.SmoothL1Loss(1000, "mean")(ones * 600, zeros), 180)
  is(nn.BCEWithLogitsLoss()(ones * 30, zeros), 30)
  is(nn.BCELoss()(zeros, ones), -math.log(1e-12))
  is(nn.BCELoss()(zeros, zeros) + 1, 1)
  is(ops.reduce_mean(nn.MSELoss():rows(ones * 30, zeros)), 900)
  is(ops.adaptive_avg_pool2d(half(ms.full({ 1, 1, 40, 50 }, 1000)), { output_size = { 1, 1 } }), 1000)
  is(ops.avg_pool2d(half(ms.full({ 1, 1, 10, 10 }, 1000)), { kernel_size = { 10, 10 } }), 1000)
  is(ops.reduce_mean(ops.square((ops.layer_norm(half(ms.randn { 8, 256 } * 3000), ms.ones { 256 },
    ms.zeros { 256 })))), 1)
  -- Each of 10000 gradients is 2 * 30 / 10000.
  local g = gradient(function(v) return nn.MSELoss()(v, zeros) end, ones * 30)
  check.near(ops.cast(g, "float32")[1][1], 0.006, 0.006 * 2 ^ -10)
end)

check.case("functions of float16 whose inner values are beyond its range", function()
  local function half(v) return ops.cast(ms.Tensor(v), "float16") end
  local function is(y, wanted)
    check.equal(y.dtype, "float16")
    check.near(ops.cast(ops.reshape(y, { -1 }), "float32"):totable(), wanted, 0.1)
  end
  local row, column = half { { 300, 300, 300 } }, half { { 300 }, { 300 }, { 300 } }
  is(ops.addmm(half { { 0 } }, row, column, 1, 0.001), { 270 })
  is(ops.addmm(half { { -65504 } }, row, half { { 300 }, { 0 }, { 0 } }), { 24496 })
  is(ops.baddbmm(half { { { 0 } } }, half { { { 300, 300, 300 } } }, half { { { 300 }, { 300 }, { 300 } } }, 1, 0.001),
    { 270 })
  is(ops.lerp(half { -60000 }, half { 60000 }, 0.5), { 0 })
  is(ops.lerp(half { -60000 }, half { 60000 }, half { 0.5 }), { 0 })
  is(ops.cross(half { 300, 300, 300 }, half { 300, 300.5, 301 }), { 150, -300, 150 })
  is(ops.cosine_similarity(half { { 0, 0 }, { 3, 3 } }, half { { 0, 0 }, { 1, 1 } }), { 0, 1 })
  is(gradient(function(x) return ops.cosine_similarity(x, x) end, half { { 0, 0 } }), { 0, 0 })
  is(nn.LRN(1, 1, 1, 0.5)(ops.reshape(half { 300, 300, 300 }, { 1, 3, 1 })), { 0.70710, 0.57735, 0.70710 })
  check.fails("element types differ", ops.lerp, half { 1 }, half { 2 }, ms.Tensor { 0.5 })
end)

check.case("spread of numbers far above it", function()
  check.near(ops.var(ms.Tensor { 1000000, 1000001, 1000003 }):item(), 14 / 9, 1e-6)
  check.equal(ops.std(ms.full({ 7 }, 1e8)):item(), 0)
  local x = ops.floor_mod(ms.arange(1000), 7)
  check.near(ops.var(ops.cast(x, "float32") + 1e6):item(), ops.var(ops.cast(x, "float64")):item(), 1e-5)
end)

check.case("gradients at NaN are NaN", function()
  local nan = 0 / 0
  for _, f in ipairs { ops.elu, ops.celu, ops.selu } do
    local d = gradient(function(x) return f(x):sum() end, ms.Tensor { nan, 1 }):totable()
    assert(d[1] ~= d[1] and d[2] == d[2], tostring(d[1]))
  end
end)

check.case("a mean of bfloat16 is rounded once", function()
  local x = ops.cast(ms.Tensor { 1, 1, 1.0078125 }, "bfloat16")
  check.equal(ops.cast(ops.reduce_mean(x), "float32"):item(), 1)
  check.equal(ops.cast(ops.reduce_mean(ops.cast(ms.Tensor { 257, 259 }, "float16")), "float32"):item(), 258)
end)

--------------------------------------------------------------------------------------------- tensors without elements

check.case("slices, concat, stack and pad of tensors without elements, and their gradients", function()
  local empty, full = ms.zeros { 0, 2 }, ms.ones { 3, 2 }
  check.equal((ops.strided_slice(full, { 3, 1 }, { 2, 3 }, { 2, 1 })).shape, { 0, 2 })
  check.equal((ops.strided_slice(empty, { 1, 1 }, { 1, 3 })).shape, { 0, 2 })
  check.equal(ops.concat(empty, full, empty, 1).shape, { 3, 2 })
  check.equal(ops.stack(empty, empty, 1).shape, { 2, 0, 2 })
  local padded = ops.pad(empty, { low = { 1, 0 }, high = { 1, 1 }, interior = { 2, 0 }, value = 7 })
  check.equal(padded:totable(), { { 7, 7, 7 }, { 7, 7, 7 } })
  local function zero_gradient(f, x) check.equal(gradient(f, x):totable(), ms.zeros(x.shape):totable()) end
  zero_gradient(function(v) return ops.strided_slice(v, { 3, 1 }, { 2, 3 }, { 2, 1 }) end, full)
  zero_gradient(function(v) return ops.concat(v, full, 1) * 0 end, empty)
  zero_gradient(function(v) return ops.stack(v, v, 2) end, empty)
  zero_gradient(function(v)
    return ops.pad(v, { low = { 1, 0 }, high = { 1, 1 }, interior = { 2, 0 } })
  end, empty)
  check.equal(gradient(function(v) return ops.concat(empty, v, 1) * 2 end, full):totable(), (full * 2):totable())
end)

-------------------------------------------------------------------------------------------------------- training

-- A network that multiplies rows by its weights and adds all up: the gradient is the sum of the rows.
local count = 0
local function rows_net(width, dtype)
  count = count + 1
  local Net, name = nn.Cell:extend "Net", "w" .. count
  function Net:init() self.w = self:parameter(name, { width }, { "constant", 1 }, { dtype = dtype or "float32" }) end
  function Net:construct(x) return ops.reduce_sum(self.w * x) / x.shape[1] end
  return Net()
end

local function train(net, options, rows, dtype, batch, steps)
  local data = ms.dataset.NumpySlicesDataset({ ms.Tensor(rows, dtype or "float32") }, { column_names = { "x" } })
    :batch(batch or 1)
  options.network = nil
  local accumulate, clip = options.accumulate_steps, options.clip_norm
  options.accumulate_steps, options.clip_norm = nil, nil
  ms.Model(net, options):train(1, data, { max_steps = steps or #rows, accumulate_steps = accumulate, clip_norm = clip })
  return ops.cast(net.w.value, "float64"):totable()
end

local optimizers = {
  SGD = function() return nn.SGD { learning_rate = 0.1, momentum = 0.9, dampening = 0.5, weight_decay = 0.01 } end,
  Momentum = function() return nn.Momentum { learning_rate = 0.1, momentum = 0.9 } end,
  Nesterov = function() return nn.Momentum { learning_rate = 0.1, momentum = 0.9, use_nesterov = true } end,
  Adam = function() return nn.Adam { learning_rate = 0.1 } end,
  AdamWeightDecay = function()
    return nn.AdamWeightDecay { learning_rate = 0.1, bias_correction = true, eps = 1e-8, weight_decay = 0.01 }
  end,
  Lamb = function() return nn.Lamb { learning_rate = 0.1 } end,
}

check.case("a step that the loss scale skips does not count", function()
  local good = { { 1, 2, -1, .5 }, { -2, .3, .7, 1 }, { 1, 1, 1, 1 } }
  local bad = { 1, 1, 1e37, 1 }
  for name, make in pairs(optimizers) do
    local wanted = train(rows_net(4), { optimizer = make() }, good)
    for _, where in ipairs { 1, 2, 3 } do
      local rows = { good[1], good[2], good[3] }
      table.insert(rows, where, bad)
      for scale, manager in pairs {
        fixed = ms.FixedLossScaleManager(64),
        dynamic = ms.DynamicLossScaleManager { init_loss_scale = 64, scale_window = 100 },
      } do
        local got = train(rows_net(4), { optimizer = make(), loss_scale_manager = manager }, rows)
        close(("%s, %s scale, skipped step %d"):format(name, scale, where), got, wanted, 1e-6, 1e-7)
      end
    end
  end
end)

check.case("infinite gradients are skipped although they are clipped", function()
  local rows = { { 1, 1 }, { 3e37, 1 } }
  for _, clip in ipairs { "clip_norm", "clip_value" } do
    local function run(list)
      local net = rows_net(2)
      local data = ms.dataset.NumpySlicesDataset({ ms.Tensor(list) }, { column_names = { "x" } }):batch(1)
      ms.Model(net, { optimizer = nn.Momentum { learning_rate = 0.1, momentum = 0.9 },
        loss_scale_manager = ms.FixedLossScaleManager(64) }):train(1, data, { max_steps = #list, [clip] = 0.5 })
      return net.w.value:totable()
    end
    check.near(run(rows), run { rows[1] }, 1e-7)
  end
end)

check.case("clip_norm and accumulate_steps of float64 are float64", function()
  local rows = { { 0.3, -1.7 }, { 2.1, 0.4 }, { -0.6, 1.9 } }
  -- One step of one batch in three parts, its gradient clipped to a norm of 0.3.
  local g = { (0.3 + 2.1 - 0.6) / 3, (-1.7 + 0.4 + 1.9) / 3 }
  local norm = math.sqrt(g[1] ^ 2 + g[2] ^ 2)
  local factor = math.min(0.3 / (norm + 1e-6), 1)
  local sgd = nn.SGD { learning_rate = 1 }
  close("accumulate_steps", train(rows_net(2, "float64"), { optimizer = sgd, accumulate_steps = 3 }, rows, "float64", 3,
    1), { 1 - g[1], 1 - g[2] }, 1e-15, 0)
  close("clip_norm", train(rows_net(2, "float64"), { optimizer = sgd, accumulate_steps = 3, clip_norm = 0.3 }, rows,
    "float64", 3, 1), { 1 - g[1] * factor, 1 - g[2] * factor }, 1e-15, 0)
  close("loss scale", train(rows_net(2, "float64"), { optimizer = sgd, accumulate_steps = 3,
    loss_scale_manager = ms.FixedLossScaleManager(0.1) }, rows, "float64", 3, 1), { 1 - g[1], 1 - g[2] }, 1e-15, 0)
end)

check.case("parameters of 16 bits: norms and sums are float32", function()
  local sgd = nn.SGD { learning_rate = 2 ^ -16 }
  -- Squares, and the sum of two micro-batches, are beyond float16.
  local rows = { { 40000, 0 }, { 40000, 0 } }
  close("accumulate_steps", train(rows_net(2, "float16"), { optimizer = sgd, accumulate_steps = 2 }, rows, "float16", 2,
    1), { 1 - 40000 / 65536, 1 }, 2 ^ -10, 0)
  close("clip_norm", train(rows_net(2, "float16"), { optimizer = nn.SGD { learning_rate = 1 }, clip_norm = 0.25 }, rows,
    "float16", 1, 1), { 0.75, 1 }, 2 ^ -10, 0)
  -- 0.999 is 1 in bfloat16: moments would neither decay nor grow.
  for name, make in pairs(optimizers) do
    local steps = {}
    for i = 1, 6 do steps[i] = { 1, -0.5 } end
    close(name, train(rows_net(2, "bfloat16"), { optimizer = make() }, steps, "bfloat16"),
      train(rows_net(2), { optimizer = make() }, steps), 0.03, 0.01)
  end
end)

check.case("steps of Adam in float32 are those of float64", function()
  for _, name in ipairs { "Adam", "AdamWeightDecay", "Lamb" } do
    local rows = {}
    for i = 1, 20 do rows[i] = { 9, -3 } end
    for _, steps in ipairs { 1, 2, 3, 20 } do
      close(("%s, %d steps"):format(name, steps),
        train(rows_net(2), { optimizer = optimizers[name]() }, rows, "float32", 1, steps),
        train(rows_net(2, "float64"), { optimizer = optimizers[name]() }, rows, "float64", 1, steps), 0,
        1.2e-7 * steps + 6e-8)
    end
  end
end)

check.case("evaluation of a loss that gives one number, and of rows, in every float type", function()
  for _, dtype in ipairs { "float64", "float32", "float16", "bfloat16" } do
    local x, y = ms.Tensor({ { 1 / 3, 2 }, { 0.1, -1 } }, dtype), ms.zeros({ 2, 2 }, dtype)
    local data = ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(2)
    local function evaluate(loss)
      return ms.Model(nn.Identity(), { loss_fn = loss, optimizer = nil }):eval(data).loss
    end
    local wide = ops.cast(x, "float64")
    local wanted = ops.reduce_mean(wide * wide):item()
    local tolerance = ({ float64 = 1e-15, float32 = 1e-6, float16 = 1e-3, bfloat16 = 1e-2 })[dtype]
    check.near(evaluate(function(a, b) return ops.reduce_mean((a - b) ^ 2) end), wanted, tolerance)
    check.near(evaluate(nn.MSELoss()), wanted, tolerance)
  end
end)

------------------------------------------------------------------------------------------------------- denormals

check.case("denormals are zero, and numbers with context.denormals, in all threads", function()
  local function products()
    local d = ms.full({ 1, 300000 }, 1) * 1e-30
    return ops.reduce_max((d * 1e-10) * 1e30):item(), ops.reduce_min((d * 1e-10) * 1e30):item(),
      ms.full({}, 1e-310, "float64"):item()
  end
  check.equal({ products() }, { 0, 0, ms.full({}, 1e-310, "float64"):item() })
  ms.set_context { denormals = true }
  local high, low = products()
  check.near(high, 1e-10, 1e-14)
  check.near(low, 1e-10, 1e-14)
  check.near(ops.log(ms.Tensor { 1e-40 })[1], -92.103, 1e-3)
  check.near(ops.sqrt(ms.Tensor { 1e-40 })[1], 1e-20, 1e-24)
  ms.set_context { denormals = false }
  check.equal({ products() }, { 0, 0, ms.full({}, 1e-310, "float64"):item() })
  check.equal(core.options.denormals, false)
end)

check.case("an int64 that a double does not hold is compared as it is", function()
  local large = ms.Tensor({ 2 ^ 53 - 1 }, ms.int64) * ms.Tensor({ 100 }, ms.int64) + ms.Tensor({ 1 }, ms.int64)
  local x = ops.concat(large, large + ms.Tensor({ 1 }, ms.int64))
  local function compared(equal, less, equal_again)
    local function list(v) return ops.cast(v, ms.int32):totable() end
    check.equal({ list(equal), list(less), list(equal_again) }, { { 1, 0 }, { 0, 0 }, { 1, 0 } })
  end
  compared(ops.equal(x, large), ops.less(x, large), ops.equal(x, large))
  local results = ms.value_and_grad(function(v)
    return ops.reduce_sum(v), ops.equal(x, large), ops.less(x, large), ops.equal(x, large:reshape({}))
  end, 1, nil, true)(ms.Tensor { 1 })
  compared(results[2], results[3], results[4])
end)

check.case("a range of integers goes no further than its type", function()
  check.equal(ms.arange(2147483646, 2147483648):totable(), { 2147483646, 2147483647 })
  check.fails("arange: the number 2147483649 is not in int32", ms.arange, 2147483647, 2147483650)
  check.fails("is not in uint8", ms.arange, 250, 257, "uint8")
  check.equal(ms.arange(250, 256, "uint8"):totable(), { 250, 251, 252, 253, 254, 255 })
end)

check.case("a number of an attribute is in the tensor's type", function()
  local bytes, numbers = ms.Tensor({ 1, 2 }, ms.uint8), ms.Tensor({ 1, 2 }, ms.int32)
  local mask = ops.greater(numbers, 1)
  check.fails("value: the number 300 is not in uint8, which holds 0 to 255", ops.pad, bytes,
    { low = { 1 }, value = 300 })
  check.fails("value: the number 1.5 is not in int32, which holds whole numbers", ops.pad, numbers,
    { low = { 1 }, value = 1.5 })
  check.fails("value: the number 300 is not in uint8", ops.masked_fill, bytes, mask, 300)
  check.fails("value: the number -inf is not in int32", ops.masked_fill, numbers, mask, -1 / 0)
  check.fails("on_value: the number 300 is not in uint8", ops.one_hot, numbers, 3, { on_value = 300, dtype = ms.uint8 })
  check.fails("off_value: the number -1 is not in uint8", ops.one_hot, numbers, 3, { off_value = -1, dtype = ms.uint8 })
  check.fails("the number 2147483648 is not in int32", ops.iota, 2, { start = 2147483647 })
  check.equal(ops.iota(1, { start = 2147483647 }):totable(), { 2147483647 })
  check.equal(ops.pad(bytes, { low = { 1 }, value = 255 }):totable(), { 255, 1, 2 })
  check.equal(ops.masked_fill(numbers, mask, -7):totable(), { 1, -7 })
end)

check.done()
