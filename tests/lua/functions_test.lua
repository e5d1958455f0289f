-- Activations and losses as functions: PyTorch's values, gradients, and the same results as their cells.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local function f64(list) return ms.Tensor(list, "float64") end
local function numbers(t) return ops.reshape(t, { -1 }):totable() end

local x = f64 { -2, -0.5, 0, 0.25, 3 }
local slope = f64 { 0.3 }

-- name -> the call and PyTorch's values.
local activations = {
  leaky_relu = { function(v) return ops.leaky_relu(v, 0.2) end, { -0.4, -0.1, 0, 0.25, 3 }, nn.LeakyReLU(0.2) },
  elu = { function(v) return ops.elu(v, { alpha = 1.5 }) end, { -1.29699707515, -0.590204010431, 0, 0.25, 3 },
    nn.ELU(1.5) },
  selu = { ops.selu, { -1.5201664686, -0.691758187803, 0, 0.262675246839, 3.15210296207 }, nn.SELU() },
  celu = { function(v) return ops.celu(v, 2) end, { -1.26424111766, -0.442398433857, 0, 0.25, 3 }, nn.CELU(2) },
  logsigmoid = { ops.logsigmoid,
    { -2.12692801104, -0.97407698418, -0.69314718056, -0.575939419879, -0.0485873515737 }, nn.LogSigmoid() },
  softmin = { ops.softmin,
    { 0.679993350914, 0.151727025289, 0.092027092745, 0.0716707718936, 0.00458175915819 } },
  softsign = { ops.softsign, { -2 / 3, -1 / 3, 0, 0.2, 0.75 }, nn.Softsign() },
  hardshrink = { ops.hardshrink, { -2, 0, 0, 0, 3 } },
  softshrink = { ops.softshrink, { -1.5, 0, 0, 0, 2.5 } },
  prelu = { function(v) return ops.prelu(v, slope) end, { -0.6, -0.15, 0, 0.25, 3 } },
}

-- The gradient of the sum of f's squares against differences, where f is smooth.
local function check_gradient(f, at)
  local function total(v) return ops.reduce_sum(ops.square(f(v))) end
  local got, list = numbers(ms.grad(total)(at)), numbers(at)
  for i = 1, #list do
    local function moved(by)
      local changed = { unpack(list) }
      changed[i] = changed[i] + by
      return total(ops.reshape(f64(changed), at.shape)):item()
    end
    check.near(got[i], (moved(1e-6) - moved(-1e-6)) / 2e-6, 1e-7)
  end
end

for name, case in pairs(activations) do
  check.case(name, function()
    local f, wanted, cell = unpack(case)
    check.near(f(x):totable(), wanted, 1e-10)
    if cell then check.equal(cell(x):totable(), f(x):totable()) end
    check_gradient(f, f64 { -2, -0.625, 0.25, 3 })
  end)
end

check.case("glu", function()
  check.near(ops.glu(f64 { -2, -0.5, 0, 0.25 }):totable(), { -1, -0.281088250443 }, 1e-10)
  check_gradient(ops.glu, f64 { { -2, -0.5 }, { 0.5, 0.25 } })
  check.fails_here("GLU: x: expected an even size along axis -1, got {3}", function() ops.glu(ms.ones { 3 }) end)
end)

check.case("prelu has a slope for each channel", function()
  local w = f64 { 0.5, 0.25 }
  check.equal(ops.prelu(f64 { { -1, -1 }, { 2, -4 } }, w):totable(), { { -0.5, -0.25 }, { 2, -1 } })
  check_gradient(function(v) return ops.prelu(f64 { { -1, -1 }, { 2, -4 } }, v) end, w)
  check.fails_here("PReLU: x: expected 2 channels, [n, 2, ...], got {1, 3}",
    function() ops.prelu(ms.ones { 1, 3 }, w) end)
end)

local z = f64 { { 0.5, -2, 1 }, { 0, 3, -1 } }
local q = f64 { { 1, 0, 0.5 }, { 0, 1, 0.25 } }
local ids, weight = ms.Tensor({ 2, 0 }, ms.int32), f64 { 0.5, 1, 2 }

-- Each loss as a function of the output, and PyTorch's values.
local losses = {
  cross_entropy = { function(v) return ops.cross_entropy(v, ids, weight) end, 1.01685430263 },
  ["cross_entropy with label_smoothing"] = { function(v)
    return ops.cross_entropy(v, ids, { weight = weight, reduction = "sum", label_smoothing = 0.1 })
  end, 2.77947827495 },
  nll_loss = { function(v) return ops.nll_loss(v, ids, weight) end, -0.8 },
  binary_cross_entropy = { function(v) return ops.binary_cross_entropy(ops.sigmoid(v), q, weight) end, 0.585362365843 },
  binary_cross_entropy_with_logits = {
    function(v) return ops.binary_cross_entropy_with_logits(v, q, weight, weight) end, 0.727257913382 },
  kl_div = { function(v) return ops.kl_div(v, q) end, -0.740524530093 },
  ["kl_div, batchmean"] = { function(v) return ops.kl_div(v, q, "batchmean") end, -2.22157359028 },
  l1_loss = { function(v) return ops.l1_loss(v, q) end, 1.04166666666667 },
  smooth_l1_loss = { function(v) return ops.smooth_l1_loss(v, q, 0.5) end, { 0.25, 1.75, 0.25, 0, 1.75, 1 } },
  huber_loss = { function(v) return ops.huber_loss(v, q, { delta = 0.75 }) end, 0.557291666666667 },
  mse_loss = { function(v) return ops.mse_loss(v, q) end, 1.67708333333333 },
}

for name, case in pairs(losses) do
  check.case(name, function()
    local f, wanted = unpack(case)
    local y = f(z)
    check.near(#y.shape == 0 and y:item() or numbers(y), wanted, 1e-10)
    check_gradient(f, f64 { { 0.5625, -2, 1.25 }, { 0.125, 3.5, -1 } })
  end)
end

check.case("tensors like another one", function()
  local v = ms.ones({ 2, 1 }, ms.int32)
  check.equal(ops.zeros_like(v):totable(), { { 0 }, { 0 } })
  check.equal(ops.ones_like(v, ms.float64).dtype, "float64")
  check.equal(ops.full_like(v, 3):totable(), { { 3 }, { 3 } })
  check.equal(ops.full_like(v, 3).dtype, "int32")
  check.fails_here("full: the number 2.5 is not in int32", function() ops.full_like(v, 2.5) end)
end)

check.case("logarithms, trunc and frac", function()
  local v = f64 { 0.125, 1, 1000 }
  check.near(ops.log2(v):totable(), { -3, 0, 9.96578428466209 }, 1e-12)
  check.near(ops.log10(v):totable(), { -0.903089986991944, 0, 3 }, 1e-12)
  check_gradient(ops.log2, f64 { 0.5, 3 })
  check_gradient(ops.log10, f64 { 0.5, 3 })
  check.equal(ops.trunc(f64 { -1.75, -0.5, 0, 2.25 }):totable(), { -1, 0, 0, 2 })
  check.equal(ops.frac(f64 { -1.75, -0.5, 0, 2.25 }):totable(), { -0.75, -0.5, 0, 0.25 })
  check_gradient(ops.frac, f64 { -1.75, 2.25 })
end)

check.case("any and all", function()
  local v = ms.Tensor { { true, false }, { true, true } }
  check.equal(ops.any(v, 1):totable(), { true, true })
  check.equal(ops.all(v, 1):totable(), { true, false })
  check.equal(ops.all(v, { axis = 2, keep_dims = true }):totable(), { { false }, { true } })
  check.equal({ ops.any(v):item(), ops.all(v):item() }, { true, false })
  check.equal(ops.any(f64 { { 0, 0 }, { 0, -0.5 } }, 2):totable(), { false, true })
  local none = ms.zeros({ 0, 2 }, ms.bool)
  check.equal(ops.any(none, 1):totable(), { false, false })
  check.equal({ ops.any(none):item(), ops.all(none):item() }, { false, true })
end)

local inf, nan = math.huge, 0 / 0

-- Lists that may have NaN and infinities.
local function check_list(got, wanted)
  for i, w in ipairs(wanted) do
    local same = w ~= w and got[i] ~= got[i] or w == got[i] or math.abs(got[i] - w) <= 1e-12 * math.abs(w)
    if not same then error(("element %d: expected %.17g, got %.17g"):format(i, w, got[i]), 2) end
  end
end

check.case("count_nonzero and logical_xor", function()
  check.equal(ops.count_nonzero(z):item(), 5)
  check.equal(ops.count_nonzero(z, 2):totable(), { 3, 2 })
  check.equal(ops.count_nonzero(z, { axis = 1, keep_dims = true }):totable(), { { 1, 2, 2 } })
  local t, f = ms.Tensor { true, true, false, false }, ms.Tensor { true, false, true, false }
  check.equal(ops.logical_xor(t, f):totable(), { false, true, true, false })
  check.fails_here("logical_xor: expected two tensors of bool, got bool and float32",
    function() ops.logical_xor(t, ms.ones { 4 }) end)
end)

check.case("logaddexp", function()
  local a, b = f64 { 0, 1, -1000, inf, -inf, -inf, inf, nan, 3 }, f64 { -20, 1, 1e8, 1, -inf, 2, inf, 1, 3 }
  check_list(numbers(ops.logaddexp(a, b)),
    { 2.0611536203143e-09, 1.6931471805599454, 1e8, inf, -inf, 2, inf, nan, 3.6931471805599454 })
  check.near(numbers(ops.logaddexp(f64 { { 0 }, { 1 } }, f64 { 0, 1 })),
    { 0.69314718056, 1.31326168752, 1.31326168752, 1.69314718056 }, 1e-11)
  local function of(v) return ops.logaddexp(v, ops.reverse(v, { 1 }) * 0.5) end
  check_gradient(of, f64 { -2, -0.5, 0.25, 3 })
  local function at_tie(f)
    local gradient = ms.grad(function(...) return ops.reduce_sum(f(...)) end, { 1, 2 })(f64 { 3 }, f64 { 3 })
    return gradient[1]:item(), gradient[2]:item()
  end
  check.near({ at_tie(ops.logaddexp) }, { 0.5, 0.5 }, 1e-12)
  check.near({ at_tie(ops.hypot) }, { math.sqrt(0.5), math.sqrt(0.5) }, 1e-12)
end)

check.case("polygamma of any order", function()
  local n = ms.Tensor({ 1, 1, 3, 100, 172, 200, 2000, 10000000, 2, 2, 2, 1, 1 }, ms.int32)
  local x = f64 { 1, 1e300, -1.25, 0.5, 200, 200, 2, 2, -0.5, -3.5, 0, inf, nan }
  local found = numbers(ops.polygamma(n, x))
  -- By the sum n! / (x + k)^(n + 1), with 60 digits.
  check.near({ found[1] / (math.pi ^ 2 / 6), found[2] / 1e-300, found[3] / 1.558220912534851e03,
    found[4] / -2.366100660490897e188, found[5] / -3.091437065803189e-87, found[6] / -3.882961587619134e-88 },
    { 1, 1, 1, 1, 1, 1 }, 1e-12)
  check_list({ unpack(found, 7, 8) }, { -inf, -inf })
  check.near({ found[9], found[10] }, { -8.287966442343200e-01, -6.155682132102770e-02 }, 1e-12)
  check_list({ unpack(found, 11) }, { -inf, 0, nan })
end)

check.case("xlogy and hypot", function()
  check_list(numbers(ops.xlogy(f64 { 0, 0, 0, 2, 2, 1, nan }, f64 { 0, nan, -1, 3, 0, inf, 1 })),
    { 0, nan, 0, 2 * math.log(3), -inf, inf, nan })
  check_gradient(function(v) return ops.xlogy(v, ops.square(v) + 1) end, f64 { -2, 0, 0.25, 3 })
  check.equal(numbers(ms.grad(function(v) return ops.reduce_sum(ops.xlogy(f64 { 0, 1 }, v)) end)(f64 { 0, 4 })),
    { 0, 0.25 })
  check_list(numbers(ops.hypot(f64 { 3, -3e200, 0, inf, 1e-200, nan, inf, nan, -inf },
    f64 { 4, 4e200, 0, 1, 0, 1, -inf, inf, nan })), { 5, 5e200, 0, inf, 1e-200, nan, inf, inf, inf })
  check_gradient(function(v) return ops.hypot(v, ops.reverse(v, { 1 })) end, f64 { -2, -0.5, 0.25, 3 })
  check.equal(numbers(ms.grad(function(v) return ops.reduce_sum(ops.hypot(v, v)) end)(f64 { 0 })), { 0 })
end)

check.case("isclose", function()
  local a, b = f64 { 1, 1, inf, inf, nan, 1, -inf }, f64 { 1 + 1e-6, 1.1, inf, 1, nan, inf, inf }
  check.equal(ops.isclose(a, b):totable(), { true, false, true, false, false, false, false })
  check.equal(ops.isclose(a, b, 0.2, 0, true):totable(), { true, true, true, false, true, false, false })
end)

check.case("cross", function()
  check.equal(ops.cross(f64 { { 1, 2, 3 }, { 0, 1, 0 } }, f64 { { 4, 5, 6 }, { 0, 0, 1 } }):totable(),
    { { -3, 6, -3 }, { 1, 0, 0 } })
  check.equal(ops.cross(f64 { { 1 }, { 2 }, { 3 } }, f64 { { 4 }, { 5 }, { 6 } }, 1):totable(),
    { { -3 }, { 6 }, { -3 } })
  check_gradient(function(v) return ops.cross(v, ops.reverse(v, { 1 })) end, f64 { -2, -0.5, 3 })
  check.fails_here("cross: x1: expected vectors of 3 numbers along axis 1, got {5}", function() ops.cross(x, x) end)
end)

local function int(list) return ms.Tensor(list, ms.int32) end

check.case("gather_nd, scatter_nd and tensor_scatter_add", function()
  check.equal(ops.gather_nd(z, int { { 0, 1 }, { 1, 2 } }):totable(), { -2, -1 })
  check.equal(ops.gather_nd(z, int { { { 1 }, { 0 } } }):totable(), { { z[2]:totable(), z[1]:totable() } })
  check.equal(ops.gather_nd(z, int { 1, 0 }):item(), 0)
  local at = int { { 0, 2 }, { 1, 0 }, { 0, 2 } }
  check.equal(ops.scatter_nd(at, f64 { 1, 2, 4 }, { 2, 3 }):totable(), { { 0, 0, 5 }, { 2, 0, 0 } })
  check.equal(ops.scatter_nd(int { { 2 }, { 0 } }, z, { 3, 3 }):totable(),
    { z[2]:totable(), { 0, 0, 0 }, z[1]:totable() })
  check.equal(ops.tensor_scatter_add(z, at, f64 { 1, 2, 4 }):totable(), { { 0.5, -2, 6 }, { 2, 3, -1 } })
  check_gradient(function(v) return ops.gather_nd(v, at) end, z)
  check_gradient(function(v) return ops.tensor_scatter_add(z, at, v) end, f64 { 1, 2, 4 })
  -- The place (0, 3) is not that of (1, 0).
  for _, place in ipairs { { 0, 3 }, { 2, 0 }, { -1, 2 }, { 1, -1 } } do
    local d = (place[1] < 0 or place[1] > 1) and 1 or 2
    local problem = ("_nd: indices: expected 0 to %d in dimension %d, got %d"):format(d, d, place[d])
    check.fails_here("gather" .. problem, function() ops.gather_nd(z, int { place }) end)
    check.fails_here("scatter" .. problem, function() ops.scatter_nd(int { place }, f64 { 1 }, { 2, 3 }) end)
    -- In a graph the operator says it.
    check.fails(("gather: indices[1] is %d, expected 0 to %d"):format(place[d], d),
      function() ms.value_and_grad(function(v) return ops.gather_nd(v, int { place }):sum() end)(z) end)
  end
  check.fails_here("gather_nd: indices: expected integers [.., k], where k is from 1 to 2",
    function() ops.gather_nd(z, int { { 1, 2, 3 } }) end)
  check.fails_here("gather_nd: indices: expected integers", function() ops.gather_nd(z, f64 { { 1, 2 } }) end)
  check.fails_here("scatter_nd: updates: expected {3} for indices {3, 2} of {2, 3}, got {2}",
    function() ops.scatter_nd(at, f64 { 1, 2 }, { 2, 3 }) end)
end)

check.case("modes of pad", function()
  local row = f64 { 1, 2, 3 }
  local function padded(mode, low, high) return ops.pad(row, { low = { low }, high = { high }, mode = mode }) end
  check.equal(padded("constant", 1, 2):totable(), { 0, 1, 2, 3, 0, 0 })
  check.equal(padded("reflect", 2, 1):totable(), { 3, 2, 1, 2, 3, 2 })
  check.equal(padded("symmetric", 3, 1):totable(), { 3, 2, 1, 1, 2, 3, 3 })
  check.equal(padded("replicate", 2, 4):totable(), { 1, 1, 1, 2, 3, 3, 3, 3, 3 })
  check.equal(padded("circular", 1, 3):totable(), { 3, 1, 2, 3, 1, 2, 3 })
  check.equal(ops.pad(row, { 1 }, { 0 }, {}, 7):totable(), { 7, 1, 2, 3 })
  local image = f64 { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(ops.pad(image, { low = { 1, 0 }, high = { 0, 2 }, mode = "reflect" }):totable(),
    { { 4, 5, 6, 5, 4 }, { 1, 2, 3, 2, 1 }, { 4, 5, 6, 5, 4 } })
  for _, mode in ipairs { "reflect", "symmetric", "replicate", "circular" } do
    check_gradient(function(v) return ops.pad(v, { low = { 1, 1 }, high = { 0, 2 }, mode = mode }) end, image)
  end
  check.fails_here('pad: mode "reflect" can put at most 2 elements at each end of axis 1 of x, {3}; got low 3, high 0',
    function() padded("reflect", 3, 0) end)
  check.fails_here('pad: interior and value are for mode "constant"',
    function() ops.pad(row, { low = { 1 }, value = 2, mode = "circular" }) end)
  check.fails_here("pad: low: expected 2 numbers", function() ops.pad(image, { low = { 1 }, mode = "reflect" }) end)
  check.fails_here("pad: mode: expected", function() ops.pad(row, { low = { 1 }, mode = "mirror" }) end)
  -- MindSpore's and PyTorch's padding would be another one here.
  check.fails_here("pad: expected low and high", function() ops.pad(image, { 1, 1 }) end)
end)

check.case("LRN", function()
  local list = {}
  for i = 1, 10 do list[i] = i / 10 end
  local y = nn.LRN(1, 2, 0.1, 0.75)(ops.reshape(f64(list), { 1, 5, 2 }))
  -- PyTorch's LocalResponseNorm(3, 0.3, 0.75, 2).
  check.near(numbers(y), { 0.0592383504873, 0.118036539462, 0.176075100337, 0.232966062025, 0.288371975025,
    0.341990862791, 0.39356147915, 0.44286664932, 0.510455405142, 0.560476047954 }, 1e-11)
  check_gradient(function(v) return nn.LRN(1)(ops.reshape(v, { 1, 4, 1 })) end, f64 { -2, -0.5, 0.25, 3 })
  check.equal(nn.LRN()(ms.ones { 2, 3, 4, 4 }).shape, { 2, 3, 4, 4 })
end)

check.case("swapaxes, outer, pixel_shuffle", function()
  check.equal(ops.swapaxes(ms.ones { 2, 3, 4 }, 1, -1).shape, { 4, 3, 2 })
  check.fails_here("swapaxes: axis1: expected an axis of 2, from 1, got 3", function() ops.swapaxes(z, 1, 3) end)
  check.equal(ops.outer(f64 { 1, 2 }, f64 { 3, 4, 5 }):totable(), { { 3, 4, 5 }, { 6, 8, 10 } })
  check.fails_here("outer: expected two vectors, got shapes {2, 3} and {5}", function() ops.outer(z, x) end)
  check_gradient(function(v) return ops.outer(v, f64 { 3, 4 }) end, f64 { 1, 2 })
  local image = ops.reshape(ms.arange(8), { 1, 4, 1, 2 })
  local large = ops.pixel_shuffle(image, 2)
  check.equal(large:totable(), { { { { 0, 2, 1, 3 }, { 4, 6, 5, 7 } } } })
  check.equal(ops.pixel_unshuffle(large, 2):totable(), image:totable())
  check.fails_here("pixel_shuffle: x: expected a multiple of 9 channels", function() ops.pixel_shuffle(image, 3) end)
end)

-- PyTorch's values, without and with align_corners.
local samples = {
  { "bilinear", "zeros", { 1.92, 7.32, 0, 0 }, { 4.14, 19.44, 11.64, 0 } },
  { "bilinear", "border", { 2.4, 24.4, 20.8, 1 }, { 4.14, 21.6, 19.4, 1 } },
  { "bilinear", "reflection", { 2.4, 24.4, 19.76, 14.44 }, { 4.14, 19.71, 15.52, 13.28 } },
  { "nearest", "zeros", { 1, 0, 0, 0 }, { 1, 16, 32, 0 } },
  { "nearest", "border", { 1, 32, 32, 1 }, { 1, 16, 32, 1 } },
  { "nearest", "reflection", { 1, 32, 32, 4 }, { 1, 16, 32, 4 } },
}

check.case("grid_sample", function()
  local image = ops.reshape(f64 { 1, 2, 4, 8, 16, 32 }, { 1, 1, 2, 3 })
  local grid = ops.reshape(f64 { -0.8, -0.3, 0.35, 1.2, 1.4, 0.1, -2.6, -1.9 }, { 1, 1, 4, 2 })
  for _, sample in ipairs(samples) do
    for i, align in ipairs { false, true } do
      local function sampled(from, at) return ops.grid_sample(from, at, sample[1], sample[2], align) end
      check.near(numbers(sampled(image, grid)), sample[2 + i], 1e-12)
      check_gradient(function(v) return sampled(v, grid) end, image / 32)
      if sample[1] == "bilinear" then check_gradient(function(v) return sampled(image / 32, v) end, grid) end
    end
  end
  check.equal(ops.grid_sample(ms.ones { 2, 3, 4, 5 }, ms.zeros { 2, 6, 7, 2 }).shape, { 2, 3, 6, 7 })
  -- Places that bfloat16 has, in an image whose pixels it does not count; and more pixels than float32 counts.
  local wide = ops.reshape(ms.arange(0, 4000, 1, ms.float32), { 1, 1, 4, 1000 })
  local places = ms.Tensor { { { { 0.5, 0.5 }, { -0.25, 1 }, { 0.625, -0.75 } } } }
  check.equal(ops.grid_sample(wide, ops.cast(places, "bfloat16")):totable(), ops.grid_sample(wide, places):totable())
  local tall = ops.reshape(ms.arange(0, 5000 * 4000, 1, "int32"), { 1, 1, 5000, 4000 })
  local last = ms.Tensor { { { { 0.99975, 0.9998 }, { 0.99925, 0.9998 } } } }
  local at = numbers(ops.grid_sample(ops.cast(ops.floor_mod(tall, 1000), ms.float32), last, "nearest"))
  check.equal(at, { 999, 998 })
  check.fails_here("grid_sample: grid: expected [1, out_height, out_width, 2], got the shape {2, 6, 7, 2}",
    function() ops.grid_sample(image, ms.zeros { 2, 6, 7, 2 }) end)
  check.fails_here("grid_sample: input: expected [n, channels, height, width], got the shape {2, 3}",
    function() ops.grid_sample(z, grid) end)
  for _, mode in ipairs { "bilinear", "nearest" } do
    local nowhere = ms.Tensor { { { { 0, 0 / 0 }, { 0, 0 } } } }
    local found = numbers(ops.grid_sample(ms.ones { 1, 1, 3, 3 }, nowhere, mode))
    check_list(found, { nan, 1 })
  end
end)

check.case("affine_grid", function()
  local theta = f64 { { { 0.5, -0.25, 0.125 }, { 0.25, 1, -0.5 } } }
  check.near(numbers(ops.affine_grid(theta, { 1, 1, 2, 2 })), { 0, -1.125, 0.5, -0.875, -0.25, -0.125, 0.25, 0.125 },
    1e-15)
  check.near(numbers(ops.affine_grid(theta, { 1, 1, 2, 2 }, true)),
    { -0.125, -1.75, 0.875, -1.25, -0.625, 0.25, 0.375, 0.75 }, 1e-15)
  check_gradient(function(v) return ops.affine_grid(v, { 1, 3, 2, 3 }) end, theta)
  check.fails_here("affine_grid: theta: expected [2, 2, 3], got the shape {1, 2, 3}",
    function() ops.affine_grid(theta, { 2, 1, 2, 2 }) end)
end)

check.case("repeat_interleave", function()
  check.equal(ops.repeat_interleave(f64 { { 1, 2 }, { 3, 4 } }, 2):totable(), { 1, 1, 2, 2, 3, 3, 4, 4 })
  check.equal(ops.repeat_interleave(f64 { { 1, 2 }, { 3, 4 } }, 2, 1):totable(),
    { { 1, 2 }, { 1, 2 }, { 3, 4 }, { 3, 4 } })
  check_gradient(function(v) return ops.repeat_interleave(v, 3, -1) end, f64 { { 1, 2 }, { 3, 4 } })
  check.fails_here("repeat_interleave: axis: expected an axis of 2", function() ops.repeat_interleave(z, 2, 4) end)
end)

check.case("pairwise_distance and cosine_similarity", function()
  local a, b = f64 { { 3, 4 }, { 1, 0 } }, f64 { { 0, 0 }, { 1, 1 } }
  check.near(ops.pairwise_distance(a, b, 2, 0):totable(), { 5, 1 }, 1e-12)
  check.near(ops.pairwise_distance(a, b, { p = 1, keepdim = true }):totable(), { { 7 + 2e-6 }, { 1 } }, 1e-12)
  check.near(ops.cosine_similarity(a, b):totable(), { 0, math.sqrt(0.5) }, 1e-12)
  check.near(ops.cosine_similarity(a, f64 { { 4, 3 }, { 2, 0 } }, 1):totable(),
    { 14 / math.sqrt(200), 12 / 12 }, 1e-12)
  check_gradient(function(v) return ops.pairwise_distance(v, f64 { { 1, 2 }, { 2, -3 } }) end, a)
  check_gradient(function(v) return ops.cosine_similarity(v, f64 { { 1, 2 }, { 2, -3 } }) end, a)
  check.fails_here("cosine_similarity: expected two tensors of one shape, got {2, 3} and {5}",
    function() ops.cosine_similarity(z, x) end)
end)

check.case("what a function does not take", function()
  check.fails_here("l1_loss: target is missing", function() ops.l1_loss(z) end)
  check.fails_here("elu: alpha: expected a number, at least 0, got -1", function() ops.elu(x, -1) end)
  check.fails_here("L1Loss: expected a label of shape [2, 3]", function() ops.l1_loss(z, x) end)
  check.fails_here("softmin: x: expected a tensor, got 3", function() ops.softmin(3) end)
  check.fails_here("unknown key 'lambda'", function() ops.hardshrink(x, { lambda = 1 }) end)
end)

check.case("in the graph of a training step", function()
  local Net = nn.Cell:extend "Net"
  function Net:init() self.fc = nn.Dense(3, 3) end
  function Net:construct(v) return ops.elu(self.fc(v)) end
  local ds = ms.dataset.NumpySlicesDataset({ ms.ones { 4, 3 }, ms.zeros({ 4 }, ms.int32) }, { "x", "label" }):batch(2)
  local net = Net()
  local function loss_of() return ops.cross_entropy(net(ms.ones { 4, 3 }), ms.zeros({ 4 }, ms.int32)):item() end
  local before = loss_of()
  local model = ms.Model(net, {
    loss_fn = function(output, label) return ops.cross_entropy(output, label) end,
    optimizer = nn.SGD { params = net:trainable_params(), learning_rate = 0.5 },
  })
  model:train(2, ds)
  assert(loss_of() < before)
end)

check.case("xlogy has the gradient log(x2) at 0, hypot hands a NaN on", function()
  local function grad(x1, x2)
    return ms.grad(function(a, b) return ops.xlogy(a, b):sum() end, { 1, 2 })(ms.Tensor(x1), ms.Tensor(x2))
  end
  local found = grad({ 0, 0, 0, 2 }, { 2.5, 0.5, 0, 4 })
  check.near(found[1]:totable(), { math.log(2.5), math.log(0.5), 0, math.log(4) }, 1e-6)
  check.near(found[2]:totable(), { 0, 0, 0, 0.5 }, 1e-6)
  local x1, x2 = ms.Tensor { 0 / 0, 0, 3, 1 / 0 }, ms.Tensor { 0, 0 / 0, 4, 1 }
  local roots = ops.hypot(x1, x2):totable()
  check.equal(roots[1] ~= roots[1] and roots[2] ~= roots[2], true)
  check.equal({ roots[3], roots[4] }, { 5, math.huge })
end)

check.case("acosh is NaN below 1 in float32", function()
  local found = ops.acosh(ms.Tensor({ 1, 0.5, -4000, -5000, -1e8, -1e30, 1 / 0 }, ms.float32)):totable()
  check.equal(found[1], 0)
  for i = 2, 6 do check.equal(found[i] ~= found[i], true) end
  check.equal(found[7], math.huge)
end)

check.case("shape and square need a tensor", function()
  check.fails_here("shape: expected a tensor, got nil", function() ops.shape(nil) end)
  check.fails_here("square: expected a tensor, got nil", function() ops.square() end)
end)

-- Large tensors go through one compiled graph, their pieces through one operator after the other.
check.case("functions of large tensors give what they give for pieces", function()
  local rows, columns = 3, 2 ^ 17
  local inf, nan = math.huge, 0 / 0
  local edges = ms.Tensor({ { 0, -0.5, 0.5, 1, -1, inf, -inf, nan, 1e38, -1e38 } }, ms.float32)
  local function with_edges(t)
    return ops.concat({ ops.tile(edges, { rows, 1 }), t[{ {}, { 11, columns } }] }, 2)
  end
  local x, y = with_edges(ms.randn { rows, columns }), with_edges(ops.roll(ms.randn { rows, columns }, { 3 }, { 2 }))
  local one = ms.Tensor({ 0.3 }, ms.float32)
  local cases = {
    leaky_relu = function(a) return ops.leaky_relu(a, 0.01) end, elu = function(a) return ops.elu(a, 1.5) end,
    selu = ops.selu, celu = function(a) return ops.celu(a, 2) end, logsigmoid = ops.logsigmoid,
    softsign = ops.softsign, prelu = function(a) return ops.prelu(a, one) end,
    hardshrink = ops.hardshrink, softshrink = ops.softshrink, trunc = ops.trunc, frac = ops.frac,
    nan_to_num = ops.nan_to_num, logaddexp = { ops.logaddexp }, xlogy = { ops.xlogy }, hypot = { ops.hypot },
    isclose = { function(a, b) return ops.isclose(a, b, { rtol = 0.5, equal_nan = true }) end },
    lerp = { function(a, b) return ops.lerp(a, b, 0.3) end },
    lerp_by_tensor = { function(a, b) return ops.lerp(a, b, ops.sigmoid(b)) end },
  }
  for name, f in pairs(cases) do
    local arguments, call = type(f) == "table" and { x, y } or { x }, type(f) == "table" and f[1] or f
    local whole = ops.cast(call(unpack(arguments)), ms.float64)
    for row = 1, rows do
      local parts = {}
      for piece = 1, 4 do  -- each too small to be compiled
        local cut = { { row, row }, { (piece - 1) * columns / 4 + 1, piece * columns / 4 } }
        local inputs = {}
        for i, t in ipairs(arguments) do inputs[i] = t[cut] end
        parts[piece] = ops.cast(call(unpack(inputs)), ms.float64)
      end
      local want, got = ops.concat(parts, 2), whole[{ { row, row }, {} }]
      local near = ops.less_equal(ops.abs(got - want), ops.abs(want) * 1e-6 + 1e-6)  -- the graph rounds less
      local equal = ops.isclose(got, want, { rtol = 0, atol = 0, equal_nan = true })
      check.equal({ name, ops.all(ops.logical_or(near, equal)):item() }, { name, true })
    end
  end
end)

check.done()
