--- nn.Upsample: images [n, c, h, w] in a larger size.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local Upsample = Cell:extend "Upsample"

local bind = args.signature("Upsample", {
  { "scale_factor", "integer|integers", required = true, min = 1,
    doc = "how often height and width are multiplied: one number or {height, width}" },
  { "mode", "string", "nearest", choices = { "nearest", "bilinear" },
    doc = '"nearest": each new pixel is a copy of the nearest one; "bilinear": it is interpolated between four' },
  { "align_corners", "boolean", false,
    doc = "with \"bilinear\": true: the corner pixels of both images lie on each other, as in PyTorch" },
})

--- Multiplies the height and width of images: `nn.Upsample(2)`, `nn.Upsample({2, 3}, {mode = "bilinear"})`.
--- ops.resize_bilinear and ops.resize_nearest give any size.
function Upsample:init(...)
  local a = bind(...)
  self.scale, self.mode, self.align_corners = convolution.each("Upsample: scale_factor", a.scale_factor, 2), a.mode,
    a.align_corners
  if a.align_corners and a.mode ~= "bilinear" then
    errors.fail 'Upsample: align_corners is for mode "bilinear": leave it out, or add mode = "bilinear"'
  end
end

--- x [n, c, h, w] gives [n, c, h * scale, w * scale].
function Upsample:construct(x)
  convolution.check_rank("Upsample", x, { "n", "c", "h", "w" })
  local size = { x.shape[3] * self.scale[1], x.shape[4] * self.scale[2] }
  if self.mode == "nearest" then return ops.resize_nearest(x, { size = size }) end
  return ops.resize_bilinear(x,
    { size = size, align_corners = self.align_corners, half_pixel_centers = not self.align_corners })
end

function Upsample:extra()
  return self.scale[1] .. "x" .. self.scale[2] .. (self.mode == "nearest" and "" or ", " .. self.mode)
end

return Upsample
