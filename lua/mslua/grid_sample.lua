--- Functions of ms.ops that take an image's values at places of a grid: spatial transformer networks (Jaderberg et al.,
--- 2015). Places are PyTorch's: (x, y), -1 and 1 being the edges of the image.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"

local align_corners = { "align_corners", "boolean", false,
  doc = "true: -1 and 1 are the centers of the first and the last pixel; false: their outer edges" }

local MOST_PIXELS = 2 ^ 31 - 1  -- their numbers are int32

--- Gives ms.ops the functions.
---@param ops table ms.ops under construction
return function(ops)
  -- The places of `size` pixels, counted from 0, that values from -1 to 1 mean.
  local function to_pixels(at, size, aligned)
    if aligned then return (at + 1) * ((size - 1) / 2) end
    return ((at + 1) * size - 1) / 2
  end

  -- Places outside of the image, reflected at its edges as often as it takes.
  local function reflected(at, size, aligned)
    local low, span = aligned and 0 or -0.5, aligned and size - 1 or size
    if span == 0 then return at * 0 end
    local away = ops.abs(at - low)
    local turns = ops.floor(away / span)
    local rest = away - turns * span
    local odd = turns - ops.floor(turns / 2) * 2
    return ops.clip(low + odd * span + rest * (1 - odd * 2), 0, size - 1)
  end

  local function placed(at, size, a)
    local pixels = to_pixels(at, size, a.align_corners)
    if a.padding_mode == "border" then return ops.clip(pixels, 0, size - 1) end
    if a.padding_mode == "reflection" then return reflected(pixels, size, a.align_corners) end
    return pixels
  end

  -- 1 where a place is one of `size` pixels, else 0.
  local function inside(at, size) return ops.cast(ops.equal(at, ops.clip(at, 0, size - 1)), at.dtype) end

  local function check_image(name, tensor, field, rank, what)
    if #tensor.shape ~= rank then
      errors.fail("%s: %s: expected %s, got the shape %s", name, field, what, errors.show(tensor.shape))
    end
  end

  local bind_sample = args.signature("grid_sample", {
    { "input", "operand", required = true, doc = "images, [n, channels, height, width], of floats" },
    { "grid", "operand", required = true, doc = "places, [n, out_height, out_width, 2]: (x, y) of each pixel" },
    { "mode", "string", "bilinear", choices = { "bilinear", "nearest" },
      doc = "bilinear: from the four pixels around a place; nearest: the pixel next to it, halves to the even one" },
    { "padding_mode", "string", "zeros", choices = { "zeros", "border", "reflection" },
      doc = "what is outside of the image: zeros, the pixel at the border, or the image reflected at its edges" },
    align_corners,
  })

  --- The values of images at the places of a grid: [n, channels, out_height, out_width]; NaN at one that is NaN. There
  --- are gradients by both;
  --- mode "nearest" has none by the grid. (input, grid, mode = "bilinear", padding_mode = "zeros",
  --- align_corners = false)
  function ops.grid_sample(...)
    local a = bind_sample(...)
    check_image("grid_sample", a.input, "input", 4, "[n, channels, height, width]")
    check_image("grid_sample", a.grid, "grid", 4, "[n, out_height, out_width, 2]")
    local n, channels, height, width = unpack(a.input.shape)
    local images, out_height, out_width, coordinates = unpack(a.grid.shape)
    if images ~= n or coordinates ~= 2 then
      errors.fail("grid_sample: grid: expected [%d, out_height, out_width, 2], got the shape %s", n,
        errors.show(a.grid.shape))
    end
    if height * width < 1 or height * width > MOST_PIXELS then
      errors.fail("grid_sample: input: expected images of 1 to %d pixels, got the shape %s", MOST_PIXELS,
        errors.show(a.input.shape))
    end
    local places = out_height * out_width
    -- A half-precision number does not tell the pixels of a large image apart.
    local narrow = a.grid.dtype == "float16" or a.grid.dtype == "bfloat16"
    local grid = narrow and ops.cast(a.grid, "float32") or a.grid
    local xs, ys = ops.split(ops.reshape(grid, { n, places, 2 }), 3, 2)
    local x = placed(ops.reshape(xs, { n, places }), width, a)
    local y = placed(ops.reshape(ys, { n, places }), height, a)
    local is_place = ops.logical_and(ops.equal(x, x), ops.equal(y, y))

    -- The pixels that count, and how much each of them does: [n, places] of each.
    local columns, rows, weights
    if a.mode == "nearest" then
      local column, row = ops.round(x), ops.round(y)
      columns, rows, weights = { column }, { row }, { false }
    else
      local left, top = ops.floor(x), ops.floor(y)
      local to_right, to_bottom = x - left, y - top
      columns, rows = { left, left + 1, left, left + 1 }, { top, top, top + 1, top + 1 }
      weights = { (1 - to_right) * (1 - to_bottom), to_right * (1 - to_bottom), (1 - to_right) * to_bottom,
        to_right * to_bottom }
    end
    local indices = {}
    for i, column in ipairs(columns) do
      local row = rows[i]
      local counts = inside(column, width) * inside(row, height)
      weights[i] = weights[i] and weights[i] * counts or counts
      local index = ops.cast(ops.clip(row, 0, height - 1), "int32") * width
        + ops.cast(ops.clip(column, 0, width - 1), "int32")
      -- What is at a place that is NaN is NaN.
      indices[i] = ops.reshape(ops.select(is_place, index, 0), { n, 1, places })
      weights[i] = ops.reshape(ops.cast(ops.select(is_place, weights[i], 0 / 0), a.input.dtype), { n, 1, 1, places })
    end
    local corners = #indices
    local function all(parts, axis) return corners == 1 and parts[1] or ops.concat(parts, axis) end
    local index = ops.broadcast_to(all(indices, 3), { n, channels, corners * places })
    local pixels = ops.gather_d(ops.reshape(a.input, { n, channels, height * width }), index, 3)
    local weighted = ops.reshape(pixels, { n, channels, corners, places }) * all(weights, 3)
    return (ops.reshape(ops.reduce_sum(weighted, 3), { n, channels, out_height, out_width }))
  end

  local bind_affine = args.signature("affine_grid", {
    { "theta", "operand", required = true, doc = "matrices, [n, 2, 3], that make (x, y) of the input from (x, y, 1)" },
    { "size", "integers", required = true, min = 0, doc = "of the images that are made: {n, channels, height, width}" },
    align_corners,
  })

  --- The grid of affine transformations for grid_sample: [n, height, width, 2]. (theta, size, align_corners = false)
  function ops.affine_grid(...)
    local a = bind_affine(...)
    check_image("affine_grid", a.theta, "theta", 3, "[n, 2, 3]")
    local n, height, width = a.size[1], a.size[3], a.size[4]
    if #a.size ~= 4 then
      errors.fail("affine_grid: size: expected {n, channels, height, width}, got %s", errors.show(a.size))
    end
    if a.theta.shape[1] ~= n or a.theta.shape[2] ~= 2 or a.theta.shape[3] ~= 3 then
      errors.fail("affine_grid: theta: expected [%d, 2, 3], got the shape %s", n, errors.show(a.theta.shape))
    end
    -- From -1 to 1: the places of the centers of `count` pixels.
    local function centers(count)
      local pixels = core.arange(0, count, 1, a.theta.dtype)
      if not a.align_corners then return (pixels * 2 + 1) / count - 1 end
      return count == 1 and pixels or pixels * (2 / (count - 1)) - 1
    end
    local function spread(values, shape)
      return ops.broadcast_to(ops.reshape(values, shape), { height, width, 1 })
    end
    local places = ops.concat({ spread(centers(width), { 1, width, 1 }), spread(centers(height), { height, 1, 1 }),
      core.full({ height, width, 1 }, 1, a.theta.dtype) }, 3)
    local flat = ops.broadcast_to(ops.reshape(places, { 1, height * width, 3 }), { n, height * width, 3 })
    return (ops.reshape(ops.matmul(flat, ops.transpose(a.theta, { 1, 3, 2 })), { n, height, width, 2 }))
  end
end
