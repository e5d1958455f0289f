--- Functions of ms.ops that take tensors apart, put them together and look for elements, made of other operators.
local args = require "mslua.args"
local axis_part = require "mslua.axis_part"
local core = require "mslua.core"
local errors = require "mslua.errors"
local fused = require "mslua.fused"
local Shape = require "mslua.shape"
local widened = require("mslua.wide").widened
local within = require "mslua.within"

local x = { "x", "operand", required = true, doc = "the tensor" }
local axis = { "axis", "integer", 1, doc = "the axis, from 1; -1: the last" }
local any_axis = { "axis", "integer", doc = "the axis, from 1; -1: the last; default: all elements, and no index" }
local keepdims = { "keepdims", "boolean", false, doc = "true: the axis stays, with size 1; without axis: all of them" }

--- Gives ms.ops the functions.
---@param ops table ms.ops under construction
return function(ops)
  --------------------------------------------------------------------------------------------------------- division

  local div = ops.div
  local bind_div = args.signature("div", {
    { "a", "operand|number", required = true, doc = "the dividend" },
    { "b", "operand|number", required = true, doc = "the divisor" },
    { "rounding_mode", "string", choices = { "floor", "trunc" },
      doc = '"floor": ops.floor_div; "trunc": ops.truncate_div; default: the quotient of floats' },
  })

  --- Quotient a / b, element by element, of floats. rounding_mode "floor" and "trunc" give whole numbers, of integers
  --- too: ops.floor_div and ops.truncate_div. (a, b, rounding_mode)
  function ops.div(...)
    if select("#", ...) < 3 then return div(...) end
    local a = bind_div(...)
    local f = a.rounding_mode == "floor" and ops.floor_div or a.rounding_mode == "trunc" and ops.truncate_div or div
    return (f(a.a, a.b))
  end

  ------------------------------------------------------------------------------------------------------------ parts

  local split = ops.split

  local function part(...) return axis_part(ops, ...) end

  local bind_sections = args.signature("split", {
    x, { "sizes", "integers", required = true, min = 1, doc = "the sizes of the parts along the axis" }, axis,
  })

  -- Parts of these sizes.
  local function sections(...)
    local a = bind_sections(...)
    local along = args.axis("split", "axis", a.axis, #a.x.shape)
    local sum, parts = 0, {}
    for i, size in ipairs(a.sizes) do
      sum = sum + size
      if sum <= a.x.shape[along] then parts[i] = part(a.x, along, sum - size + 1, sum) end
    end
    if sum ~= a.x.shape[along] then
      errors.fail("split: sizes: expected a sum of %d, the size of axis %d, got %d of %s", a.x.shape[along], along, sum,
        errors.show(a.sizes))
    end
    return unpack(parts)
  end

  function ops.split(...)
    local _, sizes = ...
    if args.is_list(sizes) and #sizes > 0 then return sections(...) end
    return split(...)
  end

  local bind_chunk = args.signature("chunk", {
    x, { "chunks", "integer", required = true, min = 1, doc = "how many parts" }, axis,
  })

  --- x split along an axis into so many parts, or fewer: all have the size of the first, the last may be smaller.
  --- (x, chunks, axis = 1)
  function ops.chunk(...)
    local a = bind_chunk(...)
    local along = args.axis("chunk", "axis", a.axis, #a.x.shape)
    local left, sizes = a.x.shape[along], {}
    if left == 0 then errors.fail("chunk: x: expected elements along axis %d, got %s", along,
      errors.show(a.x.shape)) end
    local size = math.ceil(left / a.chunks)
    while left > 0 do
      sizes[#sizes + 1] = math.min(size, left)
      left = left - size
    end
    if left == 0 then return split(a.x, along, #sizes) end
    return sections(a.x, sizes, along)
  end

  local bind_unstack = args.signature("unstack", { x, axis })

  --- The slices of x at each place of an axis, which they lack: the inverse of ops.stack. (x, axis = 1)
  function ops.unstack(...)
    local a = bind_unstack(...)
    local along = args.axis("unstack", "axis", a.axis, #a.x.shape)
    if a.x.shape[along] == 0 then
      errors.fail("unstack: x: expected elements along axis %d, got %s", along, errors.show(a.x.shape))
    end
    local slices = { split(a.x, along, a.x.shape[along]) }
    for i, slice in ipairs(slices) do slices[i] = ops.squeeze(slice, { along }) end
    return unpack(slices)
  end

  ------------------------------------------------------------------------------------------------------------- axes

  -- A number as a list of it.
  local function listed(v) return type(v) == "number" and { v } or v end

  -- x with the axes of the list `from` at the places of the list `to`, and the others in their order.
  local function moved(t, from, to)
    local perm, is_moved, rank = {}, {}, #t.shape
    for i, d in ipairs(from) do perm[to[i]], is_moved[d] = d, true end
    local other = 1
    for place = 1, rank do
      if not perm[place] then
        while is_moved[other] do other = other + 1 end
        perm[place], other = other, other + 1
      end
    end
    return (ops.transpose(t, perm))
  end

  local bind_movedim = args.signature("movedim", {
    x, { "source", "integer|integers", required = true, doc = "an axis, from 1, or several; -1: the last" },
    { "destination", "integer|integers", required = true, doc = "the places of these axes in the result" },
  })

  --- x with axes moved to other places; the others keep their order. (x, source, destination)
  function ops.movedim(...)
    local a = bind_movedim(...)
    local lists = { source = listed(a.source), destination = listed(a.destination) }
    if #lists.source ~= #lists.destination then
      errors.fail("movedim: expected as many axes of source as of destination, got %s and %s", errors.show(a.source),
        errors.show(a.destination))
    end
    for what, list in pairs(lists) do
      local seen, found = {}, {}
      for i, d in ipairs(list) do
        found[i] = args.axis("movedim", what, d, #a.x.shape)
        if seen[found[i]] then errors.fail("movedim: %s: axis %d is there twice", what, found[i]) end
        seen[found[i]] = true
      end
      lists[what] = found
    end
    return moved(a.x, lists.source, lists.destination)
  end

  local bind_meshgrid = args.signature("meshgrid", {
    { "inputs", "list", required = true, doc = "vectors" },
    { "indexing", "string", "xy", choices = { "xy", "ij" },
      doc = '"ij": the first vector goes along the first axis; "xy": along the second, '
        .. "and the second along the first" },
  })

  --- A grid's coordinates: for each of n vectors a tensor of n dimensions that has its elements along one of them,
  --- `local x, y = ops.meshgrid { x, y }`. (inputs, indexing = "xy")
  function ops.meshgrid(...)
    local first = ...
    local a
    if core.kind(first) then  -- ops.meshgrid(x, y)
      local list, n = { ... }, select("#", ...)
      local named = not core.kind(list[n]) and table.remove(list) or {}
      a = bind_meshgrid(list, named)
    elseif args.is_list(first) then
      a = bind_meshgrid(first, (select(2, ...)) or {})
    else
      a = bind_meshgrid(...)
    end
    local shape, places = {}, {}
    for i, v in ipairs(a.inputs) do
      if not core.kind(v) or #v.shape ~= 1 then
        errors.fail("meshgrid: inputs: expected vectors, got %s in place %d",
          core.kind(v) and "shape " .. errors.show(v.shape) or errors.show(v), i)
      end
      places[i] = a.indexing == "xy" and #a.inputs > 1 and i <= 2 and 3 - i or i
      shape[places[i]] = v.shape[1]
    end
    local grids = {}
    for i, v in ipairs(a.inputs) do
      local own = {}
      for d = 1, #shape do own[d] = d == places[i] and shape[d] or 1 end
      grids[i] = ops.broadcast_to(ops.reshape(v, own), shape)
    end
    return unpack(grids)
  end

  ---------------------------------------------------------------------------------------------------------- diagonals

  local bind_diag = args.signature("diag", { { "x", "operand", required = true, doc = "a vector [n]" } })

  --- The matrix [n, n] with a vector on its diagonal and zeros elsewhere. The diagonal of a matrix is ops.diagonal. (x)
  function ops.diag(...)
    local a = bind_diag(...)
    if #a.x.shape ~= 1 then
      errors.fail("diag: x: expected a vector, got shape %s: the diagonal of a matrix is ops.diagonal(x)",
        errors.show(a.x.shape))
    end
    local n = a.x.shape[1]
    local place = ops.iota { size = n }
    local on_diagonal = ops.equal(ops.expand_dims(place, 2), ops.expand_dims(place, 1))
    local rows = ops.broadcast_to(ops.expand_dims(a.x, 1), { n, n })
    if a.x.dtype == "bool" then return (ops.logical_and(on_diagonal, rows)) end
    return (ops.select(on_diagonal, rows, 0))
  end

  local bind_diagonal = args.signature("diagonal", {
    x, { "offset", "integer", 0, doc = "places to the right of the main diagonal; negative ones are below it" },
    { "dim1", "integer", 1, doc = "the axis of the rows, from 1; -1: the last" },
    { "dim2", "integer", 2, doc = "the axis of the columns" },
  })

  --- The diagonal of the matrices in two axes, as the last axis of the result. (x, offset = 0, dim1 = 1, dim2 = 2)
  function ops.diagonal(...)
    local a = bind_diagonal(...)
    local rank = #a.x.shape
    local rows, columns = args.axis("diagonal", "dim1", a.dim1, rank), args.axis("diagonal", "dim2", a.dim2, rank)
    if rows == columns then errors.fail("diagonal: expected two axes, got %d twice", rows) end
    local t = moved(a.x, { rows, columns }, { rank - 1, rank })
    local shape = t.shape
    local n, m = shape[rank - 1], shape[rank]
    local down, right = math.max(-a.offset, 0), math.max(a.offset, 0)
    local empty = n * m == 0
    local size = empty and 0 or math.min(n - down, m - right)
    if size < 1 and not empty then
      errors.fail("diagonal: offset: expected %d to %d for matrices of %d rows and %d columns, got %d", 1 - n, m - 1,
        n, m, a.offset)
    end
    -- Elements of the matrix as a row: m + 1 places from one to the next.
    local places, flat = {}, {}
    for i = 1, size do places[i] = (down + i - 1) * m + right + i - 1 end
    for d = 1, rank - 2 do flat[d] = shape[d] end
    flat[rank - 1] = n * m
    return (ops.gather(ops.reshape(t, flat), core.tensor(places, "int32"), rank - 1))
  end

  local bind_trace = args.signature("trace", { { "x", "operand", required = true, doc = "a matrix [n, m]" } })

  --- The sum of the diagonal of a matrix. (x)
  function ops.trace(...)
    local a = bind_trace(...)
    if #a.x.shape ~= 2 then errors.fail("trace: x: expected a matrix, got shape %s", errors.show(a.x.shape)) end
    return (ops.reduce_sum(ops.diagonal(a.x)))
  end

  ------------------------------------------------------------------------------------------------------------ places

  -- The places that the last axis of `indices` [.., k] names in the first k dimensions of a tensor of `shape`, counted
  -- as if these dimensions were one, [..]; and its size.
  local function places_in(name, shape, indices)
    local k = indices.shape[#indices.shape]
    if not indices.dtype:find "^int" or not k or k < 1 or k > #shape then
      errors.fail("%s: indices: expected integers [.., k], where k is from 1 to %d, the dimensions of %s; got %s %s",
        name, #shape, errors.show(shape), indices.dtype, errors.show(indices.shape))
    end
    local count = 1
    for d = 1, k do count = count * shape[d] end
    if count >= 2 ^ 31 then indices = ops.cast(indices, "int64") end
    local last, flat = #indices.shape, nil
    for d = 1, k do
      local i = ops.squeeze(part(indices, last, d, d), { last })
      i = within(ops, name .. ": indices", i, 0, shape[d] - 1, (" in dimension %d"):format(d))
      flat = flat and flat * shape[d] + i or i
    end
    return flat, count
  end

  -- `shape` whose first k dimensions are one.
  local function merged(shape, k, count)
    local flat = { count }
    for d = k + 1, #shape do flat[#flat + 1] = shape[d] end
    return flat
  end

  -- The shape of the slices that `indices` [.., k] name in `shape`.
  local function slices_of(shape, indices)
    local k, result = indices.shape[#indices.shape], {}
    for d = 1, #indices.shape - 1 do result[d] = indices.shape[d] end
    for d = k + 1, #shape do result[#result + 1] = shape[d] end
    return result, k
  end

  local places = { "indices", "operand", required = true,
    doc = "[.., k], integers: the last axis has a place, counted from 0, in each of the first k dimensions" }

  local bind_gather_nd = args.signature("gather_nd", { x, places })

  --- The elements, or slices, of x at places: [..] of indices [.., k] where x has k dimensions, [.., the other
  --- dimensions of x] where it has more. A place outside of x is an error. (x, indices)
  function ops.gather_nd(...)
    local a = bind_gather_nd(...)
    local at, count = places_in("gather_nd", a.x.shape, a.indices)
    local shape, k = slices_of(a.x.shape, a.indices)
    return (ops.reshape(ops.gather(ops.reshape(a.x, merged(a.x.shape, k, count)), ops.reshape(at, { -1 })), shape))
  end

  -- x with updates added at places.
  local function add_at(name, t, indices, updates)
    local full = t.shape
    local at, count = places_in(name, full, indices)
    local shape, k = slices_of(full, indices)
    if not Shape.__eq(updates.shape, shape) then
      errors.fail("%s: updates: expected %s for indices %s of %s, got %s", name, errors.show(shape),
        errors.show(indices.shape), errors.show(full), errors.show(updates.shape))
    end
    local flat = merged(full, k, count)
    local rows = merged(full, k, at.size)
    local sum = ops.scatter_add(ops.reshape(t, flat), ops.reshape(at, { -1 }), ops.reshape(updates, rows))
    return (ops.reshape(sum, full))
  end

  local updates = { "updates", "operand", required = true,
    doc = "what is added: [..] of indices [.., k], and the other dimensions" }

  local bind_scatter_nd = args.signature("scatter_nd", {
    places, updates, { "shape", "integers", required = true, min = 1, doc = "the shape of the result" },
  })

  --- A tensor of zeros to which updates are added at places; places that are named more than once get the sum.
  --- (indices, updates, shape)
  function ops.scatter_nd(...)
    local a = bind_scatter_nd(...)
    return add_at("scatter_nd", core.full(a.shape, 0, a.updates.dtype), a.indices, a.updates)
  end

  local bind_tensor_scatter_add = args.signature("tensor_scatter_add", { x, places, updates })

  --- x with updates added at places; places that are named more than once get the sum. (x, indices, updates)
  function ops.tensor_scatter_add(...)
    local a = bind_tensor_scatter_add(...)
    return add_at("tensor_scatter_add", a.x, a.indices, a.updates)
  end

  ------------------------------------------------------------------------------------------------------------ search

  -- The extreme element and its place along an axis; without one, that of all elements.
  local function extreme(name, reduce, search, a)
    if not a.axis then return (reduce(a.x, { keep_dims = a.keepdims })) end
    local along = args.axis(name, "axis", a.axis, #a.x.shape)
    local place = ops.expand_dims(search(a.x, along), along)
    local value = ops.gather_d(a.x, place, along)
    if a.keepdims then return value, place end
    return ops.squeeze(value, { along }), ops.squeeze(place, { along })
  end

  local bind_max, bind_min = args.signature("max", { x, any_axis, keepdims }),
    args.signature("min", { x, any_axis, keepdims })

  --- The largest element along an axis, and where it is, counted from 0 (int32): the first one at ties, which takes the
  --- gradient. Without an axis: the largest of all elements alone, as ops.reduce_max, whose ties share the gradient.
  --- (x, axis, keepdims = false)
  function ops.max(...) return extreme("max", ops.reduce_max, ops.argmax, bind_max(...)) end

  --- The smallest element along an axis, and where it is, counted from 0 (int32): the first one at ties, which takes
  --- the gradient. Without an axis: the smallest of all elements alone, as ops.reduce_min, whose ties share the
  --- gradient.
  --- (x, axis, keepdims = false)
  function ops.min(...) return extreme("min", ops.reduce_min, ops.argmin, bind_min(...)) end

  local bind_argsort = args.signature("argsort", {
    x, { "axis", "integer", -1, doc = "the axis, from 1; -1: the last" },
    { "descending", "boolean", false, doc = "the place of the largest element comes first" },
  })

  --- The places of the elements along an axis, counted from 0 (int32), in the order of the elements: the second result
  --- of ops.sort. (x, axis = -1, descending = false)
  function ops.argsort(...)
    local a = bind_argsort(...)
    return (select(2, ops.sort(a.x, a.axis, a.descending)))
  end

  -------------------------------------------------------------------------------------------------------- arithmetic

  local bind_lerp = args.signature("lerp", {
    { "input", "operand", required = true, doc = "where weight is 0" },
    { "end_", "operand", required = true, doc = "where weight is 1" },
    { "weight", "operand|number", required = true, doc = "the way from input to end_" },
  })

  local lerp = fused(widened(function(from, to, weight)
    local step = to - from
    local near, far = from + step * weight, to - step * (1 - weight)
    if type(weight) == "number" then return weight < 0.5 and near or far end
    return (ops.select(ops.broadcast_to(ops.less(weight, 0.5), near.shape), near, far))
  end))

  --- input + weight (end_ - input); exactly end_ where weight is 1. (input, end_, weight)
  function ops.lerp(...)
    local a = bind_lerp(...)
    return lerp(a.input, a.end_, a.weight)
  end

  -- The largest finite number of each type.
  local largest = { float16 = 65504, bfloat16 = 3.3895313892515355e38, float32 = 3.4028234663852886e38,
    float64 = 1.7976931348623157e308 }

  local bind_nan_to_num = args.signature("nan_to_num", {
    x, { "nan", "number", 0, doc = "the number in the place of NaN" },
    { "posinf", "number", doc = "the number in the place of inf; default: the largest one of the type" },
    { "neginf", "number", doc = "the number in the place of -inf; default: the least one of the type" },
  })

  local nan_to_num = fused(function(t, nan, least, most)
    local y = ops.select(ops.equal(t, math.huge), most, t)
    y = ops.select(ops.equal(t, -math.huge), least, y)
    return (ops.select(ops.equal(t, t), y, nan))
  end)

  --- x with numbers in the places of NaN and infinities, whose gradient is 0. (x, nan = 0, posinf, neginf)
  function ops.nan_to_num(...)
    local a = bind_nan_to_num(...)
    local most = largest[a.x.dtype]
    if not most then return a.x end
    return nan_to_num(a.x, a.nan, a.neginf or -most, a.posinf or most)
  end

  local function product_fields(left, right)
    return {
      { "input", "operand", required = true, doc = "what is added, of a shape that broadcasts to the product's" },
      { left, "operand", required = true, doc = "the left matrix" },
      { right, "operand", required = true, doc = "the right matrix" },
      { "beta", "number", 1, doc = "the factor of input" }, { "alpha", "number", 1, doc = "the factor of the product" },
    }
  end

  -- Whether a tensor of a shape broadcasts to another one.
  local function broadcasts(shape, to)
    local before = #to - #shape
    for d, size in ipairs(shape) do
      if before < 0 or size ~= 1 and size ~= to[before + d] then return false end
    end
    return true
  end

  -- beta input + alpha left right, of matrices with so many dimensions.
  local function add_product(name, rank, a, left, right)
    if #left.shape ~= rank or #right.shape ~= rank then
      errors.fail("%s: expected matrices of %d dimensions, got shapes %s and %s", name, rank, errors.show(left.shape),
        errors.show(right.shape))
    end
    local function sum(first, second, input)
      local product = ops.matmul(first, second)
      if a.alpha ~= 1 then product = product * a.alpha end
      if a.beta == 0 then return product end
      if not broadcasts(input.shape, product.shape) then
        errors.fail("%s: input: expected a shape that broadcasts to %s, the product's, got %s", name,
          errors.show(product.shape), errors.show(input.shape))
      end
      return (a.beta == 1 and input or input * a.beta) + product
    end
    -- bfloat16 holds every product, and has matrix units.
    return (left.dtype == "float16" and widened(sum) or sum)(left, right, a.input)
  end

  local bind_addmm = args.signature("addmm", product_fields("mat1", "mat2"))

  --- beta input + alpha mat1 mat2, of matrices. With beta = 0 input is not read. (input, mat1, mat2, beta = 1, alpha
  --- = 1)
  function ops.addmm(...)
    local a = bind_addmm(...)
    return add_product("addmm", 2, a, a.mat1, a.mat2)
  end

  local bind_baddbmm = args.signature("baddbmm", product_fields("batch1", "batch2"))

  --- beta input + alpha batch1 batch2, of batches of matrices [b, n, k] and [b, k, m]. With beta = 0 input is not read.
  --- (input, batch1, batch2, beta = 1, alpha = 1)
  function ops.baddbmm(...)
    local a = bind_baddbmm(...)
    return add_product("baddbmm", 3, a, a.batch1, a.batch2)
  end
end
