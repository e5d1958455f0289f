--- ms.image: tensors as pictures.
local args = require "mslua.args"
local core = require "mslua.core"

local M = {}

local function check_path(path)
  if not path:find "%.png$" then return ("expected a file that ends in .png, got %q"):format(path) end
end

local fields = {
  { "path", "string", required = true, check = check_path, doc = "the file to write, NAME.png; its folder is made" },
  { "x", "tensor", required = true, doc = "[h, w], [c, h, w] or [n, c, h, w], with 1 or 3 channels" },
}
for _, field in ipairs(require "mslua.image_fields") do fields[#fields + 1] = field end
local bind = args.signature("image.write", fields)

--- Writes a tensor as a PNG file: `ms.image.write("samples.png", x, {low = -1, high = 1})`. x is [h, w], [c, h, w] with
--- 1 or 3 channels, or [n, c, h, w], a grid of n pictures. Values from low to high become 0 to 255; the default of high
--- is 1, of 8-bit integers 255. (path, x, low = 0, high, columns = 8, padding = 2)
function M.write(...)
  local a = bind(...)
  local x = a.x
  core.write_png(a.path, x, {
    low = a.low, high = a.high or (x.dtype == "uint8" and 255 or 1), columns = a.columns, padding = a.padding,
  })
end

return require("mslua.namespace").strict("ms.image", M)
