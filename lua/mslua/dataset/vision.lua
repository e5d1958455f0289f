--- ms.dataset.vision: transforms of images [height, width, channels] (mindspore.dataset.vision).
local core = require "mslua.core"
local errors = require "mslua.errors"
local define = require("mslua.dataset.transform").define

local M = {}

local function size_of(name, v, height, width)
  if type(v) == "number" then return height or v, width or v end
  if #v ~= 2 then errors.fail("%s: size: expected a number or {height, width}, got %s", name, errors.show(v)) end
  return v[1], v[2]
end

local function size(doc) return { "size", "integer|integers", required = true, min = 1, doc = doc } end
local both = size "one number, or {height, width}, of the result"

--- Pads with zeros, then crops `size` at a random place.
M.RandomCrop = define("RandomCrop", {
  both,
  { "padding", "integer|integers", 0, min = 0,
    doc = "zeros around the image before it is cropped: one number, {left and right, top and bottom} or {left, top, "
      .. "right, bottom}" },
}, function(a)
  local height, width = size_of("RandomCrop", a.size)
  local p = type(a.padding) == "number" and { a.padding } or a.padding
  if #p == 1 then
    p = { p[1], p[1], p[1], p[1] }
  elseif #p == 2 then
    p = { p[1], p[2], p[1], p[2] }
  elseif #p ~= 4 then
    errors.fail("RandomCrop: padding: expected 1, 2 or 4 numbers, got %s", errors.show(p))
  end
  return { kind = "random_crop", height = height, width = width, left = p[1], top = p[2], right = p[3], bottom = p[4] }
end)

--- Mirrors left and right with probability `prob`.
M.RandomHorizontalFlip = define("RandomHorizontalFlip", {
  { "prob", "number", 0.5, min = 0, max = 1, doc = "the probability that an image is mirrored" },
}, function(a)
  return { kind = "random_horizontal_flip", prob = a.prob }
end)

--- Scales the image.
M.Resize = define("Resize", {
  size "{height, width}, or one number for the shorter edge",
  { "interpolation", "string", "bilinear", choices = { "bilinear", "bicubic", "nearest" },
    doc = '"bilinear": between two pixels along each direction; "bicubic": between four; "nearest": values stay as '
      .. 'they are, as those of a mask of classes must' },
},
  function(a)
    local height, width = size_of("Resize", a.size, nil, 0)
    if a.interpolation ~= "bilinear" then return { kind = "resize_" .. a.interpolation, size = a.size } end
    return { kind = "resize", height = height, width = width }
  end)

--- Takes the middle of the image; a smaller image is padded with zeros.
M.CenterCrop = define("CenterCrop", { both }, function(a)
  local height, width = size_of("CenterCrop", a.size)
  return { kind = "center_crop", height = height, width = width }
end)

--- x * rescale + shift, as float32.
M.Rescale = define("Rescale", {
  { "rescale", "number", required = true, doc = "the factor" }, { "shift", "number", 0, doc = "added after it" },
}, function(a)
  return { kind = "rescale", scale = a.rescale, shift = a.shift }
end)

--- (x - mean) / std for each channel, as float32.
M.Normalize = define("Normalize", {
  { "mean", "numbers", required = true, doc = "the mean of each channel, in the pixels' range" },
  { "std", "numbers", required = true, above = 0, doc = "the standard deviation of each channel, as many as mean" },
}, function(a)
  if #a.mean ~= #a.std then
    errors.fail("Normalize: %d means and %d deviations: one each a channel", #a.mean, #a.std)
  end
  return { kind = "normalize", mean = a.mean, std = a.std }
end)

--- Reorders [height, width, channels] to [channels, height, width].
M.HWC2CHW = define("HWC2CHW", {}, function() return { kind = "hwc2chw" } end)

local mix_fields = {
  { "alpha", "number", 1, above = 0, max = 1000,
    doc = "a batch's share is drawn from Beta(alpha, alpha): 1 is uniform, with less it is nearer to 0 or 1" },
  { "prob", "number", 1, min = 0, max = 1, doc = "the probability that a batch is mixed" },
}

--- After batch, blends each image with the one before it, the first with the last: `x * k + before * (1 - k)`, where k
--- is drawn from Beta(alpha, alpha) for each batch, and the labels in the same proportion: torchvision's MixUp. With
--- probability `prob`; of two in a row, the second takes the batches that the first leaves alone. Images and labels are
--- float32, labels vectors such as OneHot and TypeCast make: `ds:batch(128):map { operations = vision.MixUpBatch(0.2),
--- input_columns = {"image", "label"} }`.
M.MixUpBatch = define("MixUpBatch", mix_fields, function(a)
  return { kind = "mix", box = false, alpha = a.alpha, prob = a.prob }
end)

--- As MixUpBatch, but a box of each image is replaced by that of the image before it; the labels are mixed by the box's
--- share of the image: torchvision's CutMix.
M.CutMixBatch = define("CutMixBatch", mix_fields, function(a)
  return { kind = "mix", box = true, alpha = a.alpha, prob = a.prob }
end)

-- Those that core/data/transforms declares.
for _, transform in ipairs(core.vision_transforms()) do
  if not transform.kind:find "^resize_" then  -- a way of Resize
    M[transform.class] = define(transform.class, transform.fields, function(a)
      a.kind, a.random = transform.kind, transform.random
      return a
    end, transform.doc)
  end
end

return require("mslua.namespace").strict("ms.dataset.vision", M)
