-- Tensors in eager code and in networks: slices, comparisons, results of operators, prints.
local check = require "check"
local ms = require "mslua"
local ops = ms.ops

local x = ms.arange(24):reshape(4, 6)  -- x[i][j] is 6 (i - 1) + j - 1

check.case("whole numbers above 2^24 are not rounded where no type is given", function()
  local large = 2 ^ 24 + 1
  check.fails_here("16777217 would be rounded to 16777216 by float32, the default: give a dtype, such as "
    .. '"int32"', function() ms.Tensor { 1, large } end)
  check.fails_here('-1099511627777 would be rounded to -1099511627776 by float32, the default: give a dtype, such as '
    .. '"int64"', function() ms.Tensor { { -2 ^ 40 - 1 } } end)
  check.fails_here("16777217 would be rounded", function() ms.full({ 2 }, large) end)
  check.fails_here("16777217 would be rounded", function() ms.Tensor(large) end)
  check.fails_here("16777217 would be rounded", function()
    ms.dataset.NumpySlicesDataset({ { 1, large } }, { "id" }):batch(2)
  end)
  check.equal(ms.Tensor({ large, -large }, ms.int32):totable(), { large, -large })
  check.equal(ms.full({ 2 }, large, ms.int32):totable(), { large, large })
  check.equal(ms.Tensor({ large }, ms.float32):totable(), { large - 1 })
  check.equal(ms.Tensor({ 2 ^ 24, 1e10, 1e300 }, ms.float64):totable(), { 2 ^ 24, 1e10, 1e300 })
  check.equal(ms.Tensor({ 2 ^ 24, 2 ^ 40, large - 0.5 }):totable(), { 2 ^ 24, 2 ^ 40, 2 ^ 24 })
end)

check.case("methods take names as functions do", function()
  local y = ms.Tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(y:sum { axis = 2 }:totable(), { 6, 15 })
  check.equal(y:mean({ axis = 2, keep_dims = true }):totable(), { { 2 }, { 5 } })
  check.equal(y:max(1, { keep_dims = true }):totable(), { { 4, 5, 6 } })
  check.equal({ y:sum({}):item(), y:sum():item(), y:sum({ keep_dims = true }).shape }, { 21, 21, { 1, 1 } })
  check.equal(ms.arange(24):reshape(2, 3, 4):transpose { perm = { 1, 3, 2 } }.shape, { 2, 4, 3 })
  check.equal(y:reshape { shape = { 3, -1 } }.shape, { 3, 2 })
  check.equal({ y:argmax():item(), y:argmax { dtype = ms.int64 }.dtype, y:argmax(nil, ms.int64).dtype },
    { 5, "int64", "int64" })
  check.equal(y:argmax { axis = 2 }:totable(), { 2, 2 })
  check.fails_here("axs", function() local _ = y:max { axs = 2 } end)
  check.fails_here("size", function() local _ = y:reshape { size = { 6 } } end)
  local traced = ms.grad(function(a) return ops.reduce_sum(a:sum { axis = 2 } * ms.Tensor { 1, 10 }) end)
  check.equal(traced(y):totable(), { { 1, 1, 1 }, { 10, 10, 10 } })
end)

check.case("a list with names is an error, not a list", function()
  local y = ms.ones { 2, 3 }
  check.fails_here('a list has no key "keep_dims": named arguments are a table of their own, the last argument',
    function() local _ = ops.reduce_sum(y, { 1, keep_dims = true }) end)
  check.fails_here('a list has no key "axis"', function() local _ = ops.concat { y, y, axis = 2 } end)
  check.fails_here('a list has no key "dtype"', function() local _ = ms.zeros { 2, 3, dtype = ms.int32 } end)
  check.fails_here('a list has no key "shape"', function() local _ = ms.zeros { shape = { 2, 3 } } end)
  check.fails_here('a list has no key "value"', function() local _ = ms.full({ 2, value = 3 }, 1) end)
  check.fails_here('a list has no key "foo"', function() local _ = y:reshape { 3, 2, foo = 1 } end)
  check.fails_here('a list has no key "b"', function() local _ = y[{ 1, b = 3 }] end)
end)

check.case("slices take first to last, both included", function()
  check.equal(x[{ {}, { 2, 5 }, nil }]:totable(), { { 1, 2, 3, 4 }, { 7, 8, 9, 10 }, { 13, 14, 15, 16 },
    { 19, 20, 21, 22 } })
  check.equal(x[{ { 2, 3 } }].shape, { 2, 6 })
  check.equal(x[{ { 2, 3 }, -1 }]:totable(), { 11, 17 })
  check.equal(x[{ -1, { 1, 2 } }]:totable(), { 18, 19 })
  check.equal(x[{ {}, { 1, 6, 2 } }]:totable(), { { 0, 2, 4 }, { 6, 8, 10 }, { 12, 14, 16 }, { 18, 20, 22 } })
  check.equal(x[{ { 1, 4, 3 }, { -2, -1 } }]:totable(), { { 4, 5 }, { 22, 23 } })
  check.equal(x[{ { 1, 3, 5 }, 2 }]:totable(), { 1 })
  check.equal({ x[{ 2, 3 }], x[{ -1, -1 }] }, { 8, 23 })
  check.equal(x[{ 2 }]:totable(), { 6, 7, 8, 9, 10, 11 })
  check.equal(x[{ {} }]:totable(), x:totable())
  local p = ms.Parameter(ms.Tensor { { 1, 2 }, { 3, 4 } }, "p")
  check.equal(p[{ {}, 2 }]:totable(), { 2, 4 })
end)

check.case("slices that make no sense", function()
  check.fails_here("subscript 2 of i32[4,6]: expected 1 to 6, or -1 to -6 from the end, got 7",
    function() return x[{ 1, { 2, 7 } }] end)
  check.fails_here("or -1 to -4 from the end, got 0", function() return x[{ { 0, 2 } }] end)
  check.fails_here("expected first not behind last, got {3, 2}", function() return x[{ { 3, 2 } }] end)
  check.fails_here("ops.reverse(x, axis) turns an axis around", function() return x[{ { 2, 1, -1 } }] end)
  for _, by in ipairs { ms.Tensor({ 1, 0 }, ms.int32), ops.greater(x, 2) } do
    check.fails_here("ops.gather(x, ids, axis) takes ids, which count from 0, and ops.where(mask, x, 0) a mask",
      function() return x[by] end)
  end
  check.fails_here("expected a step of at least 1, got {1, 2, 0}", function() return x[{ { 1, 2, 0 } }] end)
  check.fails_here("expected an integer, {} for all, {first, last}", function() return x[{ { 2 } }] end)
  check.fails_here("expected an integer, {} for all", function() return x[{ "all" }] end)
  check.fails_here("expected a list of 1 to 2 subscripts, got 3", function() return x[{ 1, 1, 1 }] end)
  check.fails_here("expected a list of 1 to 2 subscripts, got 0", function() return x[{}] end)
  check.fails_here("expected a list of 1 subscript, got 2", function() return ms.ones { 2 }[{ 1, 1 }] end)
  check.fails_here("Softmax: takes 1 tensor and 1 attribute; one argument too many: 2",
    function() ops.softmax(ms.ones { 2 }, 1, 2) end)
end)

check.case("slices of random ranges are what an element by element copy gives", function()
  local y = ms.randn { 5, 4, 6 }
  local all, draw = y:totable(), 0
  local function random(n)
    draw = draw + 1
    return 1 + math.floor(ms.rand({ 1 }, "float64", "slices" .. draw)[1] * n)
  end
  for _ = 1, 60 do
    local index, lists = {}, {}
    for d, n in ipairs(y.shape) do
      local a, b, step = random(n), random(n), random(3)
      if a > b then a, b = b, a end
      index[d] = random(4) == 1 and a - (random(2) - 1) * (n + 1) or { a, b - (random(2) - 1) * (n + 1), step }
      lists[d] = {}
      if type(index[d]) == "number" then
        lists[d].alone = a
      else
        for i = a, b, step do table.insert(lists[d], i) end
      end
    end
    local function expected(d, v)
      if d > 3 then return v end
      if lists[d].alone then return expected(d + 1, v[lists[d].alone]) end
      local list = {}
      for k, i in ipairs(lists[d]) do list[k] = expected(d + 1, v[i]) end
      return list
    end
    local got = y[index]
    check.equal(type(got) == "number" and got or got:totable(), expected(1, all))
  end
end)

check.case("gradients flow through slices", function()
  local g = ms.grad(function(v) return (v[{ {}, { 1, 5, 2 } }] * v[{ {}, { 2, 6, 2 } }]):sum() + v[{ 1, 1 }] end)
  local v = ms.Tensor({ { 1, 2, 3, 4, 5, 6 }, { 7, 8, 9, 10, 11, 12 } }, ms.float32)
  check.equal(g(v):totable(), { { 3, 1, 4, 3, 6, 5 }, { 8, 7, 10, 9, 12, 11 } })
end)

check.case("single elements compare by value", function()
  local a, b = ms.Tensor { 1 }, ms.Tensor(2)
  check.equal({ a < b, a <= b, a > b, a >= b, a < a, a <= a }, { true, true, false, false, false, true })
  local big = ms.Tensor({ 2 ^ 53 }, ms.int64)
  check.equal({ big < big + 1, big + 1 < big }, { true, false })
  local nan = ms.Tensor(0 / 0)
  check.equal({ nan < b, nan <= nan, b < nan }, { false, false, false })
  local p = ms.Parameter(ms.Tensor { 3 }, "p")
  check.equal({ b < p, p <= b }, { true, false })
end)

check.case("an int64 that a Lua number does not hold is an error", function()
  local big = ms.Tensor({ 2 ^ 53, -2 ^ 62 }, ms.int64)
  check.equal(big:totable(), { 2 ^ 53, -2 ^ 62 })
  local odd = big + 1
  check.equal(tostring(odd), "[    9007199254740993, -4611686018427387903]")
  local says = "the int64 9007199254740993 would be rounded as a Lua number"
  check.fails(says, function() return odd[1] end)
  check.fails(says, function() return odd:totable() end)
  check.fails(says, function() return ops.reshape(odd[{ { 1, 1 } }], {}):item() end)
end)

check.case("element types are not converted by themselves", function()
  check.fails_here("Add: a is f32[4,6] and b is i32[6]: element types differ, and none is converted by itself; convert "
    .. "b with :astype(ms.float32)", function() return x:astype(ms.float32) + ms.arange(6) end)
  check.fails_here("Mul: a is i32[6] and b is f64[]: element types differ, and none is converted by itself; convert a "
    .. "with :astype(ms.float64)", function() return ms.arange(6) * ms.Tensor(2, ms.float64) end)
end)

check.case("a remainder says how it is written", function()
  local x = ms.Tensor({ 5, -7 }, ms.float32)
  check.fails("a % b: tensors have no %", function() return x % 3 end)
  check.fails("a % b: tensors have no %", function() return 3 % x end)
  check.equal((x - ops.floor(x / 3) * 3):totable(), { 5 % 3, -7 % 3 })
end)

check.case("functions of operators with several results give the first", function()
  local y, gamma, beta = ms.randn { 4, 8 }, ms.ones { 8 }, ms.zeros { 8 }
  check.equal(select("#", ops.layer_norm(y, gamma, beta)), 1)
  local all = { ops.layer_norm.all(y, gamma, beta) }
  check.equal(#all, 3)
  check.equal(all[1]:totable(), ops.layer_norm(y, gamma, beta):totable())
  check.equal(tostring(ops.layer_norm), "ops.layer_norm: the first of y, mean, rstd; ops.layer_norm.all gives all")
  check.equal(select(2, ops.LayerNorm()(y, gamma, beta)):totable(), all[2]:totable())
  check.equal(select("#", ops.relu(y)), 1)
end)

check.case("a shape of too many elements", function()
  check.fails("reshape: [4294967296,4294967296] has too many elements",
    function() ms.zeros { 0 }:reshape(2 ^ 32, 2 ^ 32) end)
end)

check.case("nn.Flatten of no rows", function()
  check.equal(ms.nn.Flatten()(ms.zeros { 0, 3, 4 }).shape, { 0, 12 })
  check.equal(ms.nn.Flatten()(ms.zeros { 2, 3, 4 }).shape, { 2, 12 })
  check.equal(ms.nn.Flatten()(ms.zeros { 2 }).shape, { 2, 1 })
end)

check.case("a shape without dimensions is that of one number", function()
  check.equal(ms.Tensor({ 2 }, ms.int32, {}).shape, {})
  check.equal(ms.Tensor(5, ms.int32, {}):item(), 5)
  check.fails_here("", function() ms.Tensor({ 1, 2 }, ms.int32, {}) end)
  check.equal(ms.Tensor({ 1, 2 }, ms.int32, { 2, 1 }).shape, { 2, 1 })
  check.equal(ms.Tensor({ 1, 2 }, { dtype = ms.int32, shape = { 2, 1 } }).shape, { 2, 1 })
end)

check.case("ndim is a field of tensors, parameters and traced values", function()
  check.equal({ ms.ones({ 2, 3 }).ndim, ms.Tensor(1).ndim, ms.Parameter(ms.ones { 2 }, "ndim").ndim }, { 2, 0, 1 })
  local found
  ms.grad(function(x)
    found = x.ndim
    return x:sum()
  end)(ms.ones { 2, 3, 4 })
  check.equal(found, 3)
end)

check.case("astype and ms.Tensor convert as ops.cast does, between all types", function()
  local types = { "bool", "uint8", "int32", "int64", "bfloat16", "float16", "float32", "float64" }
  local numbers = { 0, 1, -1, 0.4, 1.5, 2.5, -2.5, 100.25, 127, 65504, 65519, 2 ^ 24 + 1, 0.1, 6e-8 }
  for i = #numbers + 1, 1100 do numbers[i] = (i * 37) % 251 / 8 end
  for _, from in ipairs(types) do
    local fits = {}
    for i, x in ipairs(numbers) do
      local whole, small = not from:find "float", from == "bool" and 1 or from == "uint8" and 255 or math.huge
      fits[i] = whole and math.min(math.abs(math.floor(x)), small) or x
    end
    local x = ms.Tensor(fits, from)
    for _, to in ipairs(types) do
      local want = ops.cast(x, to)
      check.equal(x:astype(to):totable(), want:totable(), from .. " to " .. to)
      check.equal(ms.Tensor(x, to):totable(), want:totable(), from .. " to " .. to)
    end
  end
  local special = ms.Tensor({ 1 / 0, -1 / 0, 0 / 0 }, "float64")
  for _, to in ipairs { "bfloat16", "float16", "float32" } do
    check.equal(tostring(special:astype(to)), tostring(ops.cast(special, to)))
  end
  check.equal(special:astype "bool":totable(), { true, true, true })
  check.equal(ms.Tensor({}, "float32"):astype("int64").shape, { 0 })
  check.equal(ms.Tensor({ 2 ^ 53, -2 ^ 62 }, "int64"):astype("uint8"):totable(), { 0, 0 })
end)

check.case("a text and a tensor make a text", function()
  check.equal("loss " .. ms.Tensor(1.5) .. "!", "loss 1.5!")
  check.equal(ms.Tensor { 1, 2 } .. "", "[1., 2.]")
end)

check.done()
