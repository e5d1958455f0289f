--- ms.dataset.transforms: transforms of any column (mindspore.dataset.transforms).
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"
local Transform = require "mslua.dataset.transform"

local M = {}

--- Converts to another element type; to an integer type values are rounded towards zero.
M.TypeCast = Transform.define("TypeCast", {
  { "output_type", "string", required = true, choices = errors.names(dtypes) },
}, function(a) return { kind = "type_cast", dtype = a.output_type } end)

--- An integer label i becomes a vector of num_classes with 1 at i.
M.OneHot = Transform.define("OneHot", { { "num_classes", "integer", required = true, min = 1 } }, function(a)
  return { kind = "one_hot", num_classes = a.num_classes }
end)

--- Hides tokens at random, drawn again each epoch, for a masked language model (Devlin et al., 2019). Each id that is
--- not one of `keep` is chosen with probability prob; of these share_mask become mask_token, share_random a random id
--- below vocab_size, the others stay. Of two input_columns with the same ids the first becomes the input and the second
--- the labels, ignore_index where no token was chosen: `ds:project({"ids", "ids"}, {"ids", "labels"}):map { operations
--- = MaskTokens { vocab_size = 4000, mask_token = 4, keep = { 0, 2, 3 } }, input_columns = { "ids", "labels" } }`.
M.MaskTokens = Transform.define("MaskTokens", {
  { "vocab_size", "integer", required = true, min = 1 },
  { "mask_token", "integer", required = true, min = 0 },
  { "keep", "integers", {}, min = 0 },
  { "prob", "number", 0.15, min = 0, max = 1 },
  { "share_mask", "number", 0.8, min = 0, max = 1 },
  { "share_random", "number", 0.1, min = 0, max = 1 },
  { "ignore_index", "integer", -100 },
}, function(a)
  if a.share_mask + a.share_random > 1 then
    errors.fail("MaskTokens: share_mask = %g and share_random = %g: together they are at most 1", a.share_mask,
      a.share_random)
  end
  return { kind = "mask_tokens", random = true, vocab = a.vocab_size, mask = a.mask_token, keep = a.keep,
    prob = a.prob, share_mask = a.share_mask, share_random = a.share_random, ignore = a.ignore_index }
end)

--- Several transforms as one.
M.Compose = Transform.define("Compose", { { "transforms", "list", required = true } }, function(a)
  return Transform.collect(a.transforms, "Compose", {})
end)

return require("mslua.namespace").strict("ms.dataset.transforms", M)
