-- Quotients of integers, cumulative products, parts of tensors, extremes with their places, segments and random
-- classes, beside PyTorch's values.
local check = require "check"
local ms = require "mslua"
local ops = ms.ops

local function f64(list) return ms.Tensor(list, "float64") end
local function i32(list) return ms.Tensor(list, "int32") end
local function lists(...)
  local all = { ... }
  for i, t in ipairs(all) do all[i] = t:totable() end
  return all
end

-- The gradient of the sum of f's results times weights, at x.
local function gradient(f, x, weights)
  return ms.grad(function(v)
    local y = f(v)
    return ops.reduce_sum(weights and y * f64(weights) or y)
  end)(x):totable()
end

-- Both kernels of every call.
local function with_both_kernels(f)
  for _, reference in ipairs { true, false } do
    ms.set_context { reference_kernels = reference }
    f()
  end
  ms.set_context { reference_kernels = false }
end

check.case("quotients and remainders of integers", function()
  local a, b = { 7, -7, 7, -7, 5, 0 }, { 2, 2, -2, -2, 0, 0 }
  with_both_kernels(function()
    for _, dtype in ipairs { "int32", "int64" } do
      local x, y = ms.Tensor(a, dtype), ms.Tensor(b, dtype)
      check.equal(ops.floor_div(x, y):totable(), { 3, -4, -4, 3, 0, 0 })
      check.equal(ops.floor_mod(x, y):totable(), { 1, 1, -1, -1, 5, 0 })
      check.equal(ops.truncate_div(x, y):totable(), { 3, -3, -3, 3, 0, 0 })
      check.equal(ops.fmod(x, y):totable(), { 1, -1, 1, -1, 5, 0 })
      check.equal(ops.floor_div(x, y).dtype, dtype)
    end
    check.equal(ops.floor_mod(ms.Tensor({ 200, 7 }, ms.uint8), 3):totable(), { 2, 1 })
  end)
end)

check.case("the least integer divided by -1, and integers that no float has", function()
  local least = ms.Tensor({ -2 ^ 31 }, "int32")
  check.equal(ops.floor_div(least, -1):totable(), { -2 ^ 31 })
  check.equal(ops.truncate_div(least, -1):totable(), { -2 ^ 31 })
  check.equal(lists(ops.floor_mod(least, -1), ops.fmod(least, -1)), { { 0 }, { 0 } })
  local wide = ms.Tensor({ -2 ^ 63 }, "int64")
  check.equal(lists(ops.floor_div(wide, -1), ops.floor_mod(wide, -1)), { { -2 ^ 63 }, { 0 } })
  -- 2^62 + 3 and 2^24 + 1 are no float64 and no float32.
  local odd = ms.Tensor({ 2 ^ 62 }, "int64") + ms.Tensor({ 3 }, "int64")
  check.equal(lists(ops.floor_mod(odd, 8), ops.fmod(-odd, 8), ops.floor_mod(-odd, 8)), { { 3 }, { -3 }, { 5 } })
  check.equal((ops.floor_div(odd, 2) * 2 - odd):totable(), { -1 })
  check.equal((ops.floor_div(-odd, 2) * 2 + odd):totable(), { -1 })
  check.equal(ops.floor_mod(i32 { 2 ^ 24 + 1 }, 2):totable(), { 1 })
end)

check.case("div with a rounding mode", function()
  local x, y = f64 { 7, -7, 1 }, f64 { 2, 2, 0.1 }
  check.equal(ops.div(x, y, "floor"):totable(), { 3, -4, 9 })
  check.equal(ops.div(x, y, { rounding_mode = "trunc" }):totable(), { 3, -3, 9 })
  check.equal(ops.div(x, y):totable(), { 3.5, -3.5, 10 })
  check.equal(ops.div(i32 { -7 }, 2, "floor"):totable(), { -4 })
  check.fails_here('div: rounding_mode: expected one of "floor", "trunc", got "up"',
    function() ops.div(x, y, "up") end)
end)

check.case("gradients of remainders", function()
  local x, y = f64 { 7.5, -7.5 }, f64 { 2, 2 }
  check.equal(gradient(function(v) return ops.floor_mod(v, y) end, x), { 1, 1 })
  check.equal(gradient(function(v) return ops.floor_mod(x, v) end, y), { -3, 4 })
  check.equal(gradient(function(v) return ops.fmod(x, v) end, y), { -3, 3 })
  check.equal(gradient(function(v) return ops.floor_div(x, v) end, y), { 0, 0 })
end)

check.case("cumprod, and its gradient at zeros", function()
  with_both_kernels(function()
    local x = f64 { 2, 0, 3, 0, 5 }
    check.equal(ops.cumprod(x):totable(), { 2, 0, 0, 0, 0 })
    check.equal(gradient(ops.cumprod, x, { 1, 2, 3, 4, 5 }), { 1, 22, 0, 0, 0 })
    check.equal(gradient(ops.cumprod, f64 { 2, 0, 3, 4 }, { 1, 2, 3, 4 }), { 1, 118, 0, 0 })
    check.equal(ops.cumprod(i32 { { 1, 2 }, { 3, 4 } }, 1):totable(), { { 1, 2 }, { 3, 8 } })
    check.equal(ops.cumprod(f64 { 2, 3, 4 }, { exclusive = true, reverse = true }):totable(), { 12, 4, 1 })
  end)
  check.equal(gradient(function(v) return ops.cumprod(v, { exclusive = true }) end, f64 { 0, 2, 3 }), { 3, 0, 0 })
  -- The gradient of the sum of the gradient of x1 + x1 x2 + x1 x2 x3.
  local function slopes(v) return ms.grad(function(u) return ops.reduce_sum(ops.cumprod(u)) end)(v) end
  check.equal(gradient(slopes, f64 { 2, 3, 0 }), { 4, 3, 5 })
end)

check.case("linear_recurrence", function()
  local a, b = f64 { 5, 2, 3 }, f64 { 1, 10, 100 }
  check.equal(ops.linear_recurrence(a, b):totable(), { 1, 12, 136 })
  check.equal(ops.linear_recurrence(a, b, { reverse = true }):totable(), { 1051, 210, 100 })
end)

check.case("cummax and cummin", function()
  with_both_kernels(function()
    local x = f64 { 1, 3, 3, 2, 0 / 0, 5 }
    local values, places = ops.cummax(x)
    check.equal(places:totable(), { 0, 1, 2, 2, 4, 4 })
    check.equal(ops.strided_slice(values, { 1 }, { 5 }):totable(), { 1, 3, 3, 3 })
    check.equal(lists(ops.cummin(i32 { { 2, 1 }, { 2, 3 } }, 1)), { { { 2, 1 }, { 2, 1 } }, { { 0, 0 }, { 1, 0 } } })
  end)
  check.equal(gradient(function(v) return (ops.cummax(v)) end, f64 { 1, 3, 3, 2 }), { 1, 1, 2, 0 })
end)

check.case("max and min with places", function()
  local x = f64 { { 1, 5, 5 }, { 4, 2, 0 } }
  check.equal(lists(ops.max(x, 2)), { { 5, 4 }, { 1, 0 } })
  check.equal(lists(ops.min(x, -1)), { { 1, 0 }, { 0, 2 } })
  check.equal(lists(ops.max(x, 1, true)), { { { 4, 5, 5 } }, { { 1, 0, 0 } } })
  check.equal({ select("#", ops.max(x)), (ops.max(x)):item(), (ops.min(x)):item() }, { 1, 5, 0 })
  check.equal(ops.max(x, { keepdims = true }):totable(), { { 5 } })
  check.equal(gradient(function(v) return (ops.max(v, 2)) end, x), { { 0, 1, 0 }, { 1, 0, 0 } })
  check.equal(gradient(function(v) return (ops.max(v)) end, x), { { 0, 0.5, 0.5 }, { 0, 0, 0 } })
  check.fails_here("max: axis: expected an axis of 2, from 1, got 3", function() ops.max(x, 3) end)
  check.equal(ops.argsort(f64 { 3, 1, 2 }):totable(), { 1, 2, 0 })
  check.equal(ops.argsort(f64 { { 3, 1 }, { 2, 5 } }, 1, true):totable(), { { 0, 1 }, { 1, 0 } })
end)

check.case("split into sizes, chunk, unstack", function()
  local x = ms.arange(10):reshape(1, 10)
  check.equal(lists(ops.split(x, { 2, 3, 5 }, 2)), { { { 0, 1 } }, { { 2, 3, 4 } }, { { 5, 6, 7, 8, 9 } } })
  check.equal(lists(ops.split(x, { 4, 6 }, { axis = -1 }))[2], { { 4, 5, 6, 7, 8, 9 } })
  check.equal(lists(ops.split(x, 2, 5))[5], { { 8, 9 } })
  check.fails_here("output_num is 5000, expected 1 to 4096", function() ops.split(ms.ones { 1, 5000 }, 2, 5000) end)
  check.fails_here("split: sizes: expected a sum of 10, the size of axis 2, got 9 of {4, 5}",
    function() ops.split(x, { 4, 5 }, 2) end)
  check.equal(gradient(function(v)
    local _, right = ops.split(v, { 1, 2 })
    return right * right
  end, f64 { 1, 2, 3 }), { 0, 4, 6 })
  check.equal(lists(ops.chunk(x, 4, 2)), { { { 0, 1, 2 } }, { { 3, 4, 5 } }, { { 6, 7, 8 } }, { { 9 } } })
  check.equal(select("#", ops.chunk(x, 6, 2)), 5)
  check.equal(lists(ops.chunk(f64 { 1, 2, 3, 4 }, 2)), { { 1, 2 }, { 3, 4 } })
  check.equal(lists(ops.unstack(f64 { { 1, 2 }, { 3, 4 } }, 2)), { { 1, 3 }, { 2, 4 } })
end)

check.case("movedim and meshgrid", function()
  local x = ms.ones { 2, 3, 4, 5 }
  check.equal(ops.movedim(x, 1, -1).shape, { 3, 4, 5, 2 })
  check.equal(ops.movedim(x, { 1, 2 }, { 3, 1 }).shape, { 3, 4, 2, 5 })
  check.fails_here("movedim: source: axis 1 is there twice", function() ops.movedim(x, { 1, 1 }, { 1, 2 }) end)
  check.equal(lists(ops.meshgrid(f64 { 1, 2, 3 }, f64 { 4, 5 })),
    { { { 1, 2, 3 }, { 1, 2, 3 } }, { { 4, 4, 4 }, { 5, 5, 5 } } })
  check.equal(lists(ops.meshgrid({ f64 { 1, 2 }, f64 { 4, 5, 6 } }, { indexing = "ij" })),
    { { { 1, 1, 1 }, { 2, 2, 2 } }, { { 4, 5, 6 }, { 4, 5, 6 } } })
  check.fails_here("meshgrid: inputs: expected vectors, got shape {2, 3, 4, 5} in place 1",
    function() ops.meshgrid { x } end)
end)

check.case("diagonals", function()
  local x = f64 { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(ops.diag(f64 { 1, 1 / 0 }):totable(), { { 1, 0 }, { 0, 1 / 0 } })
  check.equal(ops.diagonal(x):totable(), { 1, 5 })
  check.equal(lists(ops.diagonal(x, 1), ops.diagonal(x, -1)), { { 2, 6 }, { 4 } })
  check.equal(ops.diagonal(ms.arange(8):reshape(2, 2, 2), 0, -2, -1):totable(), { { 0, 3 }, { 4, 7 } })
  check.equal(ops.diagonal(ms.arange(8):reshape(2, 2, 2), 0, 1, 3):totable(), { { 0, 5 }, { 2, 7 } })
  for _, shape in ipairs { { 0, 3 }, { 3, 0 }, { 0, 0 } } do
    check.equal({ ops.diagonal(ms.zeros(shape), 1).shape[1], ops.trace(ms.zeros(shape)):item() }, { 0, 0 })
  end
  check.equal({ unpack(ops.diagonal(ms.zeros { 2, 0, 3 }, 0, 2, 3).shape) }, { 2, 0 })
  check.equal(ops.trace(x):item(), 6)
  check.equal(gradient(ops.trace, x), { { 1, 0, 0 }, { 0, 1, 0 } })
  check.fails_here("diagonal: offset: expected -1 to 2", function() ops.diagonal(x, 3) end)
  check.fails_here("diag: x: expected a vector, got shape {2, 3}: the diagonal of a matrix is ops.diagonal(x)",
    function() ops.diag(x) end)
end)

check.case("lerp, nan_to_num, addmm, baddbmm", function()
  local a, b = f64 { 1, 0.1 }, f64 { 3, 0.7 }
  check.equal(ops.lerp(a, b, 0.25):totable()[1], 1.5)
  check.equal(lists(ops.lerp(a, b, 1), ops.lerp(a, b, f64 { 1, 0 })), { { 3, 0.7 }, { 3, 0.1 } })
  local odd = f64 { 0 / 0, 1 / 0, -1 / 0, 2 }
  check.equal(ops.nan_to_num(odd, 7, 8, 9):totable(), { 7, 8, 9, 2 })
  check.equal(ops.nan_to_num(ms.Tensor { 1 / 0, -1 / 0 }):totable(), { 3.4028234663852886e38, -3.4028234663852886e38 })
  check.equal(gradient(ops.nan_to_num, odd), { 0, 0, 0, 1 })
  local m = f64 { { 1, 2 }, { 3, 4 } }
  check.equal(ops.addmm(f64 { 10, 20 }, m, m):totable(), { { 17, 30 }, { 25, 42 } })
  check.equal(ops.addmm(f64 { 10, 20 }, m, m, { beta = 0.5, alpha = 2 }):totable(), { { 19, 30 }, { 35, 54 } })
  local batch = ops.reshape(m, { 1, 2, 2 })
  check.equal(ops.baddbmm(batch, batch, batch):totable(), { { { 8, 12 }, { 18, 26 } } })
  check.equal(ops.baddbmm(batch * (0 / 0), batch, batch, { beta = 0 }):totable(), { { { 7, 10 }, { 15, 22 } } })
  check.fails_here("addmm: expected matrices of 2 dimensions", function() ops.addmm(m, batch, batch) end)
  -- As in PyTorch, input does not widen the product.
  check.fails_here("addmm: input: expected a shape that broadcasts to {2, 2}, the product's, got {1, 2, 2}",
    function() ops.addmm(batch, m, m) end)
  check.fails_here("addmm: input: expected a shape that broadcasts to {1, 1}, the product's, got {2, 2}",
    function() ops.addmm(m, f64 { { 1, 2 } }, f64 { { 1 }, { 2 } }) end)
  check.fails_here("baddbmm: input: expected a shape that broadcasts to {1, 2, 2}, the product's, got {2, 2, 2}",
    function() ops.baddbmm(ops.concat({ batch, batch }, 1), batch, batch) end)
end)

check.case("segments", function()
  local x, ids = f64 { { 1, 2 }, { 3, 2 }, { 0, 5 } }, i32 { 2, 2, 0 }
  check.equal(ops.unsorted_segment_sum(x, ids, 3):totable(), { { 0, 5 }, { 0, 0 }, { 4, 4 } })
  check.equal(ops.unsorted_segment_max(x, ids, 3):totable(), { { 0, 5 }, { -1 / 0, -1 / 0 }, { 3, 2 } })
  check.equal(ops.unsorted_segment_min(x, ids, 3):totable(), { { 0, 5 }, { 1 / 0, 1 / 0 }, { 1, 2 } })
  check.equal(ops.unsorted_segment_max(i32 { 4, -2 }, i32 { 1, 1 }, 2):totable(), { -2 ^ 31, 4 })
  -- Ties share, as in torch.scatter_reduce(.., "amax").
  check.equal(gradient(function(v)
    return ops.strided_slice(ops.unsorted_segment_max(v, ids, 3), { 3, 1 }, { 4, 3 })
  end, x), { { 0, 0.5 }, { 1, 0.5 }, { 0, 0 } })
  check.fails("segment_ids[2] is 3, expected 0 to 2", function() ops.unsorted_segment_max(x, i32 { 0, 3, 1 }, 3) end)
end)

check.case("sums of updates along an axis that counts from the end", function()
  local index, updates = ms.Tensor({ { 0, 2 }, { 2, 2 } }, ms.int32), f64 { { 1, 2 }, { 3, 4 } }
  local last = ops.scatter_d(index, updates, { size = 3, axis = -1 })
  check.near(last:totable(), { { 1, 0, 2 }, { 0, 0, 7 } }, 0)
  check.near(last:totable(), ops.scatter_d(index, updates, { size = 3, axis = 2 }):totable(), 0)
  check.fails("axis 3 is out of range for 2 dimensions",
    function() ops.scatter_d(index, updates, { size = 3, axis = 3 }) end)
  check.fails("axis -1 is out of range, expected 1 to 1, the dimensions of the result",
    function() ops.scatter_sum(index, updates, { size = 3, axis = -1 }) end)
end)

check.case("an axis that there is not", function()
  local scalar, x = ms.Tensor(1), ms.ones { 2, 3 }
  check.fails_here("x is a scalar, which has no axes", function() ops.cumsum(scalar) end)
  check.fails_here("x is a scalar, which has no axes", function() ops.concat { scalar, scalar } end)
  check.fails_here("axis 9 is out of range for a result of 1 dimension",
    function() ops.stack({ scalar, scalar }, 9) end)
  check.fails_here("axis -4 is out of range for a result of 3 dimensions",
    function() ops.expand_dims(x, -4) end)
  check.fails("gather: indices[1] is 0, and there is nothing to index",
    function() ops.gather(ms.zeros { 0, 3 }, ms.zeros({ 1 }, ms.int32), 1) end)
  check.fails_here("the images have no channels",
    function() ops.conv2d(ms.ones { 1, 0, 5, 5 }, ms.ones { 4, 0, 3, 3 }) end)
  check.fails_here("x is empty along the axis", function() ops.argmax(ms.zeros { 2, 0 }, -1) end)
end)

check.case("einsum with '...'", function()
  local a, b = ms.rand({ 2, 1, 3, 4 }, ms.float64, "a"), ms.rand({ 5, 4, 3 }, ms.float64, "b")
  check.near(ops.einsum("...ij,...jk->...ik", a, b):totable(), ops.matmul(a, b):totable(), 1e-12)
  check.near(ops.einsum("...ij->...ji", a):totable(), ops.swapaxes(a, -1, -2):totable(), 0)
  check.near(ops.einsum("i...,i...", b, b):totable(), (b * b):sum(1):totable(), 1e-12)
  check.near(ops.einsum("...i", f64 { 1, 2 }):totable(), { 1, 2 }, 0)
  check.fails("write '...' after -> too", function() ops.einsum("...i->i", a) end)
  check.fails("dimension 1 from the end of '...' differs: 3 and 5",
    function() ops.einsum("...i,...i->...i", ms.ones { 3, 2 }, ms.ones { 5, 2 }) end)
  check.fails("expected one '...' in each operand", function() ops.einsum("...i...->i", a) end)
  check.fails("the result's '...' is in no operand", function() ops.einsum("i->...i", f64 { 1 }) end)
end)

check.case("multinomial", function()
  ms.set_seed(3)
  local p = ms.Tensor { 1, 0, 3 }
  local counts = { 0, 0, 0 }
  for _, k in ipairs(ops.multinomial(p, 40000):totable()) do counts[k + 1] = counts[k + 1] + 1 end
  check.equal(counts[2], 0)
  check.near(counts[3] / 40000, 0.75, 0.01)
  -- Without replacement: each class once, and the first as with replacement.
  local first = { 0, 0, 0 }
  for _, row in ipairs(ops.multinomial(ms.ones({ 20000, 3 }) * ms.Tensor { 1, 2, 5 }, 3, false):totable()) do
    check.equal(row[1] + row[2] + row[3] == 3 and row[1] ~= row[2] and row[2] ~= row[3], true)
    first[row[1] + 1] = first[row[1] + 1] + 1
  end
  check.near(first[3] / 20000, 5 / 8, 0.015)
  check.near(first[1] / 20000, 1 / 8, 0.01)
  check.fails("probs: weight 2 of row 2 is -2, expected a finite number, at least 0",
    function() ops.multinomial(ms.Tensor { { 1, 1 }, { 1, -2 } }, 1) end)
  check.fails("probs: row 1 has 2 weights above 0, expected at least 3", function() ops.multinomial(p, 3, false) end)
  check.fails("num_samples is 4, expected 1 to 3", function() ops.multinomial(p, 4, false) end)
end)

check.done()
