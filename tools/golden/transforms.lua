-- Writes what transforms make of pictures as PNG files: mslua run transforms.lua -- PICTURES OUT JOBS
-- PICTURES is a .npy file of uint8 [n, h, w, 3] or float32 [n, h, w, 3], or a folder of images. Of each picture a file
-- OUT/NAME_INDEX.png is a grid of one column; float32 pictures go from 0 to 1. JOBS is a Lua table of
-- {NAME, CLASS, {arguments}}. A transform of batches, of 100 pictures, takes float32; the share of each picture in what
-- it became is the one line of OUT/NAME_INDEX.txt.
local ms = require "mslua"
local vision = ms.dataset.vision
local pictures, out, jobs = ...
local ROWS = 100  -- of a batch

ms.set_seed(7)
for _, job in ipairs(assert(loadstring("return " .. jobs))()) do
  local name, class, arguments = unpack(job)
  local ds
  if pictures:find "%.npy$" then
    ds = ms.dataset.NumpyDataset(pictures):rename({ "x" }, { "image" })
  else
    ds = ms.dataset.ImageFolderDataset(pictures, { shuffle = false }):project { "image" }
  end
  local mixes = class and class:find "Batch$"
  if class and not mixes then ds = ds:map { operations = vision[class](arguments), input_columns = "image" } end
  local planes = { operations = vision.HWC2CHW(), input_columns = "image" }
  if mixes then
    local rows = {}
    for i = 1, ds:get_dataset_size() do rows[i] = (i - 1) % ROWS end
    ds = ds:zip(ms.dataset.NumpySlicesDataset({ ms.Tensor(rows, ms.int32) }, { "row" }))
      :map { operations = { ms.dataset.transforms.OneHot(ROWS), ms.dataset.transforms.TypeCast(ms.float32) },
        input_columns = "row" }:map(planes):batch(ROWS)
      :map { operations = vision[class](arguments), input_columns = { "image", "row" } }
  else
    ds = ds:map(planes):batch(ROWS)
  end
  local index = 0
  for x, shares in ds:create_tuple_iterator(1) do
    local file = ("%s/%s_%d"):format(out, name, index)
    ms.image.write(file .. ".png", x, { columns = 1, padding = 0 })
    if mixes then
      local text = assert(io.open(file .. ".txt", "w"))
      text:write(("%.9g\n"):format(shares:totable()[1][1]))
      text:close()
    end
    index = index + 1
  end
end
