-- Optimizers against their papers' formulas, written here in plain numbers, over several steps.
local check = require "check"
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local ROWS, COLUMNS, STEPS = 2, 3, 8
local weights = { 0.5, -1.25, 2, 0.75, -0.5, 1 }

-- The gradient of a step: signs and sizes change.
local function gradient(step)
  local g = {}
  for i = 1, #weights do g[i] = (i % 3 - 1.25) * (0.5 + step % 3) * (i == 4 and -1 or 1) end
  return g
end

local function each(f)
  local out = {}
  for i = 1, #weights do out[i] = f(i) end
  return out
end
local function filled(v) return each(function() return v end) end
local function norm(list)
  local sum = 0
  for _, v in ipairs(list) do sum = sum + v * v end
  return math.sqrt(sum)
end
local function rms(list) return norm(list) / math.sqrt(#list) end

-- Each reference: (parameter w, gradient g, state s, step from 1) -> the next parameter. It keeps its state in s.
local references = {}

function references.RMSProp(a)
  return function(w, g, s)
    s.square, s.moment, s.mean = s.square or filled(0), s.moment or filled(0), s.mean or filled(0)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      s.square[i] = a.decay * s.square[i] + (1 - a.decay) * d * d
      s.mean[i] = a.decay * s.mean[i] + (1 - a.decay) * d
      local variance = s.square[i] - (a.centered and s.mean[i] ^ 2 or 0)
      s.moment[i] = a.momentum * s.moment[i] + a.lr * d / math.sqrt(variance + a.epsilon)
      return w[i] - s.moment[i]
    end)
  end
end

function references.Adagrad(a)
  return function(w, g, s)
    s.sum = s.sum or filled(a.accum)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      if a.update_slots then s.sum[i] = s.sum[i] + d * d end
      return w[i] - a.lr * d / math.sqrt(s.sum[i])
    end)
  end
end

function references.FTRL(a)
  return function(w, g, s)
    s.sum, s.linear = s.sum or filled(a.initial_accum), s.linear or filled(0)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      local sum = s.sum[i] + d * d
      local sigma = (sum ^ -a.lr_power - s.sum[i] ^ -a.lr_power) / a.lr
      s.sum[i], s.linear[i] = sum, s.linear[i] + d - sigma * w[i]
      if math.abs(s.linear[i]) <= a.l1 then return 0 end
      local sign = s.linear[i] > 0 and 1 or -1
      return (sign * a.l1 - s.linear[i]) / (sum ^ -a.lr_power / a.lr + 2 * a.l2)
    end)
  end
end

-- Adam's moments, of a gradient with or without the decay.
local function moments(a, s, i, d)
  s.m[i] = a.beta1 * s.m[i] + (1 - a.beta1) * d
  s.v[i] = a.beta2 * s.v[i] + (1 - a.beta2) * d * d
  s.w[i] = math.max(s.w[i], s.v[i])
  return s.m[i], a.use_amsgrad and s.w[i] or s.v[i]
end
local function start(s) s.m, s.v, s.w = s.m or filled(0), s.v or filled(0), s.w or filled(0) end

function references.Adam(a)
  return function(w, g, s, step)
    start(s)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      local m, v = moments(a, s, i, d)
      if a.use_nesterov then m = a.beta1 * m + (1 - a.beta1) * d end
      return w[i] - a.lr * m / (1 - a.beta1 ^ step) / (math.sqrt(v / (1 - a.beta2 ^ step)) + a.eps)
    end)
  end
end

function references.AdamW(a)
  return function(w, g, s, step)
    start(s)
    return each(function(i)
      local m, v = moments(a, s, i, g[i])
      m, v = m / (1 - a.beta1 ^ step), v / (1 - a.beta2 ^ step)
      return w[i] - a.lr * (m / (math.sqrt(v) + a.eps) + a.weight_decay * w[i])
    end)
  end
end

function references.Adadelta(a)
  return function(w, g, s)
    s.square, s.step_square = s.square or filled(0), s.step_square or filled(0)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      s.square[i] = a.rho * s.square[i] + (1 - a.rho) * d * d
      local by = math.sqrt(s.step_square[i] + a.epsilon) / math.sqrt(s.square[i] + a.epsilon) * d
      s.step_square[i] = a.rho * s.step_square[i] + (1 - a.rho) * by * by
      return w[i] - a.lr * by
    end)
  end
end

function references.AdaMax(a)
  return function(w, g, s, step)
    s.m, s.v = s.m or filled(0), s.v or filled(0)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      s.m[i] = a.beta1 * s.m[i] + (1 - a.beta1) * d
      s.v[i] = math.max(a.beta2 * s.v[i], math.abs(d) + a.eps)
      return w[i] - a.lr / (1 - a.beta1 ^ step) * s.m[i] / s.v[i]
    end)
  end
end

function references.NAdam(a)
  return function(w, g, s, step)
    start(s)
    local function mu(t) return a.beta1 * (1 - 0.5 * 0.96 ^ (t * a.momentum_decay)) end
    local product = 1
    for t = 1, step do product = product * mu(t) end
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      local m, v = moments(a, s, i, d)
      local root = math.sqrt(v / (1 - a.beta2 ^ step)) + a.eps
      return w[i] - a.lr * (1 - mu(step)) / (1 - product) * d / root
        - a.lr * mu(step + 1) / (1 - product * mu(step + 1)) * m / root
    end)
  end
end

function references.RAdam(a)
  return function(w, g, s, step)
    start(s)
    local n = 2 / (1 - a.beta2) - 1
    local r = n - 2 * step * a.beta2 ^ step / (1 - a.beta2 ^ step)
    return each(function(i)
      local m, v = moments(a, s, i, g[i] + a.weight_decay * w[i])
      m = m / (1 - a.beta1 ^ step)
      if r <= 5 then return w[i] - a.lr * m end
      local scale = math.sqrt((r - 4) * (r - 2) * n / ((n - 4) * (n - 2) * r))
      return w[i] - a.lr * m * scale * math.sqrt(1 - a.beta2 ^ step) / (math.sqrt(v) + a.eps)
    end)
  end
end

-- On a whole gradient.
function references.LazyAdam(a)
  return function(w, g, s, step)
    s.m, s.v = s.m or filled(0), s.v or filled(0)
    local rate = a.lr * math.sqrt(1 - a.beta2 ^ step) / (1 - a.beta1 ^ step)
    return each(function(i)
      local d = g[i] + a.weight_decay * w[i]
      s.m[i] = a.beta1 * s.m[i] + (1 - a.beta1) * d
      s.v[i] = a.beta2 * s.v[i] + (1 - a.beta2) * d * d
      return w[i] - rate * s.m[i] / (math.sqrt(s.v[i]) + a.eps)
    end)
  end
end

-- LARS around gradient descent with momentum.
function references.LARS(a)
  return function(w, g, s)
    s.v = s.v or filled(0)
    local trust = a.coefficient * norm(w) / (norm(g) + a.weight_decay * norm(w) + a.epsilon)
    if a.use_clip then trust = math.min(trust / a.lr, 1) end
    return each(function(i)
      local d = trust * (g[i] + a.weight_decay * w[i])
      if not a.wrapped then d = g[i] end
      s.v[i] = 0.9 * s.v[i] + d
      return w[i] - a.lr * s.v[i]
    end)
  end
end

function references.Adafactor(a)
  local function at(r, c) return (r - 1) * COLUMNS + c end
  return function(w, g, s, step)
    local keep = 1 - step ^ -a.decay_rate
    local u
    if a.matrix then
      s.row, s.col = s.row or { 0, 0 }, s.col or { 0, 0, 0 }
      local mean = 0
      for r = 1, ROWS do
        local sum = 0
        for c = 1, COLUMNS do sum = sum + g[at(r, c)] ^ 2 + 1e-30 end
        s.row[r] = keep * s.row[r] + (1 - keep) * sum / COLUMNS
        mean = mean + s.row[r] / ROWS
      end
      u = {}
      for c = 1, COLUMNS do
        local sum = 0
        for r = 1, ROWS do sum = sum + g[at(r, c)] ^ 2 + 1e-30 end
        s.col[c] = keep * s.col[c] + (1 - keep) * sum / ROWS
      end
      for r = 1, ROWS do
        for c = 1, COLUMNS do u[at(r, c)] = g[at(r, c)] / math.sqrt(s.row[r] * s.col[c] / mean) end
      end
    else
      s.v = s.v or filled(0)
      u = each(function(i)
        s.v[i] = keep * s.v[i] + (1 - keep) * (g[i] ^ 2 + 1e-30)
        return g[i] / math.sqrt(s.v[i])
      end)
    end
    local rate = a.lr
    if a.relative_step then rate = math.min(rate, 1 / math.sqrt(step)) end
    if a.warmup_init then rate = math.min(rate, 1e-6 * step) end
    if a.scale_parameter then rate = rate * math.max(1e-3, rms(w)) end
    local clip = math.max(1, rms(u) / a.clip_threshold)
    s.moment = s.moment or filled(0)
    return each(function(i)
      s.moment[i] = a.beta1 * s.moment[i] + (1 - a.beta1) * u[i] / clip * rate
      return w[i] - w[i] * a.weight_decay * rate - s.moment[i]
    end)
  end
end

-- One row: a class, how it is made of fields, the fields.
local function with(defaults, given)
  local all = {}
  for key, v in pairs(defaults) do all[key] = v end
  for key, v in pairs(given) do all[key] = v end
  return all
end
local rows = {}
local function row(class, defaults, given, make)
  local a = with(defaults, given)
  rows[#rows + 1] = { class = class, reference = references[class](a), shape = a.matrix == false and { 6 } or nil,
    name = ("%s %d"):format(class, #rows + 1), make = make or function(params)
      local fields = { params = params, learning_rate = a.lr }
      for key, v in pairs(given) do fields[key] = v end
      fields.lr, fields.matrix = nil, nil
      return nn[class](fields)
    end }
end

local rmsprop = { lr = 0.1, decay = 0.9, momentum = 0, epsilon = 1e-10, centered = false, weight_decay = 0 }
row("RMSProp", rmsprop, {})
row("RMSProp", rmsprop, { lr = 0.01, decay = 0.8, momentum = 0.7, epsilon = 1e-3, weight_decay = 0.2 })
row("RMSProp", rmsprop, { centered = true, lr = 0.01, momentum = 0.5, epsilon = 1e-3, weight_decay = 0.1 })
local adagrad = { lr = 1e-3, accum = 0.1, update_slots = true, weight_decay = 0 }
row("Adagrad", adagrad, {})
row("Adagrad", adagrad, { lr = 0.3, accum = 0, weight_decay = 0.2 })
row("Adagrad", adagrad, { lr = 0.3, accum = 0.5, update_slots = false })
local ftrl = { lr = 1e-3, initial_accum = 0.1, lr_power = -0.5, l1 = 0, l2 = 0, weight_decay = 0 }
row("FTRL", ftrl, {})
row("FTRL", ftrl, { lr = 0.2, initial_accum = 0.3, lr_power = -0.7, l1 = 0.5, l2 = 0.1, weight_decay = 0.2 })
local adam = { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0 }
for _, class in ipairs { "Adam", "AdamW", "RAdam" } do
  row(class, adam, {})
  row(class, adam, { lr = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 1e-3, weight_decay = 0.2 })
end
row("Adam", adam, { lr = 0.1, weight_decay = 0.2, use_nesterov = true })
for _, class in ipairs { "Adam", "AdamW" } do
  row(class, adam, { lr = 0.1, beta2 = 0.5, weight_decay = 0.2, use_amsgrad = true })
end
row("Adam", adam, { lr = 0.1, beta2 = 0.5, use_amsgrad = true, use_nesterov = true })
row("RAdam", adam, { beta2 = 0.5 })
local adadelta = { lr = 1, rho = 0.9, epsilon = 1e-6, weight_decay = 0 }
row("Adadelta", adadelta, {})
row("Adadelta", adadelta, { lr = 0.7, rho = 0.8, epsilon = 1e-3, weight_decay = 0.2 })
local adamax = with(adam, { lr = 2e-3 })
row("AdaMax", adamax, {})
row("AdaMax", adamax, { lr = 0.1, beta1 = 0.8, beta2 = 0.7, eps = 1e-3, weight_decay = 0.2 })
local nadam = with(adamax, { momentum_decay = 4e-3 })
row("NAdam", nadam, {})
row("NAdam", nadam, { lr = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 1e-3, weight_decay = 0.2, momentum_decay = 0.5 })
row("NAdam", nadam, { lr = 0.1, momentum_decay = 0 })
local lazy = { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0 }
row("LazyAdam", lazy, {})
row("LazyAdam", lazy, { lr = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 1e-3, weight_decay = 0.2 })
local adafactor = { lr = 1e-2, clip_threshold = 1, decay_rate = 0.8, beta1 = 0.9, weight_decay = 0,
  scale_parameter = true, relative_step = true, warmup_init = false, matrix = true }
row("Adafactor", adafactor, {})
row("Adafactor", adafactor, { matrix = false })
row("Adafactor", adafactor, { beta1 = 0, warmup_init = true })
for _, matrix in ipairs { true, false } do
  row("Adafactor", adafactor, { lr = 0.8, relative_step = false, scale_parameter = false, decay_rate = 0.6,
    clip_threshold = 0.5, beta1 = 0, weight_decay = 0.1, matrix = matrix })
end
local lars = { lr = 0.5, epsilon = 1e-5, coefficient = 0.001, use_clip = false, weight_decay = 0.1, wrapped = true }
local function in_lars(given, name_of_parameter)
  local a = with(lars, given)
  row("LARS", lars, given, function(params)
    params[1].name = (name_of_parameter or "w") .. params[1].name
    local inner = nn.SGD { params = params, learning_rate = a.lr, momentum = 0.9, weight_decay = a.weight_decay }
    return nn.LARS(inner, { epsilon = a.epsilon, coefficient = a.coefficient, use_clip = a.use_clip })
  end)
end
in_lars {}
in_lars { coefficient = 0.5, use_clip = true, epsilon = 0.1 }
in_lars({ wrapped = false, weight_decay = 0 }, "bias")

local function flat(t) return ops.cast(ops.reshape(t, { -1 }), "float64"):totable() end

-- The parameter after each step.
local function train(row_of, dtype, index)
  local shape = row_of.shape or { ROWS, COLUMNS }
  local p = ms.Parameter(ops.cast(ops.reshape(ms.Tensor(weights), shape), dtype), ("p%s%d"):format(dtype, index))
  local opt = row_of.make { p }
  local out = {}
  for step = 1, STEPS do
    opt({ ops.cast(ops.reshape(ms.Tensor(gradient(step)), shape), dtype) }, { p })
    out[step] = flat(p.value)
  end
  return out
end

-- A number of dtype, as ms rounds it.
local function rounded(list, dtype)
  if dtype == "float64" then return list end
  return flat(ops.cast(ms.Tensor(list, "float64"), dtype))
end

local tolerance = { float64 = 1e-13, float32 = 4e-6, float16 = 2e-3, bfloat16 = 1.6e-2 }
for index, row_of in ipairs(rows) do
  for dtype, relative in pairs(tolerance) do
    check.case(row_of.name .. " of " .. dtype, function()
      local got, w, state = train(row_of, dtype, index), weights, {}
      for step = 1, STEPS do
        w = row_of.reference(w, gradient(step), state, step)
        w = rounded(w, dtype)
        for i, v in ipairs(w) do check.near(got[step][i], v, relative * math.max(math.abs(v), 0.5)) end
        w = got[step]  -- 16 bits: each step from what was rounded
      end
    end)
  end
end

-- In float16 squares of small gradients are 0; in bfloat16 a mean that decays by a thousandth stays where it is.
check.case("moments of 16-bit parameters are float32", function()
  local path = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/moments.safetensors"
  for _, class in ipairs { "Adam", "AdamW", "AdamWeightDecay", "NAdam", "RAdam", "LazyAdam", "Lamb", "AdaMax" } do
    local values = {}
    for i, dtype in ipairs { "float32", "float16", "bfloat16" } do
      local p = ms.Parameter(ms.full({ 1 }, 1, dtype), "small." .. class .. dtype)
      local update = nn[class] { params = { p }, learning_rate = 0.01 }
      for step = 1, 12 do update({ ms.full({ 1 }, step == 1 and 1e-3 or 1e-4, dtype) }, { p }) end
      values[i] = flat(p.value)[1]
      ms.save_checkpoint(update, path)
      for name, saved in pairs(ms.load_checkpoint(path)) do
        if name:find "^m" or name:find "^infinity" then check.equal({ name, saved.dtype }, { name, "float32" }) end
      end
    end
    check.near({ values[2], values[3] }, { values[1], values[1] }, 0.05)
  end
end)

check.case("a gradient of 0 moves no parameter", function()
  for _, info in ipairs(core.optimizers()) do
    for _, shape in ipairs { { 2, 3 }, { 4 } } do
      local p = ms.Parameter(ms.full(shape, 0.5), "still." .. info.kind .. #shape)
      local inner = { params = { p }, learning_rate = 0.1 }
      if info.kind == "momentum" then inner.momentum = 0.9 end
      local opt = info.wraps and nn[info.class](nn.SGD { params = { p }, learning_rate = 0.1 }) or nn[info.class](inner)
      for _ = 1, 3 do opt({ ms.zeros(shape) }, { p }) end
      -- FTRL pulls towards 0 what it has seen no gradient of.
      check.equal(ops.reduce_max(ops.abs(p.value - (info.kind == "ftrl" and 0 or 0.5))):item(), 0)
    end
  end
end)

check.case("FTRL and Adagrad at their edges", function()
  local p = ms.Parameter(ms.full({ 3 }, 0.5), "edge.ftrl")
  local opt = nn.FTRL { params = { p }, learning_rate = nn.piecewise_constant_lr({ 1, 9 }, { 0.1, 0.1 }) }
  opt({ ms.ones { 3 } }, { p })
  local after = p.value:totable()
  local still = ms.Parameter(ms.Tensor(after), "edge.still")
  nn.FTRL { params = { still }, learning_rate = 0 } ({ ms.ones { 3 } }, { still })
  check.equal(still.value:totable(), after)
  local zero = ms.Parameter(ms.full({ 3 }, 0.5), "edge.adagrad")
  nn.Adagrad { params = { zero }, accum = 0 } ({ ms.Tensor { 0, 1, -1 } }, { zero })
  check.near(zero.value:totable(), { 0.5, 0.499, 0.501 }, 1e-6)
end)

check.case("optimizers that make no sense", function()
  check.fails_here("decay: expected a number, at least 0 and below 1, got 1", function() nn.RMSProp { decay = 1 } end)
  check.fails_here("eps: expected 2 numbers, got 1", function() nn.Adafactor { eps = { 1e-30 } } end)
  check.fails_here("eps: expected a list of numbers, above 0", function() nn.Adafactor { eps = { 0, 1 } } end)
  check.fails_here("lr_power: expected a number, at most 0, got 1", function() nn.FTRL { lr_power = 1 } end)
  check.fails_here("optimizer: expected an optimizer such as nn.Momentum {...}", function() nn.LARS(3) end)
  check.fails_here("expected an optimizer that makes the update, such as nn.Momentum {...}, got LARS",
    function() nn.LARS(nn.LARS(nn.SGD())) end)
  local p = ms.Parameter(ms.ones { 2 }, "warm")
  check.fails_here("warmup_init needs relative_step", function()
    nn.Adafactor { params = { p }, warmup_init = true, relative_step = false }
  end)
  check.fails_here("Momentum: use_nesterov needs a momentum above 0",
    function() nn.Momentum { learning_rate = 1, momentum = 0, use_nesterov = true } end)
  check.fails_here("weight_decay: expected a finite number, got inf",
    function() nn.SGD { weight_decay = math.huge } end)
  check.fails_here("momentum: expected a finite number, got inf", function() nn.SGD { momentum = math.huge } end)
  check.fails_here("learning_rate: expected a finite number, got inf",
    function() nn.SGD { learning_rate = { 1, math.huge } } end)
  check.fails_here("params[2]: parameter 'warm' is listed twice", function() nn.SGD { params = { p, p } } end)
  check.fails_here("SGD: params[2]: expected a group { params = ..., weight_decay = ... }, as params[1] is one, got",
    function() nn.SGD { params = { { params = { p } }, p } } end)
  check.fails_here("did you mean 'Adafactor'?", function() return nn.Adafacter end)
  check.fails_here("there is no ms.nn.AdaFactor: ms.nn.Adafactor", function() return nn.AdaFactor end)
end)

check.case("every optimizer has help, and defaults that its fields allow", function()
  local help = require "mslua.help"
  for _, info in ipairs(core.optimizers()) do
    local text = help.describe(info.class, 100)
    for _, field in ipairs(info.fields) do
      if not text:find(field.name, 1, true) then error(info.class .. ": no help of " .. field.name) end
      if field.doc == "" then error(info.class .. ": " .. field.name .. " has no help") end
    end
    local p = ms.Parameter(ms.ones { 2, 2 }, "default." .. info.kind)
    local given = { params = { p }, learning_rate = 0.1, momentum = info.kind == "momentum" and 0.9 or nil }
    local opt = info.wraps and nn[info.class](nn.SGD(given)) or nn[info.class](given)
    opt({ ms.ones { 2, 2 } }, { p })
  end
end)

check.case("Lamb stays finite where a gradient has become 0", function()
  local w = ms.Parameter(ms.full({ 8, 8 }, 0.5), "w")
  local update = nn.Lamb { params = { w }, learning_rate = 0.01 }
  for step = 1, 700 do
    update({ step <= 20 and ms.randn({ 8, 8 }, "float32", "g" .. step) or ms.zeros { 8, 8 } }, { w })
  end
  local norm = ms.ops.norm(w.value):item()
  assert(norm < 1e6, tostring(norm))
end)

check.case("parameters that the trained network lacks are refused", function()
  local net, other = nn.Dense(2, 1), nn.Dense(2, 1)
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 2 }, ms.ones { 4, 1 } }, { "x", "y" }):batch(2)
  local opt = nn.SGD { params = { net.weight, other.weight }, learning_rate = 0.1 }
  check.fails("item 2 of its list, is not of the network that is trained, Dense", function()
    ms.Model(net, nn.MSELoss(), opt):train(1, ds)
  end)
end)

check.case("a parameter takes MindSpore's arguments by position", function()
  local p = ms.Parameter(ms.ones { 2 }, "w", true, true, false)
  check.equal({ p.layerwise_parallel, p.parallel_optimizer, p.saved }, { true, false, true })
end)

check.done()
