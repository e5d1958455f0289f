-- Images a second of the tutorial's input pipeline on one thread: crop, flip, resize to 224, normalise. Prints one line
-- of JSON.  mslua run bench/training/input.lua SECONDS
local ms = require "mslua"
local vision = ms.dataset.vision

local seconds = tonumber((...)) or 3
local n, batch = 1280, 32
local ds = ms.dataset.NumpySlicesDataset({ (ms.rand { n, 32, 32, 3 } * 255):astype(ms.uint8) }, { "image" })
ds = ds:map {
  operations = {
    vision.RandomCrop({ 32, 32 }, { 4, 4, 4, 4 }), vision.RandomHorizontalFlip(), vision.Resize { 224, 224 },
    vision.Rescale(1 / 255, 0), vision.Normalize({ 0.4914, 0.4822, 0.4465 }, { 0.2023, 0.1994, 0.2010 }),
    vision.HWC2CHW(),
  },
  input_columns = "image",
}
ds = ds:shuffle(n):batch(batch, { drop_remainder = true })

local best, images, begin, last = 0, 0, os.clock(), os.clock()
while os.clock() - begin < seconds do
  for _ in ds:create_tuple_iterator() do
    images = images + batch
    if images % (8 * batch) == 0 then
      local now = os.clock()
      best, last = math.max(best, 8 * batch / (now - last)), now
    end
  end
end
print(('{"images_s": %.1f, "mean_images_s": %.1f}'):format(best, images / (os.clock() - begin)))
