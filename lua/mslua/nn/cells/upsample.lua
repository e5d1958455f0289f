--- nn.Upsample: every pixel of images [n, c, h, w] several times.
local args = require "mslua.args"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Upsample = Cell:extend "Upsample"

local bind = args.signature("Upsample", {
  { "scale_factor", "integer|integers", required = true, min = 1,
    doc = "how often a pixel is repeated: one number or {height, width}" },
  { "mode", "string", "nearest", choices = { "nearest" }, doc = "each new pixel is a copy of the nearest one" },
})

--- Repeats the pixels of images: `nn.Upsample(2)`, `nn.Upsample {2, 3}` for height and width. (scale_factor, mode =
--- "nearest")
function Upsample:init(...)
  self.scale = convolution.each("Upsample: scale_factor", bind(...).scale_factor, 2)
end

--- x [n, c, h, w] gives [n, c, h * scale, w * scale].
function Upsample:construct(x)
  local n, c, h, w = unpack(x.shape)
  local p, q = unpack(self.scale)
  -- One dimension after the other: the gradient adds along one of them at a time, which kernels are made for.
  local wide = ops.broadcast_to(ops.reshape(x, { n, c, h, 1, w, 1 }), { n, c, h, 1, w, q })
  local copies = ops.broadcast_to(ops.reshape(wide, { n, c, h, 1, w * q }), { n, c, h, p, w * q })
  return (ops.reshape(copies, { n, c, h * p, w * q }))
end

function Upsample:extra() return self.scale[1] .. "x" .. self.scale[2] end

return Upsample
