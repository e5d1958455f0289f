--- ms.dataset.transforms: transforms of any column (mindspore.dataset.transforms).
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"
local Transform = require "mslua.dataset.transform"

local M = {}

--- Converts to another element type. To an integer type, floats are rounded towards zero, and those beyond its range
--- become its least or largest number; NaN, an integer beyond the range, and a float32 from 2^24 on, which may stand
--- for another integer, are errors.
M.TypeCast = Transform.define("TypeCast", {
  { "output_type", "string", required = true, choices = errors.names(dtypes), doc = "the type of the result" },
}, function(a) return { kind = "type_cast", dtype = a.output_type } end)

--- An integer label i becomes a vector of num_classes with 1 at i.
M.OneHot = Transform.define("OneHot", {
  { "num_classes", "integer", required = true, min = 1, doc = "size of the vector; labels are below it" },
}, function(a)
  return { kind = "one_hot", num_classes = a.num_classes }
end)

--- Several transforms as one.
M.Compose = Transform.define("Compose", {
  { "transforms", "list", required = true, doc = "the transforms, in their order" },
}, function(a)
  return Transform.collect(a.transforms, "Compose", {})
end)

return require("mslua.namespace").strict("ms.dataset.transforms", M)
