--- Functions of ms.ops that are made of other operators: constants like a tensor, arithmetic, shapes, distances.
local args = require "mslua.args"
local core = require "mslua.core"
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"
local fused = require "mslua.fused"
local widened = require("mslua.wide").widened

local x = { "x", "operand", required = true, doc = "the tensor" }
local dtype = { "dtype", "string", choices = errors.names(dtypes), doc = "the type of the result; default: that of x" }
local axis = { "axis", "integer|integers", doc = "the axes to reduce, from 1; default: all" }
local keep_dims = { "keep_dims", "boolean", false, doc = "true: reduced axes stay, with size 1" }

--- Gives ms.ops the functions.
---@param ops table ms.ops under construction
return function(ops)
  local bind_zeros = args.signature("zeros_like", { x, dtype })

  --- Zeros of the shape and type of x. (x, dtype)
  function ops.zeros_like(...)
    local a = bind_zeros(...)
    return core.full(a.x.shape, 0, a.dtype or a.x.dtype)
  end

  local bind_ones = args.signature("ones_like", { x, dtype })

  --- Ones of the shape and type of x. (x, dtype)
  function ops.ones_like(...)
    local a = bind_ones(...)
    return core.full(a.x.shape, 1, a.dtype or a.x.dtype)
  end

  local bind_full = args.signature("full_like", {
    x, { "fill_value", "number", required = true, doc = "the value of all elements" }, dtype,
  })

  --- A tensor of the shape and type of x whose elements are all fill_value. (x, fill_value, dtype)
  function ops.full_like(...)
    local a = bind_full(...)
    return core.full(a.x.shape, a.fill_value, a.dtype or a.x.dtype)
  end

  local bind_assign = args.signature("assign", {
    { "variable", "parameter", required = true, doc = "the parameter, or state of a cell (self:state)" },
    { "value", "operand", required = true, doc = "its value from here on, of its shape and type" },
  })

  --- Gives a parameter another value, as `p.value = value` does, and gives the parameter. In construct of a network
  --- that is compiled each step does so: a running mean, a counter. (variable, value)
  function ops.assign(...)
    local a = bind_assign(...)
    core.assign(a.variable, a.value)
    return a.variable
  end

  local bind_log2 = args.signature("log2", { x })

  --- The logarithm to base 2. (x)
  function ops.log2(...) return ops.log(bind_log2(...).x) / math.log(2) end

  local bind_log10 = args.signature("log10", { x })

  --- The logarithm to base 10. (x)
  function ops.log10(...) return ops.log(bind_log10(...).x) / math.log(10) end

  local bind_trunc = args.signature("trunc", { x })

  local trunc = fused(function(t) return ops.sign(t) * ops.floor(ops.abs(t)) end)

  --- x without its digits after the dot; the gradient is 0. (x)
  function ops.trunc(...) return trunc(bind_trunc(...).x) end

  local bind_frac = args.signature("frac", { x })

  local frac = fused(function(t) return t - ops.trunc(t) end)

  --- x - trunc(x), which has the sign of x. (x)
  function ops.frac(...) return frac(bind_frac(...).x) end

  -- The reduction of x ~= 0 by an operator of integers, which gives the least or the largest integer for no elements.
  local function reduce_truth(reduce, a)
    local axes = type(a.axis) == "number" and { a.axis } or a.axis
    if not axes then
      axes = {}
      for d = 1, #a.x.shape do axes[d] = d end
    end
    local truth = a.x.dtype == "bool" and a.x or ops.not_equal(a.x, 0)
    return ops.greater(reduce(ops.cast(truth, "int32"), axes, a.keep_dims), 0)
  end

  local bind_any = args.signature("any", { x, axis, keep_dims })

  --- bool: whether an element along the axes is true, or not 0. (x, axis, keep_dims = false)
  function ops.any(...) return reduce_truth(ops.reduce_max, bind_any(...)) end

  local bind_all = args.signature("all", { x, axis, keep_dims })

  --- bool: whether all elements along the axes are true, or not 0. (x, axis, keep_dims = false)
  function ops.all(...) return reduce_truth(ops.reduce_min, bind_all(...)) end

  -- Fails unless two tensors have one shape.
  local function check_same(name, x1, x2)
    if x1.shape ~= x2.shape then
      errors.fail("%s: expected two tensors of one shape, got %s and %s", name, errors.show(x1.shape),
        errors.show(x2.shape))
    end
  end

  local bind_count = args.signature("count_nonzero", { x, axis, keep_dims })

  --- int32: how many elements along the axes are not 0. (x, axis, keep_dims = false)
  function ops.count_nonzero(...)
    local a = bind_count(...)
    return (ops.reduce_sum(ops.cast(ops.not_equal(a.x, 0), "int32"), { axis = a.axis, keep_dims = a.keep_dims }))
  end

  local function two(name)
    return args.signature(name, {
      { "x1", "operand", required = true, doc = "a tensor" },
      { "x2", "operand", required = true, doc = "a tensor whose shape broadcasts with that of x1" },
    })
  end

  local bind_xor = two "logical_xor"

  --- bool: whether exactly one of two elements is true. (x1, x2)
  function ops.logical_xor(...)
    local a = bind_xor(...)
    if a.x1.dtype ~= "bool" or a.x2.dtype ~= "bool" then
      errors.fail("logical_xor: expected two tensors of bool, got %s and %s", a.x1.dtype, a.x2.dtype)
    end
    return (ops.not_equal(a.x1, a.x2))
  end

  -- The larger and the smaller of two numbers, of which the first one is the larger at ties: together they have the
  -- gradients of both.
  local function in_order(x1, x2)
    local first = ops.greater_equal(x1, x2)
    x1, x2 = ops.broadcast_to(x1, first.shape), ops.broadcast_to(x2, first.shape)
    return ops.select(first, x1, x2), ops.select(first, x2, x1)
  end

  local bind_logaddexp = two "logaddexp"

  local logaddexp = fused(function(x1, x2)
    local most, least = in_order(x1, x2)
    -- Of two equal infinities the difference is NaN.
    local infinite = ops.logical_and(ops.equal(most, least), ops.equal(ops.abs(most), math.huge))
    return (ops.select(infinite, most, most + ops.softplus(ops.select(infinite, 0, least - most))))
  end)

  --- log(exp(x1) + exp(x2)), exact where exp overflows or is 0. (x1, x2)
  function ops.logaddexp(...)
    local a = bind_logaddexp(...)
    return logaddexp(a.x1, a.x2)
  end

  local bind_xlogy = two "xlogy"

  local xlogy = fused(function(x1, x2)
    -- Where x2 is positive and finite the product is 0, and has the gradient log(x2).
    local plain = ops.logical_and(ops.greater(x2, 0), ops.less(x2, math.huge))
    local zero = ops.logical_and(ops.equal(x1, 0), ops.logical_and(ops.equal(x2, x2), ops.logical_not(plain)))
    return (ops.select(zero, 0, x1 * ops.log(ops.select(zero, 1, x2))))
  end)

  --- x1 log(x2), 0 where x1 is 0 and x2 is a number. (x1, x2)
  function ops.xlogy(...)
    local a = bind_xlogy(...)
    return xlogy(a.x1, a.x2)
  end

  local bind_hypot = two "hypot"

  local hypot = fused(function(x1, x2)
    local most, least = in_order(ops.abs(x1), ops.abs(x2))
    -- Where there is no quotient, or it is that of infinities.
    local plain = ops.logical_or(ops.equal(most, 0), ops.equal(most, math.huge))
    local ratio = ops.select(plain, 0, least / ops.select(plain, 1, most))
    local nan = ops.logical_or(ops.not_equal(most, most), ops.not_equal(least, least))
    local infinite = ops.logical_or(ops.equal(most, math.huge), ops.equal(least, math.huge))
    local length = ops.select(nan, 0 / 0, most * ops.sqrt(ratio * ratio + 1))
    return (ops.select(ops.logical_and(nan, infinite), math.huge, length))
  end)

  --- sqrt(x1^2 + x2^2), exact where the squares overflow or are 0, infinite where one is, the other NaN or not; the
  --- gradient where both are 0 is 0. (x1, x2)
  function ops.hypot(...)
    local a = bind_hypot(...)
    return hypot(a.x1, a.x2)
  end

  local bind_close = args.signature("isclose", {
    { "x1", "operand", required = true, doc = "a tensor" },
    { "x2", "operand", required = true, doc = "what it is compared with" },
    { "rtol", "number", 1e-5, min = 0, doc = "the largest difference, as a part of x2" },
    { "atol", "number", 1e-8, min = 0, doc = "what is added to it" },
    { "equal_nan", "boolean", false, doc = "true: two NaN are close" },
  })

  local isclose = fused(function(x1, x2, rtol, atol, equal_nan)
    local near = ops.less_equal(ops.abs(x1 - x2), ops.abs(x2) * rtol + atol)
    near = ops.logical_and(near, ops.less(ops.abs(x2), math.huge))
    near = ops.logical_or(near, ops.equal(x1, x2))
    if not equal_nan then return near end
    return (ops.logical_or(near, ops.logical_and(ops.not_equal(x1, x1), ops.not_equal(x2, x2))))
  end)

  --- bool: whether abs(x1 - x2) <= atol + rtol abs(x2); equal infinities are close. (x1, x2, rtol = 1e-5, atol = 1e-8,
  --- equal_nan = false)
  function ops.isclose(...)
    local a = bind_close(...)
    return isclose(a.x1, a.x2, a.rtol, a.atol, a.equal_nan)
  end

  local bind_cross = args.signature("cross", {
    { "x1", "operand", required = true, doc = "vectors of 3 numbers along an axis" },
    { "x2", "operand", required = true, doc = "as many vectors" },
    { "axis", "integer", -1, doc = "the axis of the vectors, from 1; -1: the last" },
  })

  --- The cross products of the vectors of x1 and x2 along an axis of size 3. (x1, x2, axis = -1)
  function ops.cross(...)
    local a = bind_cross(...)
    check_same("cross", a.x1, a.x2)
    local along = args.axis("cross", "axis", a.axis, #a.x1.shape)
    if a.x1.shape[along] ~= 3 then
      errors.fail("cross: x1: expected vectors of 3 numbers along axis %d, got %s", along, errors.show(a.x1.shape))
    end
    local function shifted(t, by) return (ops.roll(t, { by }, { along })) end
    return widened(function(x1, x2)
      return shifted(x1, -1) * shifted(x2, -2) - shifted(x1, -2) * shifted(x2, -1)
    end)(a.x1, a.x2)
  end

  local bind_swapaxes = args.signature("swapaxes", {
    x, { "axis0", "integer", required = true, doc = "an axis, from 1; -1: the last" },
    { "axis1", "integer", required = true, doc = "the axis it changes places with" },
  })

  --- x with two axes exchanged. (x, axis0, axis1)
  function ops.swapaxes(...)
    local a = bind_swapaxes(...)
    local perm, rank = {}, #a.x.shape
    local first, second = args.axis("swapaxes", "axis0", a.axis0, rank), args.axis("swapaxes", "axis1", a.axis1, rank)
    for d = 1, rank do perm[d] = d end
    perm[first], perm[second] = second, first
    return (ops.transpose(a.x, perm))
  end

  local bind_outer = args.signature("outer", {
    { "x", "operand", required = true, doc = "a vector [n]" },
    { "y", "operand", required = true, doc = "a vector [m]" },
  })

  --- The products x[i] y[j] of two vectors, [n, m]. (x, y)
  function ops.outer(...)
    local a = bind_outer(...)
    if #a.x.shape ~= 1 or #a.y.shape ~= 1 then
      errors.fail("outer: expected two vectors, got shapes %s and %s", errors.show(a.x.shape), errors.show(a.y.shape))
    end
    return ops.expand_dims(a.x, 2) * ops.expand_dims(a.y, 1)
  end

  local function image_of(name, a)
    local shape = a.x.shape
    if #shape ~= 4 then errors.fail("%s: x: expected [n, c, h, w], got %s", name, errors.show(shape)) end
    return shape[1], shape[2], shape[3], shape[4]
  end

  local bind_shuffle = args.signature("pixel_shuffle", {
    x, { "upscale_factor", "integer", required = true, min = 1, doc = "how many times height and width grow" },
  })

  --- [n, c r r, h, w] as [n, c, h r, w r]: the channels of a pixel become a square of r times r pixels (Shi et al.,
  --- 2016). (x, upscale_factor)
  function ops.pixel_shuffle(...)
    local a = bind_shuffle(...)
    local n, c, h, w = image_of("pixel_shuffle", a)
    local r = a.upscale_factor
    if c % (r * r) ~= 0 then
      errors.fail("pixel_shuffle: x: expected a multiple of %d channels, got %s", r * r, errors.show(a.x.shape))
    end
    c = c / (r * r)
    local y = ops.transpose(ops.reshape(a.x, { n, c, r, r, h, w }), { 1, 2, 5, 3, 6, 4 })
    return (ops.reshape(y, { n, c, h * r, w * r }))
  end

  local bind_unshuffle = args.signature("pixel_unshuffle", {
    x, { "downscale_factor", "integer", required = true, min = 1, doc = "how many times height and width shrink" },
  })

  --- [n, c, h r, w r] as [n, c r r, h, w], the inverse of pixel_shuffle. (x, downscale_factor)
  function ops.pixel_unshuffle(...)
    local a = bind_unshuffle(...)
    local n, c, h, w = image_of("pixel_unshuffle", a)
    local r = a.downscale_factor
    if h % r ~= 0 or w % r ~= 0 then
      errors.fail("pixel_unshuffle: x: expected multiples of %d as height and width, got %s", r,
        errors.show(a.x.shape))
    end
    local y = ops.transpose(ops.reshape(a.x, { n, c, h / r, r, w / r, r }), { 1, 2, 4, 6, 3, 5 })
    return (ops.reshape(y, { n, c * r * r, h / r, w / r }))
  end

  local bind_repeat = args.signature("repeat_interleave", {
    x, { "repeats", "integer", required = true, min = 1, doc = "how many times each element stands in the result" },
    { "axis", "integer", doc = "the axis along which elements repeat, from 1; default: x becomes a vector" },
  })

  --- x with each element along an axis repeated: {1, 1, 2, 2} of {1, 2}. (x, repeats, axis)
  function ops.repeat_interleave(...)
    local a = bind_repeat(...)
    local t = a.axis and a.x or ops.reshape(a.x, { -1 })
    local shape = t.shape
    local along = args.axis("repeat_interleave", "axis", a.axis or 1, #shape)
    local wide, result = {}, {}
    for d, size in ipairs(shape) do
      wide[#wide + 1] = size
      result[d] = size
      if d == along then
        wide[#wide + 1] = a.repeats
        result[d] = size * a.repeats
      end
    end
    return (ops.reshape(ops.broadcast_to(ops.expand_dims(t, along + 1), wide), result))
  end

  local bind_distance = args.signature("pairwise_distance", {
    { "x1", "operand", required = true, doc = "vectors along the last axis" },
    { "x2", "operand", required = true, doc = "as many vectors" },
    { "p", "number", 2, above = 0, doc = "the norm of a difference; 2 is the Euclidean one" },
    { "eps", "number", 1e-6, min = 0, doc = "added to each difference" },
    { "keepdim", "boolean", false, doc = "true: the last axis stays, with size 1" },
  })

  --- The p-norm of x1 - x2 + eps along the last axis. (x1, x2, p = 2, eps = 1e-6, keepdim = false)
  function ops.pairwise_distance(...)
    local a = bind_distance(...)
    check_same("pairwise_distance", a.x1, a.x2)
    return (ops.norm(a.x1 - a.x2 + a.eps, { axis = { #a.x1.shape }, p = a.p, keep_dims = a.keepdim }))
  end

  local bind_cosine = args.signature("cosine_similarity", {
    { "x1", "operand", required = true, doc = "vectors along an axis" },
    { "x2", "operand", required = true, doc = "as many vectors" },
    { "axis", "integer", 2, doc = "the axis of the vectors, from 1; -1: the last" },
    { "eps", "number", 1e-8, above = 0, doc = "the least length of a vector that counts" },
  })

  --- The cosine of the angle between the vectors of x1 and x2 along an axis. (x1, x2, axis = 2, eps = 1e-8)
  function ops.cosine_similarity(...)
    local a = bind_cosine(...)
    check_same("cosine_similarity", a.x1, a.x2)
    local along = { args.axis("cosine_similarity", "axis", a.axis, #a.x1.shape) }
    local function length(t) return ops.maximum(ops.norm(t, { axis = along, keep_dims = true }), a.eps) end
    return widened(function(x1, x2) return (ops.reduce_sum(x1 / length(x1) * (x2 / length(x2)), along)) end)(a.x1, a.x2)
  end
end
