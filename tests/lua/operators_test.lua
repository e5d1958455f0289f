-- Values of operators that rearrange, order and sum, as NumPy and PyTorch give them; core/ops tests the invariants of
-- all operators.
local check = require "check"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local function list(x) return ops.cast(x, "float64"):totable() end

check.case("a cast to bool gives truth values in compiled functions", function()
  local x = ms.Tensor { 0, 2.5, -3, 0.5 }
  local loss, gradient = ms.value_and_grad(function(v)
    return ops.reduce_sum(v:astype(ms.bool):astype(ms.float32) * v)
  end)(x)
  check.equal(loss:item(), 0)
  check.equal(gradient:totable(), { 0, 1, 1, 1 })
end)

check.case("an operator without operands takes no string and table in their places", function()
  check.fails_here("attribute 'size': expected an integer", function() ops.iota("float32", { 2 }) end)
  check.fails_here("attribute 'size' is given twice", function() ops.iota(3, { size = 2 }) end)
end)

check.case("reductions of many elements in 16 bits", function()
  local gradient = ms.grad(function(v) return ops.reduce_max(v) end)(ms.zeros({ 70000 }, ms.float16))
  check.near(gradient[1], 1 / 70000, 1e-7)
  -- A sum in f32 stays at 1.
  local least = ms.ones({ 3 * 2 ^ 23 }, ms.float16) * 2 ^ -24
  check.near(ops.reduce_sum(least):astype(ms.float32):item(), 1.5, 1e-3)
end)

check.case("sort and top_k give values and places; NaN counts as the largest", function()
  local x = ms.Tensor { 3, 1, 0 / 0, 2, 1 }
  local values, places = ops.Sort {}(x)
  check.equal(ops.strided_slice(values, { 1 }, { 5 }):totable(), { 1, 1, 2, 3 })
  check.equal(places:totable(), { 1, 4, 3, 0, 2 })
  local top, where = ops.TopK { k = 2 }(ms.Tensor { { 1, 5, 5 }, { 4, 0, 2 } })
  check.equal(top:totable(), { { 5, 5 }, { 4, 2 } })
  check.equal(where:totable(), { { 1, 2 }, { 0, 2 } })
  top, where = ops.top_k(ms.Tensor { { 1, 5, 5 }, { 4, 0, 2 } }, 2)
  check.equal({ top:totable(), where:totable() }, { { { 5, 5 }, { 4, 2 } }, { { 1, 2 }, { 0, 2 } } })
  values, places = ops.sort(ms.Tensor { 3, 1, 2 }, { descending = true })
  check.equal({ values:totable(), places:totable() }, { { 3, 2, 1 }, { 0, 2, 1 } })
  check.fails("k is 4, expected 1 to 3", function() ops.top_k(ms.ones { 3 }, 4) end)
end)

check.case("the gradient of a sorted tensor goes back to its places", function()
  local g = ms.grad(function(x) return ops.reduce_sum((ops.Sort {}(x)) * ms.Tensor { 10, 20, 30 }) end)(
    ms.Tensor { 3, 1, 2 })
  check.equal(g:totable(), { 30, 10, 20 })
end)

check.case("cumsum, reverse, roll and tile", function()
  local x = ms.Tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(ops.cumsum(x):totable(), { { 1, 3, 6 }, { 4, 9, 15 } })
  check.equal(ops.CumSum(true, true)(x, 2):totable(), { { 5, 3, 0 }, { 11, 6, 0 } })
  check.equal(ops.reverse(x, { 2 }):totable(), { { 3, 2, 1 }, { 6, 5, 4 } })
  check.equal(ops.roll(x, { 1, -1 }, { 1, 2 }):totable(), { { 5, 6, 4 }, { 2, 3, 1 } })
  check.equal(ops.tile(ms.Tensor { 1, 2 }, { 2, 2 }):totable(), { { 1, 2, 1, 2 }, { 1, 2, 1, 2 } })
end)

check.case("sums and products of integers wrap round", function()
  local most, least = 2147483647, -2147483648
  local x, zeros = ms.Tensor({ most, 1 }, ms.int32), ms.zeros({ 2 }, ms.int32)
  check.equal((x + x):totable(), { -2, 2 })
  check.equal(ops.abs(ms.Tensor({ least, -3 }, ms.int32)):totable(), { least, 3 })
  check.equal(ops.cumsum(x):totable(), { most, least })
  check.equal(ops.cumsum(ops.reshape(x, { 2, 1 }), 1):totable(), { { most }, { least } })
  check.equal(ops.scatter_add(zeros, zeros, x):totable(), { least, 0 })
  check.equal(ops.scatter_d(zeros, x, { size = 1 }):totable(), { least })
  check.equal(ops.matmul(ops.reshape(x, { 1, 2 }), ops.reshape(x, { 2, 1 })):totable(), { { 2 } })
end)

check.case("a long cumsum does not stop growing", function()
  local x = ms.full({ 2, 1000000 }, 0.1)
  check.near(ops.cumsum(x):totable()[2][1000000], 100000, 0.01)
  check.near(ops.cumsum(ops.transpose(x, { 2, 1 }), 1):totable()[1000000][1], 100000, 0.01)
end)

check.case("triangles, masks and gathered elements", function()
  local x = ms.Tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(ops.tril(x):totable(), { { 1, 0, 0 }, { 4, 5, 0 } })
  check.equal(ops.triu(x, 1):totable(), { { 0, 2, 3 }, { 0, 0, 6 } })
  check.equal(ops.masked_fill(x, ops.greater(x, 4), -1):totable(), { { 1, 2, 3 }, { 4, -1, -1 } })
  local index = ops.cast(ms.Tensor { { 2, 0 }, { 1, 1 } }, "int32")
  check.equal(ops.gather_d(x, index, 2):totable(), { { 3, 1 }, { 5, 5 } })
  check.fails("is 3, expected 0 to 2", function() ops.gather_d(x, index + ms.ones({ 2, 2 }, "int32")) end)
end)

check.case("round goes to even numbers, and half a unit below stays below", function()
  check.equal(ops.round(ms.Tensor { 0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 2.7 }):totable(), { 0, 2, 2, 0, -2, 0, 3 })
  check.equal(ops.ceil(ms.Tensor { 0.2, -0.2, 2 }):totable(), { 1, 0, 2 })
end)

check.case("what is finite", function()
  local x = ms.Tensor { 1, 1 / 0, -1 / 0, 0 / 0, 3.4028235e38, -3.4028235e38 }
  check.equal(list(ops.isfinite(x)), { 1, 0, 0, 0, 1, 1 })
  check.equal(list(ops.isinf(x)), { 0, 1, 1, 0, 0, 0 })
  check.equal(list(ops.isnan(x)), { 0, 0, 0, 1, 0, 0 })
end)

check.case("logsumexp of large numbers, of infinite ones and of none that is finite", function()
  check.near(ops.logsumexp(ms.Tensor { 1000, 1000 }):item(), 1000 + math.log(2), 1e-3)
  check.equal(ops.logsumexp(ms.Tensor { -1 / 0, -1 / 0 }):item(), -1 / 0)
  check.equal(ops.logsumexp(ms.Tensor { 1 / 0, 1 }):item(), 1 / 0)
end)

check.case("gradients of a product with zeros, and of a norm and a deviation that are 0", function()
  local function gradient(f, x) return ms.grad(function(v) return ops.reduce_sum(f(v)) end, 1)(x):totable() end
  local function product(x) return ops.reduce_prod(x, { axis = 2 }) end
  for _, dtype in ipairs { ms.float32, ms.float64, ms.bfloat16 } do
    local x = ms.Tensor({ { 1, 0, 3 }, { 0, 0, 2 }, { 1, 2, 3 } }, dtype)
    check.equal(gradient(product, x), { { 0, 3, 0 }, { 0, 0, 0 }, { 6, 3, 2 } })
    check.equal(gradient(ops.reduce_prod, ms.Tensor({ 2, 0, 4 }, dtype)), { 0, 8, 0 })
    for _, p in ipairs { 1, 2, 3, math.huge } do
      local function norm(v) return ops.norm(v, { axis = 2, p = p }) end
      check.near(gradient(norm, ms.Tensor({ { 0, 0 }, { 0, 2 } }, dtype)), { { 0, 0 }, { 0, 1 } }, 1e-6)
    end
    check.equal(gradient(ops.std, ms.Tensor({ 3, 3 }, dtype)), { 0, 0 })
    check.equal(gradient(function(v) return nn.ClipByNorm()(v, 1) end, ms.zeros({ 2 }, dtype)), { 1, 1 })
  end
  check.equal(ops.norm(ms.zeros { 2 }):item(), 0)
  check.equal(tostring(ops.norm(ms.Tensor { 0 / 0, 1 }):item()), "nan")
end)

check.case("gradients of norms at 0 and at NaN", function()
  local function gradient(x, p)
    return ms.grad(function(v) return ops.norm(v, { p = p }) end)(ms.Tensor(x)):totable()
  end
  for _, p in ipairs { 0.5, 0.9 } do
    check.near(gradient({ 1, 0 }, p), { 1, 0 }, 1e-6)
    check.equal(gradient({ 0, 0 }, p), { 0, 0 })
    check.equal(ops.norm(ms.Tensor { 3, 0 }, { p = p }):item() - 3 < 1e-5, true)
  end
  for _, p in ipairs { 0.5, 2, 3 } do
    for _, slope in ipairs(gradient({ 0 / 0, 1 }, p)) do check.equal(slope ~= slope, true) end
  end
end)

check.case("a size is never negative", function()
  check.fails("Reshape: x is f32[0,3]: [0,-1] has a size 0: any size may stand for its -1", ops.reshape,
    ms.zeros { 0, 3 }, { 0, -1 })
  check.equal(ops.reshape(ms.zeros { 0, 3 }, { 2, -1 }).shape, { 2, 0 })
  check.fails("shape is [-1], expected no negative size", ops.broadcast_to, ms.Tensor { 1 }, { -1 })
  check.fails("expected no negative size", ops.broadcast_to, ms.Tensor { { 1 } }, { -2, -2 })
end)

check.case("an attribute that is NaN", function()
  check.fails("pad: value: expected a finite number, got nan", ops.pad, ms.Tensor { 1 }, { low = { 1 }, value = 0 / 0 })
  check.fails("attribute 'value' is nan, expected a number", ops.Pad { low = { 1 }, value = 0 / 0 }, ms.Tensor { 1 })
  local filled = ops.masked_fill(ms.Tensor { 1 }, ops.greater(ms.Tensor { 1 }, 0), 0 / 0):item()
  check.equal(filled ~= filled, true)
end)

check.case("numbers of 16 bits stay below the end of their range", function()
  for _, dtype in ipairs { "float16", "bfloat16" } do
    local function most(x) return ops.reduce_max(ops.cast(x, ms.float32)):item() end
    local least, range = 1 - (dtype == "float16" and 2 ^ -11 or 2 ^ -8), { shape = { 30000 }, dtype = ms[dtype] }
    check.equal(most(ms.rand({ 30000 }, dtype, "many")), least)
    check.equal(most(ops.random_uniform(0, range)), least)
    range.low, range.high = -2, -1
    check.equal(most(ops.random_uniform(0, range)), -1 - (dtype == "float16" and 2 ^ -10 or 2 ^ -7))
    range.low, range.high = -1, 0
    check.equal(most(ops.random_uniform(0, range)) < 0, true)
  end
end)

check.case("numbers of 32 and 64 bits stay below the end of their range", function()
  local function most(dtype, low, high)
    local drawn = ops.random_uniform(0, { shape = { 30000 }, dtype = dtype, low = low, high = high })
    return ops.reduce_max(ops.cast(drawn, ms.float64)):item()
  end
  check.equal(most(ms.float32, 65536, 65537), 65537 - 2 ^ -7)
  check.equal(most(ms.float64, 2 ^ 53, 2 ^ 53 + 2), 2 ^ 53)
  check.equal(most(ms.float32, 5, 5), 5)
  check.fails("low is 3 and high is 1, expected low <= high", most, ms.float32, 3, 1)
end)

check.case("random numbers of 64 bits are not rounded to 32", function()
  for _, x in ipairs { ops.random_uniform(0, { shape = { 100 }, dtype = ms.float64, low = 0, high = 3 }),
    ops.random_normal(0, { shape = { 100 }, dtype = ms.float64, mean = 0, stddev = 3 }) } do
    local rounded = ops.cast(ops.cast(x, ms.float32), ms.float64)
    check.equal(ops.reduce_max(ops.abs(x - rounded)):item() > 0, true)
  end
end)

check.case("images in any other size", function()
  local x = ms.Tensor { { { { 0, 4 }, { 8, 12 } } } }
  local function of(name, size, more)
    local named = { size = size }
    for k, v in pairs(more or {}) do named[k] = v end
    return ops[name](x, named):totable()[1][1]
  end
  local half, corners = { half_pixel_centers = true }, { align_corners = true }
  check.equal(of("resize_bilinear", { 1, 4 }), { { 0, 2, 4, 4 } })
  check.equal(of("resize_bilinear", { 1, 4 }, half), { { 4, 5, 7, 8 } })
  check.equal(of("resize_bilinear", { 3, 3 }, corners), { { 0, 2, 4 }, { 4, 6, 8 }, { 8, 10, 12 } })
  check.equal(of("resize_bilinear", 1, half), { { 6 } })
  check.equal(of("resize_nearest", { 3, 1 }), { { 0 }, { 0 }, { 8 } })
  check.equal(of("resize_nearest", { 3, 1 }, half), { { 4 }, { 12 }, { 12 } })
  check.equal(of("resize_nearest", { 3, 1 }, corners), { { 0 }, { 8 }, { 8 } })
  check.equal(ops.ResizeBilinearV2 { size = { 3, 3 }, align_corners = true }(x):totable()[1][1][2], { 4, 6, 8 })
  check.fails("align_corners and half_pixel_centers exclude each other", ops.resize_bilinear, x,
    { size = 3, align_corners = true, half_pixel_centers = true })
  check.fails("without pixels", ops.resize_nearest, ms.zeros { 1, 1, 0, 2 }, { size = 3 })
  check.fails("without pixels", ops.adaptive_avg_pool2d, ms.zeros { 1, 1, 0, 2 }, { output_size = 3 })
  check.fails("attribute 'size' is required", ops.resize_nearest, x)
  check.equal(ops.AdaptiveAvgPool2D(1)(ms.ones { 1, 2, 3, 3 }).shape, { 1, 2, 1, 1 })
  check.equal(ops.adaptive_avg_pool2d(ms.ones { 1, 3, 3, 2 }, 1, "NHWC").shape, { 1, 1, 1, 2 })
end)

check.case("collectives of one rank", function()
  local one, x = { group = { 0 } }, ms.Tensor { 1, 2 }
  check.equal(ops.all_reduce_wait(x, one):totable(), { 1, 2 })
  check.equal(ops.all_reduce_wait(ops.all_reduce_start(x, one), one):totable(), { 1, 2 })
  local function waited(v) return ops.reduce_sum(ops.all_reduce_wait(v, one) * 3) end
  check.equal(ms.grad(waited)(x):totable(), { 3, 3 })
  check.equal(ms.grad(function(v) return waited(ops.all_reduce_start(v, one)) end)(x):totable(), { 3, 3 })
  check.equal(ops.stage_sent(x, { group = { 0 }, peer = 0 }):totable(), { 1, 2 })
end)

check.case("boxes of an exchange lie in its tensors", function()
  local function exchange(shape, messages, group)
    return ops.exchange(ms.Tensor { 1, 2, 3 }, { group = group or { 0 }, shape = shape, messages = messages })
  end
  check.equal(exchange({ 4 }, { 0, 0, 1, 0, 2, 0, 0, 0, 3, 1 }):totable(), { 2, 3, 0, 1 })
  check.fails("the result f32[-3] has a negative size", exchange, { -3 }, {})
  check.fails("a box of [1] at [100] does not lie in x [3]", exchange, { 3 }, { 0, 0, 100, 2, 1 })
  check.fails("a box of [2] at [2] does not lie in the result [3]", exchange, { 3 }, { 0, 0, 0, 2, 2 })
  check.fails("a box has the negative number -1", exchange, { 3 }, { 0, 0, -1, 0, 1 })
  check.fails("rank 1 is not in the group [0]", exchange, { 3 }, { 0, 1, 0, 0, 1 })
  check.fails("4 numbers of messages", exchange, { 3 }, { 0, 0, 0, 0 })
  check.fails("has a negative size", ops.stage_recv, { group = { 0 }, peer = 0, dtype = ms.float32, shape = { -2 } })
end)

check.case("variance, deviation and norms", function()
  local x = ms.Tensor { 1, 2, 3, 4 }
  check.near(ops.var(x):item(), 1.25, 1e-6)
  check.near(ops.var(x, { ddof = 1 }):item(), 5 / 3, 1e-6)
  check.near(ops.std(x):item(), math.sqrt(1.25), 1e-6)
  check.near(ops.var(x + 10000):item(), 1.25, 1e-3)
  check.near(ops.norm(x):item(), math.sqrt(30), 1e-5)
  check.near(ops.norm(x, { p = 1 }):item(), 10, 1e-6)
  check.equal(ops.norm(x, { p = math.huge }):item(), 4)
end)

check.case("einsum: products, sums and transposes by letters", function()
  local a, b = ms.Tensor { { 1, 2 }, { 3, 4 } }, ms.Tensor { { 5, 6 }, { 7, 8 } }
  check.equal(ops.einsum({ a, b }, "ij,jk->ik"):totable(), { { 19, 22 }, { 43, 50 } })
  check.equal(ops.einsum({ a, b }, "ij,ij"):item(), 70)
  check.equal(ops.einsum("ij,ij", a, b):item(), 70)
  check.equal(ops.einsum("ij,ij", { a, b }):item(), 70)
  check.equal(ops.einsum("ij->ji", a):totable(), { { 1, 3 }, { 2, 4 } })
  check.equal(ops.einsum({ a }, "ij->ji"):totable(), { { 1, 3 }, { 2, 4 } })
  check.fails("size of 'j' differs: 2 and 3", function() ops.einsum({ a, ms.ones { 3, 2 } }, "ij,jk->ik") end)
  check.fails("it has 1 operands, the call has 2", function() ops.einsum({ a, b }, "ij->ji") end)
end)

check.case("activations as cells", function()
  local x = ms.Tensor { { -4, -1, 0, 1, 4 } }
  check.equal(nn.HSigmoid()(x):totable()[1][1], 0)
  check.equal(nn.HSwish()(x):totable()[1][5], 4)
  check.near(nn.Mish()(x):totable()[1][4], 0.865098, 1e-5)
  check.near(nn.Softplus()(x):totable()[1][3], math.log(2), 1e-6)
  check.equal(nn.PReLU()(x):totable(), { { -1, -0.25, 0, 1, 4 } })
  check.equal(nn.PReLU(2, 0.5)(ms.Tensor { { { -2 }, { 2 } } }):totable(), { { { -1 }, { 2 } } })
end)

check.case("matmul broadcasts leading dimensions and takes vectors, as NumPy's", function()
  local function numbers(shape)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    return ops.reshape(ms.arange(0, n, 1, ms.float32), shape)
  end
  local a, b = numbers { 2, 3, 4 }, numbers { 4, 5 }
  local product = ops.matmul(a, b)
  check.equal(product.shape, { 2, 3, 5 })
  for i = 1, 2 do check.equal(product[i]:totable(), ops.matmul(a[i], b):totable()) end
  check.equal(ops.matmul(a, ops.reshape(b, { 1, 4, 5 })):totable(), product:totable())
  check.equal(ops.matmul(ops.transpose(a, { 1, 3, 2 }), b, { transpose_a = true }):totable(), product:totable())
  check.equal(ops.matmul(ops.transpose(a, { 1, 3, 2 }), b, true):totable(), product:totable())
  local stack = numbers { 3, 1, 4, 5 }
  local all = ops.matmul(a, stack)
  check.equal(all.shape, { 3, 2, 3, 5 })
  for i = 1, 3 do
    for j = 1, 2 do check.equal(all[i][j]:totable(), ops.matmul(a[j], stack[i][1]):totable()) end
  end
  check.equal(ops.matmul(a[1], numbers { 2, 4, 2 }).shape, { 2, 3, 2 })
  check.equal(ops.matmul(a, numbers { 4 }):totable(), { { 14, 38, 62 }, { 86, 110, 134 } })
  check.equal(ops.matmul(numbers { 3 }, a).shape, { 2, 4 })
  check.equal(ops.matmul(numbers { 3 }, numbers { 3 }):item(), 5)
  check.equal(ops.matmul(ms.ones { 2, 3, 0 }, ms.ones { 0, 5 }):totable(), ms.zeros({ 2, 3, 5 }):totable())
  check.fails("x is float32[2, 3, 4] and w is float32[3]: 4 columns against 3 rows",
    function() ops.matmul(a, numbers { 3 }) end)
  check.fails("size of 'b0' differs", function() ops.matmul(a, numbers { 3, 4, 5 }) end)
  local da, db = unpack(ms.grad(function(x, w) return ops.matmul(x, w):sum() end, { 1, 2 })(a, stack))
  check.equal({ da.shape, db.shape }, { { 2, 3, 4 }, { 3, 1, 4, 5 } })
  check.equal(db[1][1][1]:totable(), { 60, 60, 60, 60, 60 })
end)

check.case("an empty list is the shape of a tensor without dimensions", function()
  check.equal(ops.reshape(ms.ones { 1 }, {}).shape, {})
  check.equal(ops.broadcast_to(ms.ones {}, {}).shape, {})
  check.equal(ops.reduce_sum(ms.ones { 2, 2 }, {}):item(), 4)
end)

-- The gradient of a gradient's sum of squares, beside differences of that sum, in float64.
check.case("gradients of gradients", function()
  local labels = ms.Tensor({ 1, 3, 0 }, ms.int32)
  local function wave(shape, phase)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    return ops.reshape(ops.sin(ms.arange(0, n, 1, ms.float64) * 0.7 + phase), shape)
  end
  local vector = { wave({ 4 }, 1) + 1.5, wave({ 4 }, 2) }
  local statistics = { ms.zeros({ 4 }, ms.float64), ms.ones({ 4 }, ms.float64) }
  local shape = { 3, 4 }
  for name, case in pairs {
    layer_norm = { shape, function(x) return (ops.layer_norm(x, vector[1], vector[2])) end },
    layer_norm_of_all = { shape, function(x)
      return (ops.layer_norm(x, wave(shape, 3), wave(shape, 4), { axis = 1 }))
    end },
    rms_norm = { shape, function(x) return (ops.rms_norm(x, vector[1])) end },
    batch_norm = { shape, function(x) return (ops.batch_norm(x, vector[1], vector[2], unpack(statistics))) end },
    batch_norm_of_running = { shape, function(x)
      return (ops.batch_norm(x, vector[1], vector[2], statistics[1], statistics[2], { training = false }) * x)
    end },
    cross_entropy = { shape, function(x) return nn.CrossEntropyLoss { reduction = "none" }(x, labels) end },
    smoothed = { shape, function(x)
      return nn.CrossEntropyLoss { label_smoothing = 0.2, ignore_index = 3, reduction = "none" }(x, labels)
    end },
    max_pool2d = { { 1, 2, 5, 6 }, function(x)
      local y = ops.max_pool2d(x, { kernel_size = { 3, 2 }, stride = { 2 }, pad_mode = "pad", padding = { 1 } })
      return y * y * y
    end },
    max_pool2d_of_last = { { 1, 5, 6, 2 }, function(x)
      local y = ops.max_pool2d(x, { kernel_size = { 2 }, stride = { 2 }, pad_mode = "same", data_format = "NHWC" })
      return y * y * y
    end },
    attention = { shape, function(x) return (ops.scaled_dot_product_attention(x, x * 0.7, x * x)) end },
    causal = { shape, function(x)
      return (ops.scaled_dot_product_attention(x, x * 0.7, x * x, { causal = true, scale = 0.8 }))
    end },
  } do
    local x = wave(case[1], 5)
    local weight = wave(case[2](x).shape, 6)
    local function squares(at)
      local g = ms.grad(function(y) return (case[2](y) * weight):sum() end)(at)
      return (g * g):sum()
    end
    local step = wave(case[1], 7) * 1e-5
    local difference = (squares(x + step) - squares(x - step)):item() / 2
    local slope = (ms.grad(squares)(x) * step):sum():item()
    check.near({ slope / 1e-5 }, { difference / 1e-5 }, 1e-6 * (1 + math.abs(slope / 1e-5)), name)
  end
end)

check.case("mixed types: the wider one is the way out", function()
  local narrow, wide = ms.ones({ 2 }, ms.uint8), ms.full({ 2 }, 300, ms.int32)
  check.fails("convert a with :astype(ms.int32)", function() return narrow + wide end)
  check.fails("convert b with :astype(ms.int32)", function() return wide + narrow end)
  check.fails("convert x1 with :astype(ms.float64)", function()
    return ops.einsum("ij,jk->ik", ms.ones({ 2, 2 }, ms.float64), ms.ones { 2, 2 })
  end)
  check.fails("expected a bool tensor, got the number 0.7", ops.logical_and, ms.ones { 2 }, 0.7)
end)

check.case("a cast without a type is an error", function()
  check.fails_here("Cast: attribute 'dtype' is required", function() ops.cast(ms.ones { 2 }) end)
end)

check.done()
