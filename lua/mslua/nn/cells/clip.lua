--- nn.ClipByNorm: scales a tensor down to a largest L2 norm. (For gradients: train = { clip_norm = ... }.)
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local ClipByNorm = Cell:extend "ClipByNorm"

local bind = args.signature("ClipByNorm", {
  { "axis", "integer|integers", doc = "the axes that a norm covers, from 1; default: one norm of the whole tensor" },
})

--- Scales a tensor down to a largest L2 norm: `nn.ClipByNorm()`. axis: norms along these axes instead of over
--- everything.
function ClipByNorm:init(...)
  local axis = bind(...).axis
  self.axis = type(axis) == "number" and { axis } or axis
end

--- x * min(1, clip_norm / |x|), for a number or tensor clip_norm.
function ClipByNorm:construct(x, clip_norm)
  local axes = self.axis
  if not axes then
    axes = {}
    for i = 1, #x.shape do axes[i] = i end
  end
  local norm = ops.norm(x, { axis = axes, keep_dims = true })
  if type(clip_norm) == "number" and not (clip_norm >= 0) then
    errors.fail("ClipByNorm: clip_norm: expected a number of at least 0, got %s", errors.show(clip_norm))
  end
  local limit = type(clip_norm) == "number" and core.tensor(clip_norm, x.dtype) or clip_norm
  local clipped = ops.greater(norm, limit)
  return x * ops.select(clipped, limit / ops.select(clipped, norm, 1), 1)
end

return ClipByNorm
